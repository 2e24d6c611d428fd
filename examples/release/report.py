"""The facts at the end of the demo, counted in files, PostgreSQL and Temporal, and compared with expected values."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from holdfast import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    Effect,
    LLMReplied,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
)
from holdfast.core.log.event_log import first_altered
from holdfast.examples.release.git import git
from holdfast.examples.release.tools import publications
from holdfast.examples.shared.facts import Kill, Row
from holdfast.examples.shared.run import ServerView

SCRIPTED_STEPS = 6
"""LLM calls of the scripted release: read, edit, test, tag, publish, report."""


@dataclass(frozen=True)
class Ending:
    """A completed run of the demo."""

    events: list[AgentEvent]
    server: ServerView
    kills: list[Kill]
    repository: Path
    base: str
    """The commit from which the release started."""
    database_url: str
    thread: str
    scripted: bool
    seconds: float


def rows(ending: Ending) -> list[Row]:
    """Return every fact with its expected value."""
    return [
        *_run_rows(ending),
        *_authority_rows(ending),
        *_effect_rows(ending),
        *_server_rows(ending),
        Row("total time", f"{ending.seconds:.1f} s"),
    ]


def _run_rows(ending: Ending) -> Iterator[Row]:
    events = ending.events
    outcome = events[-1].outcome if isinstance(events[-1], RunFinished) else "not finished"
    steps = sum(isinstance(event, LLMReplied) for event in events)
    yield Row("run", outcome, "completed")
    yield Row("steps (LLM calls)", steps, SCRIPTED_STEPS if ending.scripted else None)
    yield Row("events in the log", len(events))
    altered = first_altered(events)
    yield Row("chain of digests", "intact" if altered is None else f"broken at event {altered}", "intact")


def _authority_rows(ending: Ending) -> Iterator[Row]:
    names = {event.number: event.call.name for event in ending.events if isinstance(event, ToolCallRequested)}
    accepted = [event for event in ending.events if isinstance(event, DecisionReceived) and event.outcome == "accepted"]
    yield Row("approvals accepted", len(accepted), 2 if ending.scripted else None)
    yield Row("workers killed (SIGKILL)", len(ending.kills), 2)
    for number, kill in enumerate(ending.kills, 1):
        yield Row(f"  {number}. {kill.what}: on the server", kill.seen, kill.wanted)
        recorded = next((event.at for event in ending.events if event.at > kill.at), None)
        later = f"{(recorded - kill.at).total_seconds():.1f} s" if recorded else "never"
        yield Row("     next event recorded after", later)
    finished = [event for event in ending.events if isinstance(event, ToolCallFinished) and event.status == "ok"]
    adopted = [names[event.number] for event in finished if event.adopted]
    yield Row(
        "effects found after a kill and adopted",
        ", ".join(adopted) or "nothing",
        "publish" if ending.scripted else None,
    )


def _effect_rows(ending: Ending) -> Iterator[Row]:
    repository = ending.repository
    tags = git(repository, "tag", "--contains", ending.base).splitlines()
    commits = git(repository, "rev-list", f"{ending.base}..HEAD").splitlines()
    published = publications(repository)
    yield _effect("git tags", expected=1, done=len(tags))
    yield _effect("release commits", expected=1, done=len(commits))
    yield _effect("lines in the registry", expected=1, done=len(published))
    tagged = git(repository, "rev-parse", f"{tags[0]}^{{commit}}") if tags else "no tag"
    same = [line.get("commit") for line in published] == [tagged]
    yield Row("published commit", "the tagged one" if same else "not the tagged one", "the tagged one")
    with psycopg.connect(ending.database_url) as database:
        ledger = database.execute(
            "SELECT outcome IS NOT NULL FROM holdfast.effects WHERE thread = %s", [ending.thread]
        ).fetchall()
    finished = sum(done for (done,) in ledger)
    yield _effect("rows in the ledger", expected=len(_effects_started(ending.events)), done=finished)
    yield Row("  of them without an outcome", len(ledger) - finished, 0)


def _effect(what: str, *, expected: int, done: int) -> Row:
    """Return the row of an effect counted in the real system."""
    return Row(f"{what}: {expected} expected", _counts(done, expected), _counts(expected, expected))


def _counts(done: int, expected: int) -> str:
    return f"{done} done, {max(done - expected, 0)} duplicated"


def _effects_started(events: list[AgentEvent]) -> set[str]:
    """Return the keys of started calls with effects."""
    spec = next(event.spec for event in events if isinstance(event, AgentLoaded))
    effects = {tool.name for tool in spec.tools if tool.effect is not Effect.READ}
    numbers = {e.number for e in events if isinstance(e, ToolCallRequested) and e.call.name in effects}
    return {event.key for event in events if isinstance(event, ToolCallStarted) and event.number in numbers}


def _server_rows(ending: Ending) -> Iterator[Row]:
    size = ending.server.history_bytes
    yield Row("Temporal history", f"{ending.server.history_events} events, {size:,} bytes")

"""The final checks of `bench.moves`: logs against files, the outside world, and the messages of people."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.move_places import Cluster, MovedLog
from bench.tree_audit import Run, audit_tree
from holdfast.audit.evidence.verify import verify
from holdfast.core.log.events import AgentEvent, DecisionReceived, SubagentStarted, ToolCallFinished, ToolCallStarted
from holdfast.core.log.events import WakeReceived as Woken
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.reader import open_portable_file
from holdfast.testing.kill_matrix.audit import Effects
from holdfast.testing.kill_matrix.audit_interventions import audit_sent
from holdfast.testing.kill_matrix.interventions import Interventions
from holdfast.testing.kill_matrix.person import Person

Logs = Mapping[str, Sequence[bytes]]
"""The lines of logs, by thread."""


@dataclass(frozen=True)
class Actors:
    """The people who act on a thread in one place."""

    log: MovedLog
    person: Person
    others: Interventions


def logs_of(path: Path) -> Logs:
    """Return the logs in a file."""
    with open_portable_file(path) as file:
        return {file.thread_at(place): list(file.lines(child_member(LOG, place))) for place in ("", *file.subagents)}


def file_faults(thread: str, before: Logs, file: Logs, here: Logs) -> Iterator[str]:
    """Yield faults: a file that does not continue the previous one, or a record that lacks imported events.

    Args:
        thread: The thread.
        before: The logs in the file of its previous move.
        file: The logs in this file.
        here: The logs in the place that imported it.
    """
    for name, lines in before.items():
        if list(file.get(name, ()))[: len(lines)] != list(lines):
            yield f"{thread}: the log of {name} in its file does not continue that in the one before"
        if name != thread and len(file.get(name, ())) != len(lines):
            yield f"{thread}: the log of {name}, which had ended, has {len(file.get(name, ()))} for {len(lines)} events"
    for name, lines in file.items():
        if list(here[name])[: len(lines)] != list(lines):
            yield f"{thread}: the log of {name} was imported, and is not that of the file"


async def audit_moved(
    thread: str, here: Cluster, effects: Effects, actors: Sequence[Actors]
) -> tuple[list[str], Counter[str], set[str]]:
    """Return the faults of an ended thread, counts of its events, and the keys of its effects.

    Args:
        thread: The thread.
        here: The place in which it ended.
        effects: The number of times that each effect happened.
        actors: The people who acted on it, by place.
    """
    tree = {thread: Run(thread, await here.threads.recorded_events(thread))}
    for event in tree[thread].events:
        if isinstance(event, SubagentStarted):
            tree[event.thread] = Run(event.thread, await here.threads.recorded_events(event.thread))
    wrong = audit_tree(tree, effects=effects)
    events = tree[thread].events
    received = {event.by for event in events if isinstance(event, DecisionReceived)}
    sent = {by for each in actors for by in each.person.sent}
    wrong += [f"{thread}: the decision of {by} is lost" for by in sorted(sent - received)]
    ids = {id for each in actors for id in each.others.events}
    refined = {id for each in actors for id in each.others.refinements}
    wrong += [f"{thread}: {what}" for what in audit_sent(events, ids=ids, refinements=refined)]
    for name in tree:
        result = await verify(here.threads, name, evidence=here.evidence)
        wrong += [] if result.ok else [f"{name}: {result.where} {result.position}: {result.reason}"]
    every = [event for run in tree.values() for event in run.events]
    kinds = _counts(every) + Counter({"decisions": len(sent), "refinements": len(refined), "events sent": len(ids)})
    return wrong, kinds, {event.key for event in every if isinstance(event, ToolCallStarted)}


def _counts(events: Sequence[AgentEvent]) -> Counter[str]:
    kinds = Counter[str](event.type for event in events)
    kinds["events"] = len(events)
    kinds["adopted"] = sum(isinstance(event, ToolCallFinished) and event.adopted for event in events)
    kinds["buffered"] = sum(isinstance(event, Woken) and event.outcome == "buffered" for event in events)
    return kinds


def summarize(kinds: Counter[str], effects: Effects, statuses: Counter[str]) -> list[str]:
    """Return the figures, one sentence each.

    Args:
        kinds: Counts of all events.
        effects: The number of times that each effect happened.
        statuses: The statuses of the runs when they were moved.
    """
    return [
        f"- {kinds['events']:,} events; {kinds['subagent_started']:,} sub-agents, whose logs came along each time",
        f"- {len(effects):,} external effects, {sum(count > 1 for count in effects.values())} of them more than once;"
        f" {kinds['adopted']:,} results were adopted from an earlier attempt or a person's answer, and"
        f" {kinds['reconcile_requested']:,} times a person was asked whether an effect had happened",
        f"- {kinds['decisions']:,} decisions, {kinds['events sent']:,} events ({kinds['buffered']:,} before the wait)"
        f" and {kinds['refinements']:,} refinements were sent; {kinds['run_paused']:,} pauses",
        "- moved while " + ", ".join(f"{status.replace('_', ' ')} {count}" for status, count in statuses.most_common()),
    ]

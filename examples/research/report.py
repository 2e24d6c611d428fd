"""The facts at the end of the demo: whether logs, files, ledger and accounts agree about the tree's work."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast import (
    AgentEvent,
    BudgetExtended,
    BudgetLow,
    DecisionReceived,
    DormancyBegan,
    LLMReplied,
    RunFinished,
    RunStarted,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    VerdictGiven,
    WakeReceived,
)
from holdfast.core.budget.account import Account, Cost
from holdfast.core.budget.budget import LimitName
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.examples.research.lines import read_lines
from holdfast.examples.research.tools import findings_of, reports_of
from holdfast.examples.shared.facts import Kill, Row

CHILDREN = 5
"""Sub-agents of the scripted lead: incidents, load, cost, soak test, review."""
NIGHT = timedelta(hours=14)
"""The duration of its sleep."""


@dataclass(frozen=True)
class Ending:
    """A completed run of the demo."""

    logs: dict[str, Sequence[AgentEvent]]
    """By thread, root first."""
    started: int
    """The number of agent runs ever started by the server."""
    verified: dict[str, bool]
    """Whether `starter.py verify` finds each thread intact."""
    kills: list[Kill]
    shown: dict[str, Any]
    """The output of `starter.py show --json` for the root."""
    library: Path
    ledger: Sequence[bool]
    """For each ledger row of the tree: whether it has an outcome."""
    scripted: bool
    seconds: float

    @cached_property
    def root(self) -> Sequence[AgentEvent]:
        """The log of the root."""
        return next(iter(self.logs.values()))

    def wanted(self, value: object) -> object:
        """Return the expected value with the scripted LLM; None with a real one, which may work differently."""
        return value if self.scripted else None


def rows(ending: Ending) -> list[Row]:
    """Return every fact with its expected value."""
    return [
        *_tree_rows(ending),
        *_kill_rows(ending),
        *_effect_rows(ending),
        *_account_rows(ending),
        *_person_rows(ending),
        *_constraint_rows(ending),
        Row("total time", f"{ending.seconds:.1f} s"),
    ]


def _tree_rows(ending: Ending) -> Iterator[Row]:
    outcome = ending.root[-1].outcome if isinstance(ending.root[-1], RunFinished) else "not finished"
    requested = [
        event.call.id
        for event in ending.root
        if isinstance(event, ToolCallRequested) and event.call.name == "run_agent"
    ]
    begun = Counter(event.thread for event in ending.root if isinstance(event, SubagentStarted))
    ended = Counter(event.thread for event in ending.root if isinstance(event, SubagentEnded))
    own = [thread for thread, log in ending.logs.items() if sum(isinstance(event, RunStarted) for event in log) == 1]
    yield Row("the lead's run", outcome, "completed")
    yield Row("sub-agents that it asked for", len(requested), ending.wanted(CHILDREN))
    yield Row("  started, each once", _once(begun), _all(len(begun)))
    yield Row("  ended, each once", _once(ended), _all(len(begun)))
    yield Row("runs that Temporal has ever started", ending.started, 1 + len(begun))
    yield Row("  logs in which a run begins once", len(own), 1 + len(begun))
    yield Row("  logs that `verify` finds intact", sum(ending.verified.values()), 1 + len(begun))


def _once(counts: Counter[str]) -> str:
    return f"{len(counts)}, {counts.total() - len(counts)} twice"


def _all(count: int) -> str:
    return f"{count}, 0 twice"


def _kill_rows(ending: Ending) -> Iterator[Row]:
    yield Row("workers killed (SIGKILL)", len(ending.kills), ending.wanted(4))
    for number, kill in enumerate(ending.kills, 1):
        yield Row(f"  {number}. {kill.what}: on the server", kill.seen, ending.wanted(kill.wanted))


def _effect_rows(ending: Ending) -> Iterator[Row]:
    """Check that files, ledger and logs have the same effects, each once."""
    calls = {tool: list(_keys(ending, tool)) for tool in ("file_finding", "publish_report")}
    files = {"file_finding": findings_of(ending.library), "publish_report": reports_of(ending.library)}
    for tool, keys in calls.items():
        written = Counter(str(line.get("key")) for line in read_lines(files[tool]))
        yield Row(f"calls of {tool}", len(keys), ending.wanted(4 if tool == "file_finding" else 1))
        yield Row("  lines in the file, each once", _once(written), _all(len(keys)))
        yield Row("  on one side only", len(written.keys() ^ set(keys)), 0)
    adopted = [
        event for log in ending.logs.values() for event in log if isinstance(event, ToolCallFinished) and event.adopted
    ]
    yield Row("effects found after a kill and adopted", len(adopted), ending.wanted(4))
    effects = sum(map(len, calls.values()))
    done = sum(ending.ledger)
    yield Row("rows in the ledger, with an outcome", f"{len(ending.ledger)}, {done}", f"{effects}, {effects}")


def _keys(ending: Ending, tool: str) -> Iterator[str]:
    """Yield the effect keys of a tool's successful calls, in all logs."""
    for log in ending.logs.values():
        names = {event.number: event.call.name for event in log if isinstance(event, ToolCallRequested)}
        done = {event.number for event in log if isinstance(event, ToolCallFinished) and event.status == "ok"}
        for event in log:
            if isinstance(event, ToolCallStarted) and names[event.number] == tool and event.number in done:
                yield event.key


def _account_rows(ending: Ending) -> Iterator[Row]:
    """Check that the amounts spent by the runs add up to the account of the root."""
    accounts = [_account(thread, log) for thread, log in ending.logs.items()]
    root, children = accounts[0], accounts[1:]
    replies = sum(isinstance(event, LLMReplied) for log in ending.logs.values() for event in log)
    shown = {each["limit"]: each for each in ending.shown["budget"]["limits"]}
    limits: tuple[LimitName, ...] = ("steps", "tokens")
    for limit in limits:
        parts = [root.own.of(limit), *(child.account.spent.of(limit) for child in children)]
        yield Row(f"{limit} of the lead and its sub-agents", f"{' + '.join(map(str, parts))} = {sum(parts)}")
        yield Row("  in the root's account, as `show` has it", shown[limit]["spent"], str(sum(parts)))
        yield Row("  still reserved there", shown[limit]["reserved"], "0")
    yield Row("replies of the LLM in all logs", replies, root.account.spent.steps)


@dataclass(frozen=True)
class _Spent:
    """The account of a run, according to its log."""

    account: Account
    own: Cost
    """The amounts spent by the run itself, without its sub-agents."""


def _account(thread: str, log: Sequence[AgentEvent]) -> _Spent:
    state, steps, tokens = RunState(thread=thread), 0, 0
    for event in log:
        before, state = state.account.spent, evolve(state, event)
        if not isinstance(event, SubagentEnded):
            steps += state.account.spent.steps - before.steps
            tokens += state.account.spent.tokens - before.tokens
    return _Spent(state.account, Cost(steps=steps, tokens=tokens))


def _person_rows(ending: Ending) -> Iterator[Row]:
    log = ending.root
    narrowed = [event for event in log if isinstance(event, TaskRefined) and event.kind == "narrow"]
    low = [event for event in log if isinstance(event, BudgetLow)]
    extended = [event.more.words for event in log if isinstance(event, BudgetExtended)]
    accepted = [event for each in ending.logs.values() for event in each if isinstance(event, DecisionReceived)]
    woken = [event.outcome for event in log if isinstance(event, WakeReceived)]
    yield Row("task narrowed", len(narrowed), ending.wanted(1))
    yield Row("  the report compares brokers", _yes(_compares(ending)), ending.wanted("no"))
    yield Row("event from outside", ", ".join(woken), ending.wanted("delivered"))
    yield Row("slept, by the run's clock", _hours(log), ending.wanted(f"{NIGHT // timedelta(hours=1)} h"))
    yield Row("budget: low, then extended", f"{len(low)}, {', '.join(extended)}", ending.wanted("1, steps=10"))
    yield Row("approvals accepted", sum(event.outcome == "accepted" for event in accepted), ending.wanted(1))


def _compares(ending: Ending) -> bool:
    return any(
        "what a broker would not remove" in line["text"].lower() for line in read_lines(reports_of(ending.library))
    )


def _hours(log: Sequence[AgentEvent]) -> str:
    """Return the duration of the run's sleeps until a time, in whole hours."""
    asleep = {
        event.number: event.at for event in log if isinstance(event, DormancyBegan) and event.trigger.kind == "time"
    }
    ends = {event.number: event.at for event in log if isinstance(event, ToolCallFinished) and event.number in asleep}
    slept = sum((ends[number] - begun for number, begun in asleep.items() if number in ends), timedelta())
    return f"{slept // timedelta(hours=1)} h"


def _constraint_rows(ending: Ending) -> Iterator[Row]:
    """Check that the tree tried a missing capability only once."""
    tried = refused = 0
    for log in ending.logs.values():
        verdicts = {event.number: event.rule for event in log if isinstance(event, VerdictGiven)}
        for event in log:
            if isinstance(event, ToolCallFinished) and event.status == "cannot":
                by_constraint = verdicts[event.number].startswith("constraint ")
                refused, tried = refused + by_constraint, tried + (not by_constraint)
    yield Row("a missing capability: called", tried, ending.wanted(1))
    yield Row("  refused in another sub-agent without a call", refused, ending.wanted(1))


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"

"""Compares the logs of a tree of runs: what a parent's log says of a sub-agent is what the sub-agent's log has.

1. The run began as the parent's call had it begin: with its task, for its agent, under the policies of all runs above.
2. What the parent has recorded of its end, and what its calls have read, is how that run ended.

Where a run was reset, its log is another branch than the one that the other log has seen: then beginnings or ends are
not compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.budget.tree import TreeCost, tree_cost
from holdfast.llm.blocks import Content
from holdfast.llm.messages import Usage
from holdfast.log.events import (
    AgentEvent,
    RunFinished,
    RunForked,
    RunReset,
    RunStarted,
    SubagentEnded,
    SubagentStarted,
    UserMessageReceived,
)
from holdfast.run.children import NO_ANSWER, ChildReport
from holdfast.run.state import RunState
from holdfast.run.subagents import END_CHARS, REPORT_CHARS, deepest, limits_of, report_words, words_digest
from holdfast.run.substates.subagents import Child
from holdfast.tools.subagents import read_run_agent
from holdfast.transcript.transcript import clip
from holdfast.trust import Trust, least

_COMPARED = ("completed", "failed", "cancelled")
"""Ends that the sub-agent's log has, too. Others were found by looking at Temporal."""


@dataclass(frozen=True)
class Named:
    """A sub-agent, as its parent's log has it."""

    started: SubagentStarted
    lineage: tuple[tuple[str, ...], int, str, int]
    """The threads above it, the number and the effect key of the call, and the greatest depth of its tree."""
    depth: int
    policies: tuple[str, ...]
    """Digests of the policies of the runs above it."""
    task: str
    clipped: int
    """How many characters of its answer the parent reads."""


@dataclass(frozen=True)
class Start:
    """How a run began."""

    event: RunStarted
    task: Content | None = None


@dataclass(frozen=True)
class End:
    """How a run ended."""

    outcome: str
    text: str
    steps: int
    usage: Usage
    trust: Trust
    cost: TreeCost | None


@dataclass
class Family:
    """What the log of one thread says of its own runs, and of the sub-agents that it has started."""

    starts: dict[str, Start] = field(default_factory=dict)
    """By first run id."""
    ends: dict[str, End] = field(default_factory=dict)
    named: dict[str, Named] = field(default_factory=dict)
    """Its sub-agents, by thread."""
    ended: dict[str, SubagentEnded] = field(default_factory=dict)
    was_reset: bool = False
    _run: str = ""

    def take(self, before: RunState, event: AgentEvent, after: RunState) -> None:
        """Take in an event that follows from those before.

        Args:
            before: The state before it.
            event: The event.
            after: The state after it.
        """
        match event:
            case RunForked():  # the sub-agents before it are the original's
                self.named, self.ended, self.was_reset = {}, {}, False
            case RunStarted():
                self._run = event.first_run_id
                self.starts[self._run] = Start(event)
            case UserMessageReceived(task=True) if self._run in self.starts:
                self.starts[self._run] = Start(self.starts[self._run].event, event.content)
            case RunReset():
                self.was_reset = True
            case SubagentStarted():
                self.named[event.thread] = _named(before, event)
            case SubagentEnded():
                self.ended[event.thread] = event
            case _:
                pass
        if after.outcome:
            self.ends[self._run] = _end(after, event, self.ends.get(self._run))


def _named(state: RunState, event: SubagentStarted) -> Named:
    """Return how a sub-agent has to begin that starts in this state."""
    call, origin = state.calls.get(event.number), state.origin
    above = origin.lineage.path if origin.lineage else ()
    given = read_run_agent(call.call)
    key = state.effect_key(event.number, call.call)
    own = (state.spec.policy,) if state.spec else ()
    return Named(
        started=event,
        lineage=((*above, state.thread), event.number, key, deepest(state)),
        depth=origin.depth + 1,
        policies=tuple(policy.hash for policy in (*origin.policies, *own)),
        task=given.task if given else "",
        clipped=min(limits_of(state).tool_result_chars, REPORT_CHARS),
    )


def _end(state: RunState, event: AgentEvent, before: End | None) -> End:
    outcome, text = state.outcome, state.result
    if isinstance(event, RunFinished) and event.outcome == "failed":
        text = f"{event.cause}: {event.result}"
    elif before:
        text = before.text
    return End(
        str(outcome),
        text,
        state.steps.count,
        state.usage,
        least(state.context.trust, "agent"),
        tree_cost(state.account),
    )


def difference(parent: Family, child: Family, thread: str) -> str:
    """Return the first difference between what a log says of a sub-agent and the sub-agent's own log; empty for none.

    Args:
        parent: Of the log that started it.
        child: Of its own log.
        thread: Its thread.
    """
    named = parent.named.get(thread)
    if named is None:
        return "the log above it has started no such sub-agent"
    for what in _beginnings(named, child, compare_policies=not parent.was_reset):
        return f"its run did not begin as the log above it has it: {what}"
    if (ended := parent.ended.get(thread)) and not child.was_reset:
        for what in _ends(named, ended, child.ends.get(named.started.run_id)):
            return f"its run did not end as the log above it has it: {what}"
    return ""


def _beginnings(named: Named, child: Family, *, compare_policies: bool) -> Iterator[str]:
    start = child.starts.get(named.started.run_id)
    if start is None:
        yield f"the log has no run {named.started.run_id}"
        return
    event, lineage = start.event, start.event.lineage
    if lineage is None or not event.sealed:
        yield "it claims no parent"
        return
    if (lineage.path, lineage.number, lineage.key, lineage.deepest) != named.lineage:
        yield "it has another lineage"
    if event.agent != named.started.agent:
        yield f"it is of agent {event.agent!r}, and the call is for {named.started.agent!r}"
    if event.depth != named.depth:
        yield f"it has depth {event.depth}, and not {named.depth}"
    if compare_policies and tuple(policy.hash for policy in event.policies) != named.policies:
        yield "other policies were handed down to it"
    if start.task != named.task:
        yield "it has another task"


def _ends(named: Named, ended: SubagentEnded, end: End | None) -> Iterator[str]:
    if ended.status not in _COMPARED:
        return
    if end is None or end.outcome != ended.status:
        yield f"there it is {ended.status}, and here {end.outcome if end else 'it has not ended'}"
        return
    if not any(words_digest(words) == ended.said for words in _words(named, ended, end)):
        yield "the digest of what it has said is another one"
    if ended.status != "completed":
        return
    if (ended.steps, ended.usage, ended.trust) != (end.steps, end.usage, end.trust):
        yield "its steps, tokens or trust level are other ones"
    if ended.cost and ended.cost != end.cost:
        yield "what its tree has cost is not what its account has"


def _words(named: Named, ended: SubagentEnded, end: End) -> Iterator[str]:
    """Yield what the parent may have read: it clips long answers, to how much depends on how it asked for them."""
    started = named.started
    child = Child(
        number=started.number, thread=started.thread, agent=started.agent, run_id=started.run_id, since=started.at
    )
    text = NO_ANSWER if ended.status == "cancelled" else end.text
    shares = (REPORT_CHARS // count for count in range(1 + REPORT_CHARS // END_CHARS, 1_001))
    for limit in (named.clipped, END_CHARS, *(share for share in shares if share < len(text))):
        report = ChildReport(
            number=started.number, status=ended.status, text=clip(text, limit), steps=ended.steps, cost=ended.cost
        )
        yield report_words(child, report)

"""Compares the logs of a tree of runs: a parent's log must agree with the log of each sub-agent.

1. The run began as the parent's call required: with its task and agent, under the policies of all runs above, with the
   allowance that was reserved for it, and with the constraints, the trust level and the requesters that the parent had
   at some moment between the start of the call and that of the run.
2. The run ended as the parent recorded it, and as its calls read it.

After a reset of a run, its log is another branch than the one that the other log refers to: then beginnings or ends are
not compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.core.budget.account import Account
from holdfast.core.budget.budget import MICRO, LimitName
from holdfast.core.budget.tree import SHARED, TreeCost, allowance_name, tree_cost
from holdfast.core.lineage import Lineage
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentEvent,
    RunFinished,
    RunForked,
    RunReset,
    RunStarted,
    SubagentEnded,
    SubagentStarted,
    UserMessageReceived,
)
from holdfast.core.run.contracts.subagents import NO_ANSWER, SubagentReport
from holdfast.core.run.state.constraints import Constraint
from holdfast.core.run.state.state import RunState
from holdfast.core.run.state.subagents import Child
from holdfast.core.run.waits.subagents import (
    END_CHARS,
    REPORT_CHARS,
    deepest,
    limits_of,
    report_text,
    text_digest,
    unstarted_calls,
)
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.tools.subagents import read_run_agent
from holdfast.core.transcript.transcript import clip
from holdfast.core.trust import Trust, least

_COMPARED = ("completed", "failed", "cancelled")
"""Ends that are also in the sub-agent's log; others were detected in Temporal."""


@dataclass(frozen=True)
class NamedSubagent:
    """A sub-agent, according to its parent's log."""

    started: SubagentStarted
    lineage: tuple[tuple[str, ...], int, str, int]
    """The threads above it, the number and the effect key of the call, and the greatest depth of its tree."""
    depth: int
    policies: tuple[str, ...]
    """Digests of the policies of the runs above it."""
    task: str
    clipped: int
    """The most characters of its answer that the parent reads."""
    allowance: dict[LimitName, int] | None
    """The amounts reserved for it, in whole units, without time; None if its parent has no budget."""
    inheritances: "tuple[Inheritance, ...]"
    """The possible inheritances from its parent."""


@dataclass(frozen=True)
class Inheritance:
    """The context that a run passes to a sub-agent that it starts at this moment."""

    constraints: tuple[InheritedConstraint, ...]
    trust: Trust
    requesters: tuple[str, ...]
    unproven: bool
    """Whether some requesters are unknown."""
    revoked_keys: tuple[str, ...]
    seconds: int | None
    """The remaining time of the budget; None if it does not limit time."""


@dataclass
class PendingStarts:
    """The contexts that a run may pass to the sub-agents of its calls that wait for a start.

    The log does not record the moment at which a start was ordered: it lies between two events, and the context is that
    of the state in between.
    """

    states: list[Inheritance] = field(default_factory=list)
    """The context of each state since the first of these calls began, without consecutive duplicates."""
    since: dict[int, int] = field(default_factory=dict)
    """Number of such a call → the index in `states` at which it began."""
    _kept: tuple[Constraint, ...] = ()
    _handed: tuple[InheritedConstraint, ...] = ()

    def observe(self, state: RunState) -> None:
        """Record the context of the state after an event."""
        numbers = [call.number for call in unstarted_calls(state)] if state.spec and state.spec.subagents else []
        if not numbers:
            self.states, self.since = [], {}
            return
        inheritance = self._inheritance(state)
        if not self.states or self.states[-1] != inheritance:
            self.states.append(inheritance)
        last = len(self.states) - 1
        self.since = {number: self.since.get(number, last) for number in numbers}

    def for_call(self, number: int) -> tuple[Inheritance, ...]:
        """Return the contexts that may have been passed to the sub-agent of a call."""
        return tuple(self.states[self.since[number] :]) if number in self.since else ()

    def _inheritance(self, state: RunState) -> Inheritance:
        kept = state.constraints.active(state.updated_at).kept
        if kept != self._kept:
            self._kept, self._handed = kept, state.constraints.to_propagate(state.updated_at)
        account, authority = state.account, state.authority
        return Inheritance(
            constraints=self._handed,
            trust=least("agent", state.context.trust),
            requesters=authority.requesters,
            unproven=authority.requesters_unproven or authority.requesters_left_out,
            revoked_keys=authority.revoked_keys,
            seconds=max(1, account.left("seconds") // MICRO) if "seconds" in account.limits else None,
        )


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
    """The runs of one thread, and the sub-agents that it started, according to its log."""

    starts: dict[str, Start] = field(default_factory=dict)
    """Starts by first run id."""
    ends: dict[str, End] = field(default_factory=dict)
    named: dict[str, NamedSubagent] = field(default_factory=dict)
    """Its sub-agents, by thread."""
    ended: dict[str, SubagentEnded] = field(default_factory=dict)
    was_reset: bool = False
    _run: str = ""
    _waiting: PendingStarts = field(default_factory=PendingStarts)

    def take(self, before: RunState, event: AgentEvent, after: RunState) -> None:
        """Add the next event.

        Args:
            before: The state before it.
            event: The event.
            after: The state after it.
        """
        match event:
            case RunForked():  # earlier sub-agents belong to the original
                self.named, self.ended, self.was_reset = {}, {}, False
            case RunStarted():
                self._run = event.first_run_id
                self.starts[self._run] = Start(event)
            case UserMessageReceived(task=True) if self._run in self.starts:
                self.starts[self._run] = Start(self.starts[self._run].event, event.content)
            case RunReset():
                self.was_reset = True
            case SubagentStarted():
                self.named[event.thread] = _named(before, event, self._waiting.for_call(event.number))
            case SubagentEnded():
                self.ended[event.thread] = event
            case _:
                pass
        self._waiting.observe(after)
        if after.outcome:
            self.ends[self._run] = _end(after, event, self.ends.get(self._run))


def _named(state: RunState, event: SubagentStarted, inheritances: tuple[Inheritance, ...]) -> NamedSubagent:
    """Return the expected beginning of a sub-agent that starts in this state."""
    call, origin = state.calls.get(event.number), state.origin
    above = origin.lineage.path if origin.lineage else ()
    arguments = read_run_agent(call.call)
    key = state.effect_key(event.number, call.call)
    own = (state.spec.policy,) if state.spec else ()
    return NamedSubagent(
        started=event,
        lineage=((*above, state.thread), event.number, key, deepest(state)),
        depth=origin.depth + 1,
        policies=tuple(policy.hash for policy in (*origin.policies, *own)),
        task=arguments.task if arguments else "",
        clipped=min(limits_of(state).tool_result_chars, REPORT_CHARS),
        allowance=_allowance(state.account, event.number),
        inheritances=inheritances,
    )


def _allowance(account: Account, number: int) -> dict[LimitName, int] | None:
    reserved = account.reserved.get(allowance_name(number))
    return {name: reserved.of(name) for name in SHARED if name in account.limits} if reserved else None


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
    """Return the first contradiction between a parent's log and a sub-agent's log; empty if there is none.

    Args:
        parent: The findings about the parent's log.
        child: The findings about the sub-agent's log.
        thread: The sub-agent's thread.
    """
    named = parent.named.get(thread)
    if named is None:
        return "the log above it has started no such sub-agent"
    for reason in _beginnings(named, child, was_reset=parent.was_reset):
        return f"its run did not begin as the log above it has it: {reason}"
    if (ended := parent.ended.get(thread)) and not child.was_reset:
        for reason in _ends(named, ended, child.ends.get(named.started.run_id)):
            return f"its run did not end as the log above it has it: {reason}"
    return ""


def _beginnings(named: NamedSubagent, child: Family, *, was_reset: bool) -> Iterator[str]:
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
    if not was_reset and tuple(policy.hash for policy in event.policies) != named.policies:
        yield "other policies were handed down to it"
    if start.task != named.task:
        yield "it has another task"
    yield from _allowances(named, lineage, was_reset=was_reset)
    if not was_reset:  # it may have been started in the branch that the reset abandoned
        yield from _inherited(named.inheritances, event, lineage)


def _allowances(named: NamedSubagent, lineage: Lineage, *, was_reset: bool) -> Iterator[str]:
    """Yield the differences between allowance and reservation; the sub-agent's own log must keep to the allowance.

    After a reset, a sub-agent from before may have another allowance, which the reservation must cover.
    """
    allowance, reserved = lineage.allowance, named.allowance
    units = {name: amount for name, amount in (allowance.units if allowance else {}).items() if name != "seconds"}
    if not was_reset and ((allowance is None) is not (reserved is None) or units != (reserved or {})):
        yield "its allowance is not what was reserved for it"
    elif any(name not in units or units[name] > amount for name, amount in (reserved or {}).items()):
        yield "its allowance is more than what was reserved for it"
    left = [each.seconds for each in named.inheritances if each.seconds is not None]
    seconds = allowance.seconds if allowance else None
    if not was_reset and (bool(left) is not bool(seconds) or (seconds and not min(left) <= seconds <= max(left))):
        yield "the time of its allowance is not what the budget had left"


def _inherited(inheritances: tuple[Inheritance, ...], event: RunStarted, lineage: Lineage) -> Iterator[str]:
    if not any(event.constraints == each.constraints for each in inheritances):
        yield "other constraints were handed down to it"
    if not any(event.trust == each.trust for each in inheritances):
        yield f"it has trust level {event.trust!r}, which the run above did not have"
    requesters = lineage.requesters, lineage.requesters_unproven
    if not any(requesters == (each.requesters, each.unproven) for each in inheritances):
        yield "others had asked the run above"
    if not any(lineage.revoked_keys == each.revoked_keys for each in inheritances):
        yield "other keys were revoked in the run above"


def _ends(named: NamedSubagent, ended: SubagentEnded, end: End | None) -> Iterator[str]:
    if ended.status not in _COMPARED:
        return
    if end is None or end.outcome != ended.status:
        yield f"there it is {ended.status}, and here {end.outcome if end else 'it has not ended'}"
        return
    if not any(text_digest(words) == ended.said for words in _words(named, ended, end)):
        yield "the digest of what it has said is another one"
    if ended.status != "completed":
        return
    # Without steps, it was read from the permanent record, because Temporal no longer had it: with web trust.
    own = (end.steps, end.usage, end.trust) if ended.steps else (0, Usage(), "web")
    if (ended.steps, ended.usage, ended.trust) != own:
        yield "its steps, tokens or trust level are other ones"
    if ended.cost and ended.cost != end.cost:
        yield "what its tree has cost is not what its account has"


def _words(named: NamedSubagent, ended: SubagentEnded, end: End) -> Iterator[str]:
    """Yield the texts that the parent may have read: it clips long answers, and the limit depends on the request."""
    started = named.started
    child = Child(
        number=started.number, thread=started.thread, agent=started.agent, run_id=started.run_id, since=started.at
    )
    text = NO_ANSWER if ended.status == "cancelled" else end.text
    shares = (REPORT_CHARS // count for count in range(1 + REPORT_CHARS // END_CHARS, 1_001))
    for limit in (named.clipped, END_CHARS, *(share for share in shares if share < len(text))):
        report = SubagentReport(
            number=started.number, status=ended.status, text=clip(text, limit), steps=ended.steps, cost=ended.cost
        )
        yield report_text(child, report)

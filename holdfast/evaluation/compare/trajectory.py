"""The course of a run: the calls of each step, how they were judged and ended, and what the run came to.

Recordings and plays are both reduced to a course, so the rest of their logs does not count.
"""

from collections.abc import Iterable
from typing import Literal

from holdfast.core.authority.policy import VerdictKind
from holdfast.core.base.models import Frozen
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    ContextCompacted,
    LLMReplied,
    ReplyRejected,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    ToolStatus,
    VerdictGiven,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.diff import ComparedCost
from holdfast.core.tools.effects import Effect

Ended = Literal["completed", "failed", "cancelled", "blocked", "asked", "open"]
"""Answered, also where the run stays open for a message · failed · cancelled · waits for somebody to fix a cause ·
waits for a decision · anything else: its log ends while something is under way."""


class Call(Frozen):
    """A tool call of the LLM."""

    tool: str
    arguments: str
    """Canonical JSON, as the LLM's call was judged."""
    digest: str
    """Of tool and arguments."""
    effect: Effect = Effect.UNSAFE
    verdict: VerdictKind | Literal[""] = ""
    """Empty for a call that could not be judged."""
    rule: str = ""
    status: ToolStatus | Literal["open"] = "open"
    ran: str = ""
    """The digest of the call that ran, whose arguments a person may have changed; empty where none did."""

    @property
    def refused(self) -> bool:
        """Whether it was denied or could not be made, or nobody had decided about it when the run was cancelled."""
        undecided = self.status in ("open", "cancelled") and self.verdict in ("ask", "deny")
        return self.status in ("denied", "invalid") or (not self.ran and (undecided or self.status == "cannot"))


class Course(Frozen):
    """What a run did, and what it came to."""

    steps: tuple[tuple[Call, ...], ...] = ()
    """The calls of each LLM reply, in its order."""
    ended: Ended = "open"
    result: str = ""
    """The last answer, or why the run failed or is blocked."""
    cause: str = ""
    """Why it is blocked, in a word; empty for a run that is not."""
    costs: tuple[ComparedCost, ...] = ()
    """Token counts by LLM."""
    llm_ms: int = 0
    """How long its LLM calls took together, in milliseconds."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls, in their order."""
        return tuple(call for step in self.steps for call in step)


def course_of(events: Iterable[AgentEvent]) -> Course:
    """Return the course of a thread.

    Args:
        events: All events of its log.
    """
    state, steps, places = RunState(), list[list[Call]](), dict[int, tuple[int, int]]()
    effects, usage, duration = dict[str, Effect](), dict[str, Usage](), 0

    def change(number: int, **given: object) -> None:
        if number in places:
            step, index = places[number]
            steps[step][index] = steps[step][index].model_copy(update=given)

    for event in events:
        state = evolve(state, event)
        match event:
            case AgentLoaded(spec=spec):
                effects |= {tool.name: tool.effect for tool in spec.tools}
            case LLMReplied():
                steps.append([])
                duration += event.duration_ms
                usage[event.llm] = usage.get(event.llm, Usage()) + event.usage
            case ContextCompacted() | ReplyRejected():
                llm = state.spec.llm if state.spec else ""
                usage[llm] = usage.get(llm, Usage()) + event.usage
            case ToolCallRequested(number=number, call=call) if not event.own and steps:
                places[number] = len(steps) - 1, len(steps[-1])
                effect = effects.get(call.name, Effect.UNSAFE)
                steps[-1].append(Call(tool=call.name, arguments=call.arguments, digest=call.digest, effect=effect))
            case VerdictGiven(number=number):
                change(number, verdict=event.verdict, rule=event.rule)
            case ToolCallStarted(number=number):
                change(number, ran=state.calls.get(number).call.digest)
            case ToolCallFinished(number=number):
                change(number, status=event.status)
            case _:
                pass
    return Course(
        steps=tuple(map(tuple, steps)),
        ended=_ended(state),
        result=state.blocked.message if state.blocked else state.result,
        cause=state.blocked.cause if state.blocked else "",
        costs=tuple(ComparedCost(llm=llm, usage=spent) for llm, spent in usage.items() if spent != Usage()),
        llm_ms=duration,
    )


def _ended(state: RunState) -> Ended:
    if state.outcome:
        return "open" if state.outcome == "moved" else state.outcome
    if state.blocked:
        return "blocked"
    if state.awaits_message:
        return "completed"
    return "asked" if state.authority.requests and not state.running_calls else "open"

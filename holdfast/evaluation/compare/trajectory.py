"""The trajectory of a run: the calls of each step, their verdicts and results, and the outcome of the run.

Recordings and reruns are both reduced to a trajectory, so the rest of their logs is not compared.
"""

from collections.abc import Iterable
from typing import Literal

from holdfast.core.authority.policy import VerdictKind
from holdfast.core.base.models import Frozen
from holdfast.core.llm.messages import Usage
from holdfast.core.log import events as ev
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.diff import ComparedCost
from holdfast.core.tools.effects import Effect

Ended = Literal["completed", "failed", "cancelled", "blocked", "asked", "open"]
"""Answered, even if the run stays open for a message · failed · cancelled · waits for a person to fix a cause ·
waits for a decision · anything else: its log ends while something is under way."""


class Call(Frozen):
    """A tool call of the LLM."""

    tool: str
    arguments: str
    """Canonical JSON, as judged."""
    digest: str
    """Of tool and arguments."""
    effect: Effect = Effect.UNSAFE
    verdict: VerdictKind | Literal[""] = ""
    """Empty if the call could not be judged."""
    rule: str = ""
    status: ev.ToolStatus | Literal["open"] = "open"
    ran: str = ""
    """The digest of the call that ran, whose arguments a person may have changed; empty if none ran."""

    @property
    def refused(self) -> bool:
        """Whether it was denied, could not be made, or was still undecided when the run was cancelled."""
        undecided = self.status in ("open", "cancelled") and self.verdict in ("ask", "deny")
        return self.status in ("denied", "invalid") or (not self.ran and (undecided or self.status == "cannot"))


class Trajectory(Frozen):
    """The calls of a run, its outcome and its cost."""

    steps: tuple[tuple[Call, ...], ...] = ()
    """The calls of each LLM reply, in its order."""
    ended: Ended = "open"
    result: str = ""
    """The last answer, or the reason why the run failed or is blocked."""
    cause: str = ""
    """The cause of the block; empty if the run is not blocked."""
    costs: tuple[ComparedCost, ...] = ()
    """Token counts by LLM."""
    llm_ms: int = 0
    """The total duration of its LLM calls, in milliseconds."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls, in their order."""
        return tuple(call for step in self.steps for call in step)


def trajectory_of(events: Iterable[ev.AgentEvent]) -> Trajectory:
    """Return the trajectory of a thread.

    Args:
        events: All events of its log.
    """
    state, steps, slots = RunState(), list[list[Call]](), dict[int, tuple[int, int]]()
    effects, usage, duration = dict[str, Effect](), dict[str, Usage](), 0

    def change(number: int, **fields: object) -> None:
        if number in slots:
            step, index = slots[number]
            steps[step][index] = steps[step][index].model_copy(update=fields)

    for event in events:
        state = evolve(state, event)
        match event:
            case ev.AgentLoaded(spec=spec):
                effects |= {tool.name: tool.effect for tool in spec.tools}
            case ev.LLMReplied():
                steps.append([])
                duration += event.duration_ms
                usage[event.llm] = usage.get(event.llm, Usage()) + event.usage
            case ev.ContextCompacted() | ev.ReplyRejected():
                llm = state.spec.llm if state.spec else ""
                usage[llm] = usage.get(llm, Usage()) + event.usage
            case ev.ToolCallRequested(number=number, call=call) if not event.own and steps:
                slots[number] = len(steps) - 1, len(steps[-1])
                effect = effects.get(call.name, Effect.UNSAFE)
                steps[-1].append(Call(tool=call.name, arguments=call.arguments, digest=call.digest, effect=effect))
            case ev.VerdictGiven(number=number):
                change(number, verdict=event.verdict, rule=event.rule)
            case ev.ToolCallStarted(number=number):
                change(number, ran=state.calls.get(number).call.digest)
            case ev.ToolCallFinished(number=number):
                change(number, status=event.status)
            case _:
                pass
    return Trajectory(
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

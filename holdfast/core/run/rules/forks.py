"""What is different in a run of a forked thread. Pure functions.

1. A fork begins with `run_forked`, then ends what was open in the original thread, then starts like any run. Nothing
   that people decided for the original lets anything run here.
2. Until an approver lifts that (`lift` with number 0), every call with an effect requires approval, whatever the policy
   allows, and expiry never approves one. So does every sub-agent, whose effects are judged in its own thread. Reads are
   judged by the policy.
3. A policy that is given with a fork judges its calls beside its agent's: it can forbid and ask, and allows nothing.
"""

from holdfast.core.authority.policy import Policy, Verdict
from holdfast.core.log.events import AgentEvent, RunForked, ToolCallFinished
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.rules.policies import asked_of_all
from holdfast.core.run.state.features import FORKS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.tools.subagents import RUN_AGENT

NOT_CONTINUED = (
    "Cancelled: this conversation was forked from another one while this call was open, and does not have its outcome."
)
"""What the LLM reads about a call that was open at the fork."""

ANSWERED = "the agent had answered there, and nothing follows: give the fork a message, or fork it at an earlier event"
"""Why a fork needs a message."""

MOST_GIVEN = 10
"""Policies that are given with a fork and with those that it is a fork of, at most: each judges every call."""

WITHIN_REPLY = "the calls of the agent's reply come after that event: fork it at the last of them"
"""Why a fork cannot begin between a reply and the requests of its calls: the LLM could not be sent such a reply."""


def forked_events(
    past: RunState,
    point: ForkPoint,
    *,
    thread: str,
    first_run_id: str,
    by: str,
    level: int,
    imported: ImportPoint | None = None,
    llm: str = "",
    policies: tuple[Policy, ...] = (),
) -> list[AgentEvent]:
    """Return the events with which a fork begins: that it is one, and the end of each call that is open there.

    Args:
        past: The state of the original thread after the event at which it is forked.
        point: That event.
        thread: The fork's id.
        first_run_id: Temporal's first execution run id.
        by: Who forks it.
        level: The feature level of the start.
        imported: The file from which the original's events come; None where it is a thread of this place.
        llm: The LLM of its agents; empty for their own.
        policies: Policies that judge its calls beside its agent's.
    """
    forked = RunForked(
        thread=thread,
        first_run_id=first_run_id,
        point=point,
        origin=past.thread,
        by=by,
        imported=imported,
        features=max(level, FORKS, past.features),
        llm=llm,
        policies=policies,
    )
    ended = (
        ToolCallFinished(number=call.number, status="cancelled", content=NOT_CONTINUED)
        for call in past.calls.current
        if call.phase != "finished"
    )
    return [forked, *ended]


def refuse_fork(point: ForkPoint, *, thread: str, position: int, head: str) -> str:
    """Return why a fork may not begin with the events that were loaded; empty if it may.

    Args:
        point: Where the fork leaves its original.
        thread: The fork's id.
        position: How many events were loaded.
        head: The digest of the last of them.
    """
    if point.thread == thread:
        return "a thread cannot be forked from itself: choose another id"
    if (position, head) != (point.position + 1, point.head):
        return f"the events of {point.thread} up to {point.position} are not those that the fork was started for"
    return ""


def refuse_policies(past: RunState, given: tuple[Policy, ...], *, kept: tuple[Policy, ...]) -> str:
    """Return why a fork may not be given these policies; empty if it may.

    Args:
        past: The original's state.
        given: Those that the start gives.
        kept: That of the original's agent, where it is kept.
    """
    before = past.fork.policies if past.fork else ()
    if len({*before, *(policy.hash for policy in (*kept, *given))}) > MOST_GIVEN:
        return (
            f"too many policies were given with forks, one after the other: at most {MOST_GIVEN}; fork an earlier one"
        )
    return ""


def judge_in_fork(state: RunState, tool: ToolSpec, verdict: Verdict) -> Verdict:
    """Return the verdict on a call in a thread that may be a fork: its effects ask first until that is lifted.

    Args:
        state: The run's.
        tool: The tool.
        verdict: That of the policies.
    """
    if state.fork is None or state.fork.lifted_by is not None or verdict.verdict == "deny":
        return verdict
    if tool.effect is Effect.READ and tool.name != RUN_AGENT:
        return verdict
    if verdict.verdict == "allow":
        reason = f"this thread was forked from {state.fork.point.thread}: its effects ask first until that is lifted"
        verdict = asked_of_all(state, rule="a fork asks first", reason=reason)
    return verdict.denied_on_expiry()

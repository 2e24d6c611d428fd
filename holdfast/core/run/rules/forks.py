"""The rules for a run of a forked thread: it repeats no effect of the original, and its own ask first. Pure functions.

1. A fork begins with `run_forked`, then ends the calls that were open in the original thread, then starts like any run.
   No decision about the original lets anything run in the fork.
2. Until an approver lifts this (`lift` with number 0), every call with an effect requires approval, even if the policy
   allows it, and expiry never approves one. So does every sub-agent, whose effects are judged in its own thread. The
   policy alone judges reads.
3. A policy that is given with a fork judges its calls in addition to the agent's: it can deny and ask, but not allow.
"""

from holdfast.core.authority.policy import Policy, Verdict
from holdfast.core.log.events import AgentEvent, RunForked, ToolCallFinished
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.rules.authority import ask_all_policies
from holdfast.core.run.state.features import FORKS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.tools.subagents import RUN_AGENT

NOT_CONTINUED = (
    "Cancelled: this conversation was forked from another one while this call was open, and does not have its outcome."
)
"""The result, for the LLM, of a call that was open at the fork."""

ANSWERED = "the agent had answered there, and nothing follows: give the fork a message, or fork it at an earlier event"
"""Why a fork needs a message."""

MAX_FORK_POLICIES = 10
"""Maximum policies that are given with a fork and the forks that it stems from: each judges every call."""

WITHIN_REPLY = "the calls of the agent's reply come after that event: fork it at the last of them"
"""Why a fork cannot begin between a reply and the requests of its calls: a transcript cannot end with such a reply."""


def fork_events(
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
    """Return the events with which a fork begins: the fork itself, and the end of each call that was open.

    Args:
        past: The state of the original thread at the fork.
        point: The event after which it is forked.
        thread: The fork's id.
        first_run_id: Temporal's first execution run id.
        by: The person who forks it.
        level: The feature level of the start.
        imported: The file with the original's events; None for a thread of this cluster.
        llm: The LLM that replaces its agents' own; empty for none.
        policies: Policies that judge its calls in addition to its agent's.
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
    """Return why a fork may not begin with the loaded events; empty if it may.

    Args:
        point: The point at which the fork leaves its original.
        thread: The fork's id.
        position: How many events were loaded.
        head: The digest of the last of them.
    """
    if point.thread == thread:
        return "a thread cannot be forked from itself: choose another id"
    if (position, head) != (point.position + 1, point.head):
        return f"the events of {point.thread} up to {point.position} are not those that the fork was started for"
    return ""


def refuse_policies(past: RunState, policies: tuple[Policy, ...], *, kept: tuple[Policy, ...]) -> str:
    """Return why a start may not give these policies to a fork; empty if it may.

    Args:
        past: The state of the original thread.
        policies: The policies that the start gives.
        kept: The policy of the original's agent, if the fork keeps it.
    """
    before = past.fork.policies if past.fork else ()
    if len({*before, *(policy.hash for policy in (*kept, *policies))}) > MAX_FORK_POLICIES:
        many = "too many policies were given with forks, one after the other"
        return f"{many}: at most {MAX_FORK_POLICIES}; fork an earlier one"
    return ""


def judge_in_fork(state: RunState, tool: ToolSpec, verdict: Verdict) -> Verdict:
    """Return the verdict on a call in a thread that may be a fork: effects require approval until that is lifted.

    Args:
        state: The run's state.
        tool: The tool.
        verdict: The verdict of the policies.
    """
    if state.fork is None or state.fork.lifted_by is not None or verdict.verdict == "deny":
        return verdict
    if tool.effect is Effect.READ and tool.name != RUN_AGENT:
        return verdict
    if verdict.verdict == "allow":
        reason = f"this thread was forked from {state.fork.point.thread}: its effects ask first until that is lifted"
        verdict = ask_all_policies(state, rule="a fork asks first", reason=reason)
    return verdict.denied_on_expiry()

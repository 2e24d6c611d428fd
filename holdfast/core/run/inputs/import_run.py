"""Continue an imported thread as a live run. Pure functions.

The signer of the file vouches for the past; this cluster decides what may happen next.

1. The run uses this cluster's agent of the same name, with its policy and approvers. The recorded policy judges every
   call as well, like the policy of a parent run: the stricter verdict counts.
2. Decisions made elsewhere count if they are signed with a key that this cluster's policy lists. The run asks people
   again about all others: approvals that no call has used, votes, remembered rules. Unsigned delegations end.
3. A request stays open under its id if the agent is identical. Under another agent, it is replaced by a new request.
4. An effect that was under way is not repeated: its outcome is read from the ledger's row under its own key, or by the
   tool's check. If the outcome stays unknown, people are asked.
5. If the file is signed, the LLM's context keeps the trust level of the log; otherwise it is trusted like the web. No
   personal memory is recalled, because the identity of the person who gave the task is not proven here.
"""

from datetime import datetime

from holdfast.core.log.events import AgentEvent, RunImported, ToolCallFinished
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.fold.imports import imported_policies
from holdfast.core.run.inputs.move import immovable
from holdfast.core.run.rules.approval_requests import ask_again, asks
from holdfast.core.run.rules.verdicts import denial_of, policy_verdict
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.polling import poll_problem
from holdfast.core.tools.effects import Effect

MOST_POLICIES = 8
"""Maximum number of policies of other clusters and of parent runs that judge the calls of a run."""

READ_CANCELLED = "Cancelled: this run was moved to another place while the call was under way. Call it again."
"""The result of a read-only call that was under way, for the LLM."""

WAIT_ENDED = "The wait ended: this run was moved to another place, where the agent may not wait like this."
"""The result of a wait that this cluster's policy forbids, for the LLM."""


def refuse_import(point: ImportPoint, past: RunState, *, thread: str, position: int, head: str) -> str:
    """Return why a run may not continue with the loaded events; empty if it may.

    Args:
        point: The end of the imported file.
        past: The loaded state.
        thread: The workflow id.
        position: The number of loaded events.
        head: The digest of the last of them.
    """
    if (position, head) != (point.position + 1, point.head):
        return f"the record of {thread} does not end with event {point.position} of the imported file: import it again"
    return refuse_state(past, thread=thread)


def refuse_state(past: RunState, *, thread: str) -> str:
    """Return why a thread with this final state cannot be imported as a live run; empty if it can."""
    if past.thread != thread:
        return f"the log belongs to thread {past.thread!r}, and not to {thread!r}"
    if why := immovable(past):
        return f"{thread} cannot continue here: {why}"
    if past.outcome is None:
        return (
            f"{thread} was open where it was exported, and may be running there: end it there with `move`, which "
            "exports it, or import it with --fork"
        )
    if (count := len(imported_policies(past))) > MOST_POLICIES:
        return f"{count} policies judge its calls, and {MOST_POLICIES} may: fork it (`import --fork`)"
    return ""


def import_event(point: ImportPoint, *, run_id: str, first_run_id: str, by: str, level: int) -> RunImported:
    """Return the event that continues a thread on this cluster."""
    return RunImported(run_id=run_id, first_run_id=first_run_id, point=point, by=by, features=level)


def on_import_loaded(state: RunState, *, at: datetime) -> list[AgentEvent]:
    """Return the events that follow when this cluster's agent is loaded: its policy judges open calls.

    Args:
        state: The state with that agent.
        at: Now.
    """
    assert state.spec is not None
    if state.outcome or state.imported is None:
        return []
    same = state.imported.spec_hash == state.spec_hash
    events: list[AgentEvent] = []
    opened = 0
    for call in state.calls.current:
        wait, tool = state.dormancy.find(call.number), state.spec.tool(call.call.name)
        if call.phase in ("allowed", "previewing") or (call.phase == "awaiting_approval" and not same):
            new_events = ask_again(state, call, at=at, ahead=opened)
            opened += any(map(asks, new_events))
            events += new_events
        elif wait and not wait.for_task and not same:
            verdict = policy_verdict(state, call.call)
            problem = poll_problem(state.spec, wait.trigger)
            if problem or verdict.verdict != "allow":
                content = f"{WAIT_ENDED} {problem or denial_of(verdict)}"
                events.append(ToolCallFinished(number=call.number, status="denied", content=content))
        elif call.phase == "orphaned" and tool and tool.effect is Effect.READ:
            events.append(ToolCallFinished(number=call.number, status="cancelled", content=READ_CANCELLED))
    return events

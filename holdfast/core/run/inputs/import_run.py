"""What is different in a run that continues an imported thread. Pure functions.

The file's signer vouches for what happened; this place decides what may happen.

1. The agent is the one of that name in this place, with its policy, which says who decides. The recorded policy judges
   every call, too, as that of an agent above does: the stricter verdict counts.
2. What people decided elsewhere counts if it is signed with a key that this place's policy has. All else is asked
   again: approvals that no call has used up, votes, remembered rules. Unsigned delegations end.
3. A request stays open under its id where the agent is the very same. Under another agent, it is asked anew.
4. An effect that was under way is looked up, by the ledger's row under its own key and the tool's check, and is not
   caused. Where its outcome stays unknown, people are asked.
5. What the LLM has read is as trusted as the log says, where the file is signed; else it is trusted like the web.
   Nobody's own memory is recalled: who gave the task is not proven here.
"""

from datetime import datetime

from holdfast.core.log.events import AgentEvent, ApprovalRequested, RunImported, ToolCallFinished
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.fold.imports import imported_policies
from holdfast.core.run.inputs.move import immovable
from holdfast.core.run.rules.approval_requests import ask_again
from holdfast.core.run.rules.verdicts import denial_of, policy_verdict
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.polling import poll_problem
from holdfast.core.tools.effects import Effect

MOST_POLICIES = 8
"""Policies of other places and of agents above that judge the calls of a run."""

READ_CANCELLED = "Cancelled: this run was moved to another place while the call was under way. Call it again."
"""What the LLM reads about a call without an effect that was under way."""

WAIT_ENDED = "The wait ended: this run was moved to another place, where the agent may not wait like this."
"""What the LLM reads about a wait that the policy of this place does not allow."""


def refuse_import(point: ImportPoint, past: RunState, *, thread: str, position: int, head: str) -> str:
    """Return why a run may not continue with the events that were loaded; empty if it may.

    Args:
        point: What was imported.
        past: The state that was loaded.
        thread: The workflow id.
        position: How many events were loaded.
        head: The digest of the last of them.
    """
    if (position, head) != (point.position + 1, point.head):
        return f"the record of {thread} does not end with event {point.position} of the imported file: import it again"
    return refuse_state(past, thread=thread)


def refuse_state(past: RunState, *, thread: str) -> str:
    """Return why a thread cannot be imported as a live run, by the state at its end; empty if it can."""
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
    """Return the event that continues a thread here."""
    return RunImported(run_id=run_id, first_run_id=first_run_id, point=point, by=by, features=level)


def on_entered(state: RunState, *, at: datetime) -> list[AgentEvent]:
    """Return the events that follow when the agent of this place is loaded: open calls are judged by its policy.

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
        if call.phase == "allowed" or (call.phase == "awaiting_approval" and not same):
            anew = ask_again(state, call, at=at, ahead=opened)
            opened += any(isinstance(event, ApprovalRequested) for event in anew)
            events += anew
        elif wait and not same:
            verdict = policy_verdict(state, call.call)
            problem = poll_problem(state.spec, wait.trigger)
            if problem or verdict.verdict != "allow":
                content = f"{WAIT_ENDED} {problem or denial_of(verdict)}"
                events.append(ToolCallFinished(number=call.number, status="denied", content=content))
        elif call.phase == "orphaned" and tool and tool.effect is Effect.READ:
            events.append(ToolCallFinished(number=call.number, status="cancelled", content=READ_CANCELLED))
    return events

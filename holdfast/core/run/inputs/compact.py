"""Compact the context at a person's request, with the LLM's summary or the person's own. Pure functions.

1. Anybody who reaches the run may ask for a compaction: the LLM writes the summary, and nothing else changes.
2. A person's own summary stands in for what the agent has read and done, so it takes the same authorization as a
   refinement of the task: the person who gave the task, or an approver of each policy that names any; signed if a
   policy requires signatures. Its author becomes a requester.
3. The task, its refinements, messages, unresolved calls and constraints stay word for word beside either summary.
"""

from datetime import datetime
from typing import Any

from holdfast.core.authority.interventions import Compaction, read_compaction
from holdfast.core.log.events import CompactionRequested
from holdfast.core.run.inputs.messages import verify_sender
from holdfast.core.run.rules.authority import (
    Reaction,
    Rejection,
    read_claim,
    refuse_bystander,
    refuse_reuse,
    signatures_required,
)
from holdfast.core.run.state.features import OWN_SUMMARIES
from holdfast.core.run.state.state import RunState


def on_compact(state: RunState, payload: Any, *, at: datetime) -> Reaction | Rejection:
    """React to a request for a compaction."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if state.context.requested:
        return Rejection("duplicate", "somebody has asked for a compaction already, and it has not been made yet")
    if state.spec is None or state.steps.count <= state.context.compacted_at:
        why = "the LLM has said nothing since the run began or its context was compacted"
        return Rejection("nothing_to_compact", why)
    requested = _requested(state, payload, at=at)
    if isinstance(requested, Rejection):
        return requested
    when = "now"
    if state.pause:
        when = "when the run resumes, at the end of the step"
    elif state.blocked:
        when = "once the run is not blocked any more (`retry`)"
    elif not state.awaits_message:
        when = "at the end of the step"
    return Reaction([requested], explanation=f"the context is compacted {when}")


def _requested(state: RunState, payload: Any, *, at: datetime) -> CompactionRequested | Rejection:
    """Return the event that records the request, or why its summary is rejected."""
    if state.features < OWN_SUMMARIES or not isinstance(payload, dict) or "summary" not in payload:
        by, reason = read_claim(payload)
        return CompactionRequested(by=by, reason=reason)
    compaction = read_compaction(payload)
    if not isinstance(compaction, Compaction):
        return Rejection(*compaction)
    required = signatures_required(state)
    if required and not compaction.signature:
        return Rejection("unsigned", "the policy requires signatures: sign the summary (--key)")
    speaker = verify_sender(state, compaction, required=required, at=at)
    if isinstance(speaker, Rejection):
        return speaker
    if refused := refuse_bystander(state, compaction.by):
        return refused
    if not speaker.proof:  # without a proof, ignore the expiry and the signature
        return CompactionRequested(by=compaction.by, reason=compaction.reason, summary=compaction.summary)
    if used := refuse_reuse(state, compaction, at=at):
        return used
    return CompactionRequested(
        by=compaction.by,
        reason=compaction.reason,
        summary=compaction.summary,
        id=compaction.id,
        until=compaction.until,
        proof=speaker.proof,
        key=speaker.key,
        signature=compaction.signature,
    )


def refuse_summary(state: RunState, payload: Any) -> Rejection | None:
    """Return why an update with a person's summary is rejected before it is recorded; None if it is not.

    A run below the feature level would have the LLM write the summary.
    """
    if state.features >= OWN_SUMMARIES or not isinstance(payload, dict) or "summary" not in payload:
        return None
    older = f"this run has feature level {state.features}, and reads a person's summary from level {OWN_SUMMARIES} on"
    return Rejection("malformed", f"{older}: compact without one, and send the agent a message")

"""Approval requests: people are asked about a call once, and again if their answer no longer applies.

If the call's tool has a preview, it is computed first, and the request opens with it.
"""

from collections.abc import Callable
from datetime import datetime

from holdfast.core.authority.approvals import ApprovalRequest, RequestKind
from holdfast.core.authority.policy import Verdict
from holdfast.core.authority.previews import CallPreview
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import AgentEvent, ApprovalRequested, PreviewRequested, ToolCallFinished
from holdfast.core.run.rules.loop_guard import guard_verdict
from holdfast.core.run.rules.unattended import block_unasked, deny_unasked
from holdfast.core.run.rules.verdicts import denial_of, policy_verdict
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.features import PREVIEWS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import PastEffect, words_of


def new_request(
    state: RunState,
    kind: RequestKind,
    number: int,
    call: ToolCall,
    verdict: Verdict,
    *,
    why: str = "",
    at: datetime,
    ahead: int = 0,
    past: PastEffect | None = None,
) -> ApprovalRequest:
    """Build a request about a call.

    Args:
        state: The state before the request.
        kind: Whether people are asked to approve the call, or to say whether its effect happened.
        number: The call's number.
        call: The call, as it is to run or has run.
        verdict: The rule that requires approval, and its terms.
        why: The reason that people read; empty for the verdict's own.
        at: Now.
        ahead: How many other requests open before it, with the same events.
        past: The effect that the call had before a reset, if the state does not have it yet.
    """
    tool = state.spec.tool(call.name) if state.spec else None
    past = past or state.past_of(number, call)
    known = state.calls.find(number)
    why = why or verdict.reason or verdict.rule
    request = ApprovalRequest(
        id=str(state.authority.request_count + ahead + 1),
        kind=kind,
        number=number,
        tool=call.name,
        arguments=call.arguments,
        digest="",
        spec_hash=state.spec_hash,
        effect_key=past.key if past else state.effect_key(number, call),
        epoch=known.epoch if known else past.epoch if past else 0,
        context=state.context_of(number, call.name),
        why=f"{why}; {past.words}" if past and kind == "approval" else why,
        rule=verdict.rule,
        asked_at=at,
        terms=verdict.terms,
        requirements=verdict.requirements,
        undoable=tool is not None and tool.undoable,
    )
    return request.model_copy(update={"digest": request.seen.digest})


def ask_people(state: RunState, request: ApprovalRequest) -> PreviewRequested | ApprovalRequested:
    """Return the event that opens a request, or that has its preview computed first."""
    previews = has_preview(state, request.tool)
    return PreviewRequested(request=request) if previews else ApprovalRequested(request=request)


def has_preview(state: RunState, tool: str) -> bool:
    """Return whether people are shown what a call of this tool would do."""
    spec = state.spec.tool(tool) if state.spec else None
    return spec is not None and spec.previews and state.features >= PREVIEWS


def asks(event: AgentEvent) -> bool:
    """Return whether the event opens a request, or announces one: it takes the request's id."""
    return isinstance(event, PreviewRequested | ApprovalRequested)


def on_preview(state: RunState, request: str, preview: CallPreview, *, at: datetime) -> list[AgentEvent]:
    """Return the event that opens a request whose preview is computed; none if it was replaced meanwhile.

    Args:
        state: The state before.
        request: The id of the announced request.
        preview: The preview, or why there is none.
        at: Now.
    """
    for call in state.calls.previewing:
        if call.asked and call.asked.id == request:
            opened = call.asked.model_copy(update={"preview": preview, "asked_at": at})
            return [ApprovalRequested(request=opened.model_copy(update={"digest": opened.seen.digest}))]
    return []


def with_editor(request: ApprovalRequest, *, by: str) -> ApprovalRequest:
    """Return the request with the person who put its arguments in place of the LLM's; empty for the LLM's own."""
    return request.model_copy(update={"edited_by": by})


def ask_again(
    state: RunState,
    call: CallState,
    *,
    at: datetime,
    ahead: int = 0,
    reason: Callable[[ApprovalRequest | None], str] = lambda _: "",
    past: PastEffect | None = None,
) -> list[AgentEvent]:
    """Return the events that judge again a call that awaits approval, or was approved and has not started.

    Args:
        state: The state before the request.
        call: The call.
        at: Now.
        ahead: How many other requests open before it, with the same events.
        reason: Returns the reason, given the open request about the call; empty for the policy's reason.
        past: The effect that the call had before a reset.
    """
    request = state.authority.request(call.request or "") or call.asked
    asked, editor = (request.call(), request.edited_by) if request else (call.call, call.edited_by)
    asked = ToolCall(id=call.call.id, name=asked.name, arguments=asked.arguments)
    verdict = guard_verdict(state, asked, policy_verdict(state, asked))
    match verdict.verdict:
        case "deny":
            content = words_of(denial_of(verdict), past or call.past)
            return [ToolCallFinished(number=call.number, status="denied", content=content)]
        case "allow":
            return []
        case "ask" if state.unattended:
            return [
                deny_unasked(call.number, verdict, past or call.past),
                block_unasked([(call.number, asked.name, verdict)]),
            ]
        case "ask":
            why = reason(request)
            anew = new_request(state, "approval", call.number, asked, verdict, why=why, at=at, ahead=ahead, past=past)
            return [ask_people(state, with_editor(anew, by=editor))]

"""The fold of approval requests, decisions, remembered rules and delegations."""

from typing import assert_never

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.server_questions import accept, decline
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.authority.votes import Vote, agreeing, cast
from holdfast.core.base.canonical import exact_json
from holdfast.core.base.models import replace
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log import events as ev
from holdfast.core.run.rules.loop_guard import RULE as REPEATED
from holdfast.core.run.rules.remembered_approvals import rule_made_by
from holdfast.core.run.state.authority import Authority, DelegatedAuthority, with_votes
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.features import KEYS_REVOKED
from holdfast.core.run.state.progress import Repeats
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.foreign_waits import MAX_ANSWERED, Resumption
from holdfast.errors import EventOutOfPlace


def require_preview(state: RunState, request: ApprovalRequest) -> RunState:
    """Announce a request, whose preview is computed first. An earlier approval of the call lapses."""
    call = state.calls.get(request.number)
    asked = replace(_asked(call, request), phase=call.after("preview"), request=None, asked=request)
    return _ask(state, request, asked, state.authority.announce(request, lapsed=_lapsed(call)))


def require_approval(state: RunState, request: ApprovalRequest) -> RunState:
    """Open a request, because approval is required. An earlier approval of the call, which has not started, lapses.

    Raises:
        EventOutOfPlace: Another request about the call was announced.
    """
    call, authority = state.calls.get(request.number), state.authority
    if call.asked and call.asked.id != request.id:
        raise EventOutOfPlace(f"request {call.asked.id} about call {call.number} was announced, not {request.id}")
    opened = authority.open_announced(request) if call.asked else authority.open(request, lapsed=_lapsed(call))
    asked = replace(_asked(call, request), phase=call.after("require_approval"), request=request.id, asked=None)
    return _ask(state, request, asked, opened)


def _asked(call: CallState, request: ApprovalRequest) -> CallState:
    """Return the call with the terms of the request, and without its approval."""
    return replace(
        call,
        terms=request.terms,
        requirements=request.requirements,
        grant="",
        granted_by=(),
        approved=False,
        feedback="",
        base="",
    )


def _lapsed(call: CallState) -> str:
    """Return the id of the request whose approval of the call lapses; empty for none."""
    return call.grant if call.phase == "allowed" else ""


def lose_outcome(state: RunState, request: ApprovalRequest) -> RunState:
    """Open a request about a started call whose outcome is unknown."""
    call = state.calls.get(request.number)
    asked = replace(
        call,
        phase=call.after("lose_outcome"),
        request=request.id,
        terms=request.terms,
        requirements=request.requirements,
    )
    after = _ask(state, request, asked, state.authority.open(request))
    return replace(after, dormancy=after.dormancy.end(request.number)) if after.dormancy.waits else after


def await_answer(state: RunState, request: ApprovalRequest) -> RunState:
    """Open a request about the question of a call's server. A task that asks is polled again after the answer."""
    call = state.calls.get(request.number)
    asked = replace(
        call,
        phase=call.after("ask"),
        request=request.id,
        terms=request.terms,
        requirements=request.requirements,
    )
    after = _ask(state, request, asked, state.authority.open(request))
    return replace(after, dormancy=after.dormancy.end(request.number)) if after.dormancy.waits else after


def _ask(state: RunState, request: ApprovalRequest, call: CallState, authority: Authority) -> RunState:
    """Return the state with a request about a call. The call adopts the past effect that the request names."""
    past = state.calls.past_effect(request.effect_key)
    if past:
        call = replace(call, past=past, epoch=past.epoch)
    calls = state.calls.put(call).without_past(past)
    return replace(state, calls=calls, authority=authority)


def receive_decision(state: RunState, event: ev.DecisionReceived) -> RunState:
    """Apply an accepted decision. One that was refused, or led to another request, changes nothing."""
    match event.outcome:
        case "accepted":
            return close_decided(state, event)
        case "waiting_for_quorum":
            return count_vote(state, event)
        case _:
            return state


def close_decided(state: RunState, event: ev.DecisionReceived) -> RunState:
    """Close a decided request. A call that may run becomes allowed; the next event finishes one that may not."""
    request = _answered_request(state, event)
    call = state.calls.get(request.number)
    authority = state.authority.close(request.id, f"{event.decision} by {event.by}")
    if request.question:
        return replace(put_call(state, _resumed(call, request, event.decision, event.result)), authority=authority)
    match event.decision:
        case "approve":
            edited = request.edit(event.arguments)
            editor = event.by if edited else request.edited_by
            approved = replace(call, phase=call.after("approve"), request=None, grant=request.id, approved=True)
            approved = approved if edited else _based(approved, request)
            approved = _with_arguments(state, approved, edited or request.arguments, by=editor)
            vote = _vote_of(request, event)
            votes = agreeing(cast(() if edited else request.votes, vote), vote)
            approved = replace(approved, feedback="".join(each.feedback for each in votes))
            if state.features >= KEYS_REVOKED:
                approved = replace(approved, granted_by=tuple(each.key for each in votes if each.key))
            number = authority.rule_count + 1
            rule = rule_made_by(votes, number=number, quorum=request.quorum) if event.remember else None
            repeats = Repeats() if request.rule == REPEATED else state.repeats
            after = replace(put_call(state, approved), repeats=repeats)
            return replace(after, authority=replace(authority, proposed_rule=rule))
        case "absent" | "undo":
            again = replace(
                call,
                phase=call.after("repeat"),
                request=None,
                grant=request.id,
                epoch=call.epoch + 1,
                undo=event.decision == "undo",
                # A task that has ended is not continued: the call begins anew.
                resumed=None if call.resumed and call.resumed.task else call.resumed,
            )
            return replace(put_call(state, again), authority=authority)
        case "deny" | "respond" | "happened" | "abandon":
            answered = replace(put_call(state, replace(call, phase=call.after("answer"))), authority=authority)
            return _denied(answered, request) if event.decision == "deny" else answered
        case _:
            assert_never(event.decision)


def _resumed(call: CallState, request: ApprovalRequest, decision: DecisionKind, answer: str | None) -> CallState:
    """Return the call after people have answered its server. If they declined, it ends, but for one that continues as a
    task, whose server is told. Nothing of the call has happened, so what follows has a row of its own in the ledger.
    """
    assert request.question is not None
    question = request.question
    responses = decline(question) if decision == "deny" else accept(question, answer)
    if isinstance(responses, str) or (decision == "deny" and not question.task):
        return replace(call, phase=call.after("answer"))
    before = call.resumed.answered if call.resumed else ()
    resumed = Resumption(
        responses=exact_json(responses),
        state=question.state,
        task=question.task,
        answered=(*before, *(part.key for part in question.parts))[-MAX_ANSWERED:],
    )
    return replace(
        call,
        phase=call.after("repeat"),
        request=None,
        grant=request.id,
        epoch=call.epoch + 1,
        resumed=resumed,
    )


def count_vote(state: RunState, event: ev.DecisionReceived) -> RunState:
    """Count one vote of several. If it changes the arguments, the earlier votes no longer count."""
    request = _answered_request(state, event)
    call = state.calls.get(request.number)
    vote = _vote_of(request, event)
    if arguments := request.edit(event.arguments):
        key = state.effect_key(request.number, request.call(arguments))
        request = request.edited(arguments, by=event.by, effect_key=key)
    authority = state.authority.with_request(with_votes(request, cast(request.votes, vote)))
    return replace(put_call(state, replace(call, phase=call.after("answer"))), authority=authority)


def _answered_request(state: RunState, event: ev.DecisionReceived) -> ApprovalRequest:
    """Return the open request that a decision answers.

    Raises:
        EventOutOfPlace: It is not open, or the decision is no answer to it.
    """
    request = state.authority.open_request(event.request)
    if event.decision not in request.answers:
        wanted = " or ".join(request.answers)
        raise EventOutOfPlace(f"request {request.id} asks for {wanted}, not {event.decision}")
    return request


def _vote_of(request: ApprovalRequest, event: ev.DecisionReceived) -> Vote:
    return Vote(
        said=event.said,
        seen=request.seen,
        right=event.right,
        proof=event.proof,
        key=event.key,
        standings=event.standings,
    )


def close_expired(state: RunState, event: ev.ApprovalExpired) -> RunState:
    """Close an expired request with the policy's decision."""
    request = state.authority.open_request(event.request)
    if request.kind == "reconcile":
        raise EventOutOfPlace(f"request {request.id} asks whether a call happened, and never expires")
    call = state.calls.get(request.number)
    authority = state.authority.close(request.id, f"{event.decision}, because it expired")
    if request.question:
        return replace(put_call(state, _resumed(call, request, "deny", None)), authority=authority)
    match event.decision:
        case "approve":
            allowed = _based(replace(call, phase=call.after("approve"), request=None, grant=request.id), request)
            allowed = _with_arguments(state, allowed, request.arguments, by=request.edited_by)
        case "deny":
            allowed = replace(call, phase=call.after("answer"))
            state = _denied(state, request)
        case _:
            assert_never(event.decision)
    return replace(put_call(state, allowed), authority=authority)


def _based(call: CallState, request: ApprovalRequest) -> CallState:
    """Return the approved call with the base of the preview by which it was approved."""
    return replace(call, base=request.preview.base) if request.preview else call


def _denied(state: RunState, request: ApprovalRequest) -> RunState:
    """Record that people denied a repeated call, so that they are not asked again before something new happens."""
    if request.rule != REPEATED:
        return state
    return replace(state, repeats=state.repeats.deny(request.call().digest))


def _with_arguments(state: RunState, call: CallState, arguments: str, *, by: str) -> CallState:
    """Return the call with the approved arguments, which may differ from the LLM's."""
    if arguments == call.call.arguments:
        return call
    edited = ToolCall(id=call.call.id, name=call.call.name, arguments=arguments)
    past = state.past_of(call.number, edited)  # another effect than that of the LLM's own call
    return replace(call, call=edited, edited_by=by or "a vote", past=past, epoch=past.epoch if past else 0)


def put_call(state: RunState, call: CallState) -> RunState:
    """Replace one call and change nothing else."""
    return replace(state, calls=state.calls.put(call))


def remember_rule(state: RunState, event: ev.RuleRemembered) -> RunState:
    """Remember the rule that the last recorded approval makes."""
    rule = {"rule": event.rule, "tool": event.tool, "call_digest": event.call_digest}
    return replace(state, authority=state.authority.remember(**rule, by=event.by))


def delegate(state: RunState, event: ev.AuthorityDelegated) -> RunState:
    """Delegate approval authority, which uses up a signed delegation."""
    delegation = DelegatedAuthority(by=event.by, to=event.to, until=event.until, statement=event.said)
    authority = state.authority.delegate(delegation, at=event.at)
    if event.proof:
        digest = event.said.signed_digest(state.thread)
        authority = authority.use_statement(digest, until=event.until, at=event.at)
    return replace(state, authority=authority)

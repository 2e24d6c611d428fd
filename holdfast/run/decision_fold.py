"""The part of the fold that is about authority: requests, votes, remembered rules, lent rights and who has asked.

Where something has to be bounded, what is dropped takes authority away, and never gives any.
"""

from typing import Any

from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.statements import Signed
from holdfast.authority.votes import Vote, agreeing, cast
from holdfast.errors import EventOutOfPlace
from holdfast.log.events import (
    ApprovalExpired,
    ApprovalRequested,
    AuthorityDelegated,
    DecisionReceived,
    DelegationRevoked,
    ReconcileRequested,
    RuleRemembered,
    UserMessageReceived,
)
from holdfast.run.remembered_rules import made_by
from holdfast.run.state import CallState, Lent, Phase, Remembered, RunState, Spent

REMEMBERED_DECISIONS = 100
"""Decisions that a late or repeated one can be told of in words."""

KEPT = 200
"""Remembered rules that a thread has at the same time; the oldest make room, and such calls ask again."""

KEPT_BYTES = 150_000
"""Bytes of remembered rules, as JSON; the oldest make room, too."""

REQUESTERS = 1_000
"""People who give a thread its task and messages that are kept. With more, anybody may have asked."""

REQUESTERS_CHARS = 50_000
"""Characters of their names."""


def requested(state: RunState, event: ApprovalRequested | ReconcileRequested) -> dict[str, Any]:
    """A question is open. A call has one at a time: an older one was about other arguments, or another world, and is
    closed; what let the call run, but has not, counts for nothing.
    """
    request = event.request
    older = [each for each in state.requests if each.number == request.number]
    anew = f"asked anew as request {request.id}"
    decided = dict(state.decided)
    for each in older:
        decided[each.id] = f"edited by {request.edited_by}, {anew}" if _edits(each, request) else anew
    lapsed = next((call.grant for call in state.calls if call.number == request.number and call.phase == "allowed"), "")
    change: dict[str, Any] = {}
    if lapsed:
        decided[lapsed] = f"{decided.get(lapsed, 'decided')}, then {anew}"
        kept = (rule for rule in state.remembered if all(vote.said.request != lapsed for vote in rule.votes))
        change["remembered"] = tuple(kept)
    phase: Phase = "awaiting_approval" if request.kind == "approval" else "outcome_unknown"
    again: dict[str, Any] = {"grant": "", "approved": False} if request.kind == "approval" else {}
    if past := next((effect for effect in state.past if effect.key == request.effect_key), None):
        again |= {"past": past, "epoch": past.epoch}
        change["past"] = tuple(effect for effect in state.past if effect is not past)
    return {
        **change,
        "requests": (*(each for each in state.requests if each not in older), request),
        "decided": _last(decided),
        "asked": state.asked + 1,
        "calls": moved(state, request.number, phase=phase, request=request.id, terms=request.terms, **again),
    }


def _edits(older: ApprovalRequest, request: ApprovalRequest) -> bool:
    """Whether a request is about other arguments than the one that it takes the place of."""
    return older.arguments != request.arguments


def decided(state: RunState, event: DecisionReceived) -> dict[str, Any]:
    """Close the request; a call that may run moves on, one that may not is finished by the next event."""
    change = _closed(state, event.request, f"{event.decision} by {event.by}")
    request = _request(state, event.request)
    call = state.call(request.number)
    match event.decision:
        case "approve":
            arguments = request.edit(event.arguments)
            editor = event.by if arguments else request.edited_by
            cleared = _cleared(state, request, arguments or request.arguments, by=editor, approved=True)
            return {**change, "calls": cleared, "remembering": _rule(state, request, event)}
        case "absent" | "undo":
            again: dict[str, Any] = {"epoch": call.epoch + 1, "undo": event.decision == "undo"}
            return {**change, "calls": _cleared(state, request, call.call.arguments, **again)}
        case _:
            return change


def voted(state: RunState, event: DecisionReceived) -> dict[str, Any]:
    """One answer of several. Changed arguments are a new question, which those before have not answered."""
    request, vote = _request(state, event.request), _vote(state, event)
    if arguments := request.edit(event.arguments):
        key = state.effect_key(request.number, request.call(arguments))
        request = request.edited(arguments, by=event.by, effect_key=key)
    return {"requests": _with_request(state, request.model_copy(update={"votes": cast(request.votes, vote)}))}


def expired(state: RunState, event: ApprovalExpired) -> dict[str, Any]:
    """Nobody has decided; the policy has."""
    change = _closed(state, event.request, f"{event.decision}, because it expired")
    request = _request(state, event.request)
    if event.decision == "deny":
        return change
    return {**change, "calls": _cleared(state, request, request.arguments, by=request.edited_by)}


def raised(state: RunState, name: str, **more: int) -> dict[str, Any]:
    """An open request, with counters of it raised."""
    request = _request(state, name)
    change = {field: getattr(request, field) + by for field, by in more.items()}
    return {"requests": _with_request(state, request.model_copy(update=change))}


def remembered(state: RunState, event: RuleRemembered) -> dict[str, Any]:
    """A rule is made by the decision just before, or not at all.

    Raises:
        EventOutOfPlace: No decision makes this rule.
    """
    rule = state.remembering
    voters = tuple(vote.by for vote in rule.votes) if rule else ()
    made = (rule.rule, rule.tool, rule.call_digest, voters) if rule else None
    if rule is None or made != (event.rule, event.tool, event.call_digest, event.by):
        raise EventOutOfPlace(
            f"event {event.position} of thread {state.thread} remembers rule {event.rule} for {event.tool}, which no "
            "decision just before it makes. The record was forged or altered: restore it from a backup."
        )
    rules = [*state.remembered, rule]
    while rules and (len(rules) > KEPT or sum(map(_size, rules)) > KEPT_BYTES):
        del rules[0]
    return {"remembered": tuple(rules), "remembered_count": state.remembered_count + 1}


def lent(state: RunState, event: AuthorityDelegated) -> dict[str, Any]:
    """A right is lent; the same one that was lent before ends with it."""
    right = Lent(by=event.by, to=event.to, until=event.until, said=event.said)
    others = (each for each in _not_lent(state, event.by, event.to) if each.until > event.at)
    return {"lent": (*others, right), **(_spent(state, event) if event.proof else {})}


def taken_back(state: RunState, event: DelegationRevoked) -> dict[str, Any]:
    """A lent right ends, and with it the answers that were given with it to requests that are still open."""
    requests = tuple(
        request.model_copy(update={"votes": tuple(v for v in request.votes if (v.right, v.by) != (event.by, event.to))})
        for request in state.requests
    )
    return {"lent": _not_lent(state, event.by, event.to), "requests": requests}


def asked_by(state: RunState, event: UserMessageReceived) -> dict[str, Any]:
    """Who has asked; where requesters do not decide, what they answered before does not count, either."""
    change: dict[str, Any] = _spent(state, event) if event.proof and event.until else {}
    if not event.proof and not event.task:
        change["unproven"] = True
    if event.by in ("", *state.requesters):
        return change
    named = sum(map(len, state.requesters)) + len(event.by)
    crowd = len(state.requesters) >= REQUESTERS or named > REQUESTERS_CHARS
    change |= {"crowd": True} if crowd else {"requesters": (*state.requesters, event.by)}
    requests = tuple(
        request.model_copy(
            update={"votes": tuple(v for v in request.votes if not crowd and event.by not in (v.by, v.right))}
        )
        if not request.terms.requester_may_decide
        else request
        for request in state.requests
    )
    return {**change, "requests": requests}


def moved(state: RunState, number: int, **change: Any) -> tuple[CallState, ...]:
    """The calls, with one of them changed."""
    return tuple(call.model_copy(update=change) if call.number == number else call for call in state.calls)


def _request(state: RunState, name: str) -> ApprovalRequest:
    """The open request that an event is about.

    Raises:
        EventOutOfPlace: There is none.
    """
    request = state.request(name)
    if request is None or all(call.number != request.number for call in state.calls):
        raise EventOutOfPlace(
            f"event {state.events} of thread {state.thread} is about request {name}, which is not open. The record was "
            "forged or altered: restore it from a backup."
        )
    return request


def _vote(state: RunState, event: DecisionReceived) -> Vote:
    seen = _request(state, event.request).seen
    return Vote(said=event.said, seen=seen, right=event.right, proof=event.proof, key=event.key)


def _rule(state: RunState, request: ApprovalRequest, event: DecisionReceived) -> Remembered | None:
    """The rule that an approval makes, with those before it."""
    vote = _vote(state, event)
    before = () if request.edit(event.arguments) else request.votes
    votes = agreeing(cast(before, vote), vote)
    return made_by(votes, number=state.remembered_count + 1, quorum=request.terms.quorum)


def _cleared(
    state: RunState, request: ApprovalRequest, arguments: str, by: str = "", **more: Any
) -> tuple[CallState, ...]:
    """The calls, with the one that a request is about let run, once."""
    call = state.call(request.number).call
    if arguments != call.arguments:
        edited = call.model_copy(update={"arguments": arguments})
        past = state.past_of(request.number, edited)  # another effect than the one that the LLM's own call has had
        more |= {"call": edited, "edited_by": by or "a vote", "past": past, "epoch": past.epoch if past else 0}
    return moved(state, request.number, phase="allowed", request=None, grant=request.id, **more)


def _closed(state: RunState, name: str, how: str) -> dict[str, Any]:
    return {
        "requests": tuple(request for request in state.requests if request.id != name),
        "decided": _last({**state.decided, name: how}),
    }


def _last(decided: dict[str, str]) -> dict[str, str]:
    return dict([*decided.items()][-REMEMBERED_DECISIONS:])


def _with_request(state: RunState, request: ApprovalRequest) -> tuple[ApprovalRequest, ...]:
    return tuple(request if each.id == request.id else each for each in state.requests)


def _not_lent(state: RunState, by: str, to: str) -> tuple[Lent, ...]:
    return tuple(right for right in state.lent if (right.by, right.to) != (by, to))


def _spent(state: RunState, event: AuthorityDelegated | UserMessageReceived) -> dict[str, Any]:
    """A signed statement has had its effect; those that are good for nothing any more are forgotten."""
    said: Signed = event.said
    assert event.until is not None
    new = Spent(digest=said.signed_digest(state.thread), until=event.until)
    return {"spent": (*(spent for spent in state.spent if spent.until > event.at), new)}


def _size(rule: Remembered) -> int:
    return len(rule.model_dump_json().encode())

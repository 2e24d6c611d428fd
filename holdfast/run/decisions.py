"""Authority: what may run, and what a decision leads to. Pure functions over the run's state.

1. Whatever arrives is recorded with its outcome. Only a decision that is accepted changes what may run.
2. A grant is bound to the request's digest, and used up by the start of the call it lets run: one effect, in one run.
3. Changed arguments are judged like the LLM's: under another rule, or other terms, they are another request.
4. The LLM has no part in this: what it writes is never a decision.
"""

from collections.abc import Callable
from datetime import datetime

from temporalio import workflow

from holdfast.authority.approvals import ApprovalRequest, DecisionOutcome, RequestKind
from holdfast.authority.policy import Terms, ToolUse, Verdict, evaluate
from holdfast.authority.statements import Decision, parsed
from holdfast.authority.votes import Vote, agreeing, cast
from holdfast.llm.messages import ToolCall
from holdfast.log.events import (
    AgentEvent,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    DecisionReceived,
    RuleRemembered,
    ToolCallFinished,
)
from holdfast.run.remembered_rules import made_by, rule_for
from holdfast.run.rights import Known, Refused, known, right_of
from holdfast.run.state import CallState, RunState
from holdfast.tools.effects import PastEffect, words_of
from holdfast.trust import Trust, is_tainted

Events = list[AgentEvent]

PUT_BYTES = 250_000
"""Bytes of the answers that wait for others, and of arguments that people have changed, in one step."""


def judge_call(state: RunState, call: ToolCall) -> Verdict:
    """The verdict on a call of a tool that the agent has: the policy's, or what people said of the same call before.

    What people said lifts `ask` only: what the policy denies stays denied.
    """
    verdict = policy_verdict(state, call)
    if verdict.verdict == "ask" and (rule := rule_for(state, call, verdict.terms)):
        by = ", ".join(vote.by for vote in rule.votes)
        lifted = f"remembered {rule.rule} (by {by})"
        return Verdict(verdict="allow", rule=lifted, terms=verdict.terms, remembered=rule.rule)
    return verdict


def policy_verdict(state: RunState, call: ToolCall) -> Verdict:
    """The policy's own verdict on a call of a tool that the agent has, whatever people said before."""
    spec = state.spec
    assert spec is not None
    tool = spec.tool(call.name)
    assert tool is not None
    verdict = evaluate(
        spec.policy,
        ToolUse(
            tool=call.name,
            effect=tool.effect,
            arguments=parsed(call.arguments),
            agent=spec.name,
            depth=state.depth,
            workspace=state.workspace,
            trust=state.trust,
        ),
    )
    if tool.trusted_only and is_tainted(state.trust):
        verdict = _of_tainted(verdict, state.trust, spec.policy.terms)
    return verdict


def _of_tainted(verdict: Verdict, trust: Trust, terms: Terms) -> Verdict:
    """The verdict on a call that puts something before agents from now on: a person approves it, not their silence."""
    if verdict.verdict == "allow":
        read = "the web" if trust == "web" else "tools"
        reason = f"the LLM has read results of {read}, and this is put before agents from now on"
        verdict = Verdict(verdict="ask", rule="tainted memory asks", reason=reason, terms=terms)
    return verdict.model_copy(update={"terms": verdict.terms.model_copy(update={"on_expiry": "deny"})})


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
    """A question to people about a call.

    Args:
        state: Before the question.
        kind: What is asked.
        number: The call's.
        call: As it is to run, or has.
        verdict: Says by which rule, and how it is decided.
        why: What people are told; the verdict's reason where it is empty.
        at: Now.
        ahead: How many other questions open with it, before it.
        past: The effect that the call has had before the run was reset, where the state does not say.
    """
    tool = state.spec.tool(call.name) if state.spec else None
    past = past or state.past_of(number, call)
    epoch = next((each.epoch for each in state.calls if each.number == number), past.epoch if past else 0)
    why = why or verdict.reason or verdict.rule
    request = ApprovalRequest(
        id=str(state.asked + ahead + 1),
        kind=kind,
        number=number,
        tool=call.name,
        arguments=call.arguments,
        digest="",
        spec_hash=state.spec_hash,
        effect_key=past.key if past else state.effect_key(number, call),
        epoch=epoch,
        why=f"{why}; {past.words}" if past and kind == "approval" else why,
        rule=verdict.rule,
        asked_at=at,
        terms=verdict.terms,
        undoable=tool is not None and tool.undoable,
    )
    return request.model_copy(update={"digest": request.seen.digest})


def ask_again(
    state: RunState,
    call: CallState,
    *,
    at: datetime,
    ahead: int = 0,
    changed: Callable[[ApprovalRequest | None], str] = lambda _: "",
    past: PastEffect | None = None,
) -> Events:
    """The events by which a call that waits for people, or has not begun yet by their leave, is asked about anew.

    Args:
        state: Before the question.
        call: The call.
        at: Now.
        ahead: How many other questions open with it, before it.
        changed: Says why, given the request that is open about it; the policy's reason where it says nothing.
        past: The effect that the call has had before the run was reset.
    """
    request = state.request(call.request or "")
    asked, editor = (request.call(), request.edited_by) if request else (call.call, call.edited_by)
    asked = asked.model_copy(update={"id": call.call.id})
    verdict = policy_verdict(state, asked)
    if verdict.verdict == "deny":
        denial = f"Denied by policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")
        content = words_of(denial, past or call.past)
        return [ToolCallFinished(number=call.number, status="denied", content=content)]
    if verdict.verdict == "allow":
        return []
    why = changed(request)
    anew = new_request(state, "approval", call.number, asked, verdict, why=why, at=at, ahead=ahead, past=past)
    return [ApprovalRequested(request=anew.model_copy(update={"edited_by": editor}))]


def on_decision(state: RunState, decision: Decision, *, at: datetime) -> tuple[DecisionReceived, Events]:
    """The event that records a person's decision and its outcome, and the events that follow from it."""
    request = state.request(decision.request)
    judged = _judge(state, decision, request, at=at)
    if isinstance(judged, Refused) or request is None:
        refused = judged if isinstance(judged, Refused) else Refused("unknown_request", "")
        return _received(decision, refused.outcome, refused.explanation, Known()), []
    edit = request.edit(decision.arguments)
    if (edit or request.terms.quorum > 1) and (full := _full(state, decision)):
        return _received(decision, full.outcome, full.explanation, Known()), []
    if not edit:
        outcome, explanation, votes = _counted(request, decision, judged, request.votes)
        received = _received(decision, outcome, explanation, judged)
        return received, _consequences(state, decision, request, votes) if outcome == "accepted" else []
    call = state.call(request.number).call.model_copy(update={"arguments": edit})
    verdict = judge_call(state, call)
    if verdict.verdict == "deny":
        why = f"the policy denies these arguments ({verdict.rule})"
        return _received(decision, "against_policy", why, Known()), []
    if verdict.verdict == "allow":
        why = f"the policy allows these arguments ({verdict.rule})"
        return _received(decision, "accepted", why, judged, rule=verdict.rule), []
    if (verdict.rule, verdict.terms) != (request.rule, request.terms):
        anew = new_request(state, "approval", request.number, call, verdict, at=at)
        anew = anew.model_copy(update={"edited_by": decision.by})
        why = f"another rule, or other terms, are for these arguments ({verdict.rule}): request {anew.id}"
        received = _received(decision, "judged_anew", why, judged, rule=verdict.rule)
        return received, [ApprovalRequested(request=anew)]
    outcome, explanation, votes = _counted(request, decision, judged, ())
    received = _received(decision, outcome, explanation, judged, rule=verdict.rule)
    return received, _consequences(state, decision, request, votes) if outcome == "accepted" else []


def _full(state: RunState, decision: Decision) -> Refused | None:
    """Why there is no room for what a person puts into the state, until something is decided; None if there is."""
    if decision.decision == "deny":
        return None
    edited = sum(len(call.call.arguments.encode()) for call in state.calls if call.edited_by)
    edited += sum(len(request.arguments.encode()) for request in state.requests if request.edited_by)
    votes = sum(len(vote.model_dump_json().encode()) for request in state.requests for vote in request.votes)
    if edited + votes + 2 * len(decision.model_dump_json().encode()) <= PUT_BYTES:
        return None
    full = f"the answers and changed arguments of this step have {PUT_BYTES:,} bytes, which is the limit"
    return Refused("too_many", f"{full}; deny the request, or decide without changes")


def _received(
    decision: Decision, outcome: DecisionOutcome, explanation: str, judged: Known, *, rule: str = ""
) -> DecisionReceived:
    if outcome == "duplicate":
        judged = Known()  # of what does not count, nothing is proven
    return DecisionReceived(
        request=decision.request,
        decision=decision.decision,
        by=decision.by,
        reason=decision.reason,
        outcome=outcome,
        explanation=explanation,
        digest_given=decision.digest or "",
        arguments=decision.arguments,
        result=decision.result,
        remember=decision.remember,
        right=judged.right if judged.right != decision.by else "",
        rule=rule,
        proof=judged.proof,
        key=judged.key,
        signature=decision.signature,
    )


def _counted(
    request: ApprovalRequest, decision: Decision, judged: Known, before: tuple[Vote, ...]
) -> tuple[DecisionOutcome, str, tuple[Vote, ...]]:
    """What a decision comes to with the votes before it: its outcome, why, and the votes that give the same answer."""
    right = judged.right if judged.right != decision.by else ""
    vote = Vote(said=decision, seen=request.seen, right=right, proof=judged.proof, key=judged.key)
    if decision.decision == "deny":
        return "accepted", "", (vote,)
    older = next((each for each in before if each.by == vote.by), None)
    if older and (older.answer, older.said.remember) == (vote.answer, decision.remember):
        return "duplicate", f"{vote.by} has answered {decision.decision} to request {request.id} before", ()
    votes, quorum = agreeing(cast(before, vote), vote), request.terms.quorum
    if len(votes) < quorum:
        said = "have approved" if decision.decision == "approve" else f"have answered {decision.decision} so"
        return "waiting_for_quorum", f"{len(votes)} of {quorum} {said}", votes
    forgotten = any(each.said.remember for each in votes) and not made_by(votes, number=0, quorum=quorum)
    why = "not remembered: every person whose approval counts has to ask for it, with their own right"
    return "accepted", why if forgotten else "", votes


def _consequences(state: RunState, decision: Decision, request: ApprovalRequest, votes: tuple[Vote, ...]) -> Events:
    number = request.number
    by = ", ".join(vote.by for vote in votes)
    because = f": {decision.reason}" if decision.reason else ""
    past = state.call(number).past
    match decision.decision:
        case "approve":
            rule = made_by(votes, number=state.remembered_count + 1, quorum=request.terms.quorum)
            if rule is None:
                return []
            voters = tuple(vote.by for vote in votes)
            return [RuleRemembered(rule=rule.rule, tool=rule.tool, call_digest=rule.call_digest, by=voters)]
        case "absent" | "undo":
            return []
        case "deny":
            content = words_of(f"Denied by {decision.by}{because}", past)
            return [ToolCallFinished(number=number, status="denied", content=content)]
        case "respond":
            verb = "answer" if len(votes) > 1 else "answers"
            content = words_of(f"Not called. {by} {verb} in its place: {decision.result}", past)
            return [ToolCallFinished(number=number, status="answered", content=content)]
        case "happened":
            content = decision.result or f"Done. ({by} looked it up{because})"
            return [ToolCallFinished(number=number, status="ok", content=content, adopted=True)]
        case "abandon":
            content = f"Nobody can tell whether this happened; given up by {by}{because}"
            return [ToolCallFinished(number=number, status="unknown", content=content)]


def on_due(state: RunState, *, at: datetime) -> Events:
    """What the passing of time leads to for the open requests: reminders, escalations, and decisions by default."""
    events: Events = []
    for request in state.requests:
        if request.expires_at and request.expires_at <= at:
            decision = request.terms.on_expiry
            events.append(ApprovalExpired(request=request.id, decision=decision))
            if decision == "deny":
                past = state.call(request.number).past
                content = words_of("Denied: nobody has decided in time.", past)
                events.append(ToolCallFinished(number=request.number, status="denied", content=content))
            continue
        if request.escalate_at and request.escalate_at <= at:
            step = request.terms.escalate[request.level]
            events.append(ApprovalEscalated(request=request.id, by=step.by))
        if request.remind_at and request.remind_at <= at:
            events.append(ApprovalReminded(request=request.id))
    return events


def _judge(state: RunState, decision: Decision, request: ApprovalRequest | None, *, at: datetime) -> Known | Refused:
    if request is None:
        return _without_request(state, decision)
    if decision.decision not in request.answers:
        wanted = " or ".join(request.answers)
        return Refused("wrong_kind", f"request {request.id} asks for {wanted}, not {decision.decision}")
    if decision.digest and decision.digest != request.digest:
        return Refused("digest_mismatch", f"request {request.id} has the digest {request.digest}")
    proven = known(state, decision)
    if isinstance(proven, Refused):
        return proven
    if proven.proof and not decision.digest:
        return Refused("digest_mismatch", f"a signature covers what was seen: give the digest {request.digest}")
    right = right_of(state, decision, request, at=at)
    if isinstance(right, Refused):
        return right
    if decision.decision == "respond" and not decision.result:
        return Refused("malformed", "give the answer as `result`")
    return _editable(state, decision, state.call(request.number)) or proven._replace(right=right)


def _without_request(state: RunState, decision: Decision) -> Refused:
    if state.outcome:
        return Refused("too_late", f"the run is {state.outcome}")
    if how := state.decided.get(decision.request):
        late = "expired" in how
        return Refused("too_late" if late else "duplicate", f"request {decision.request} was decided before: {how}")
    still_open = ", ".join(request.id for request in state.requests) or "none"
    return Refused("unknown_request", f"no request {decision.request}; open: {still_open}")


def _editable(state: RunState, decision: Decision, call: CallState) -> Refused | None:
    """Why the arguments that a person gives do not fit the tool; None if they do."""
    if decision.arguments is None:
        return None
    if decision.decision != "approve":
        return Refused("malformed", f"arguments go with approve, not with {decision.decision}")
    tool = state.spec.tool(call.call.name) if state.spec else None
    assert tool is not None
    with workflow.unsafe.imports_passed_through():
        import jsonschema  # here, for few processes ever need it
    try:
        jsonschema.validate(decision.arguments, tool.parameters)
    except jsonschema.ValidationError as error:
        place = ".".join(str(part) for part in error.absolute_path)
        return Refused("malformed", f"arguments{'.' if place else ''}{place}: {error.message}"[:500])
    if missing := tool.defaults.keys() - decision.arguments.keys():
        # What is judged has to be all that runs; a default would be filled in after the verdict.
        return Refused("malformed", f"arguments: give every parameter, also {', '.join(sorted(missing))}")
    return None

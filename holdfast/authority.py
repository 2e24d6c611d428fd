"""Authority: who may decide, how that is known, and what a decision leads to. Pure functions over the run's state.

1. Who decides is known by a signature: the approver's own, or that of a gateway which vouches for them. Without one it
   is taken on trust, where the policy allows that.
2. Whatever arrives is recorded with its outcome. Only a decision that is accepted changes what may run.
3. A grant is bound to the request's digest, and used up by the start of the call it lets run.
4. The LLM has no part in this: what it writes is never a decision.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from temporalio import workflow

from holdfast.approval import (
    LONGEST_LOAN,
    Decision,
    DecisionOutcome,
    Delegation,
    Proof,
    Request,
    Revocation,
    Signed,
    parsed,
)
from holdfast.events import (
    AgentEvent,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    DecisionReceived,
    DelegationRevoked,
    RightDelegated,
    RuleRemembered,
    RuleRevoked,
    SignalRejected,
    ToolCallFinished,
)
from holdfast.messages import ToolCall
from holdfast.model import canonical
from holdfast.policy import Policy, Terms, ToolUse, Verdict, evaluate
from holdfast.signatures import is_signed
from holdfast.state import CallState, RunState
from holdfast.trust import Trust, is_tainted

Events = list[AgentEvent]


class Known(NamedTuple):
    """How it is known who says something."""

    proof: Proof = ""
    key: str = ""
    """The public key whose signature was found right."""
    right: str = ""
    """Whose right to decide is used: their own, or one that was lent to them."""


class Refused(NamedTuple):
    """Why something does not count."""

    outcome: DecisionOutcome
    explanation: str


def judge_call(state: RunState, call: ToolCall) -> Verdict:
    """The verdict on a call of a tool that the agent has: the policy's, or what a person said of the same call before.

    What a person said lifts `ask` only: what the policy denies stays denied.
    """
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
    if verdict.verdict == "ask":
        for rule in state.remembered:
            if (rule.tool, rule.call_digest) == (call.name, call.digest):
                return Verdict(verdict="allow", rule=f"remembered {rule.rule} (by {rule.by})")
    return verdict


def _of_tainted(verdict: Verdict, trust: Trust, terms: Terms) -> Verdict:
    """The verdict on a call that puts something before agents from now on: a person approves it, not their silence."""
    if verdict.verdict == "allow":
        read = "the web" if trust == "web" else "tools"
        reason = f"the LLM has read results of {read}, and this is put before agents from now on"
        verdict = Verdict(verdict="ask", rule="tainted memory asks", reason=reason, terms=terms)
    return verdict.model_copy(update={"terms": verdict.terms.model_copy(update={"on_expiry": "deny"})})


def on_decision(state: RunState, decision: Decision, *, at: datetime) -> tuple[DecisionReceived, Events]:
    """The event that records a person's decision and its outcome, and the events that follow from it."""
    request = state.request(decision.request)
    judged = _judge(state, decision, request, at=at)
    known = judged if isinstance(judged, Known) else Known()
    outcome, explanation = judged if isinstance(judged, Refused) else Refused("accepted", "")
    if outcome == "accepted" and request and decision.decision == "approve":
        arguments = canonical(decision.arguments) if decision.arguments is not None else None
        anew = arguments is not None and arguments != request.arguments.encode("utf-8", "replace")
        votes = 1 if anew else len(request.approved_by) + 1
        if votes < request.terms.quorum:
            outcome, explanation = "waiting_for_quorum", f"{votes} of {request.terms.quorum} have approved"
    received = DecisionReceived(
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
        right=known.right if known.right != decision.by else "",
        proof=known.proof,
        key=known.key,
        signature=decision.signature,
    )
    if outcome != "accepted" or request is None:
        return received, []
    return received, _consequences(state, decision, request)


def _consequences(state: RunState, decision: Decision, request: Request) -> Events:
    number = request.number
    because = f": {decision.reason}" if decision.reason else ""
    match decision.decision:
        case "approve" if decision.remember:
            call = state.call(number).call
            text = request.arguments if decision.arguments is None else canonical(decision.arguments).decode()
            granted = call.model_copy(update={"arguments": text})
            rule = str(state.remembered_count + 1)
            return [RuleRemembered(rule=rule, tool=call.name, call_digest=granted.digest, by=decision.by)]
        case "approve" | "absent" | "undo":
            return []
        case "deny":
            content = f"Denied by {decision.by}{because}"
            return [ToolCallFinished(number=number, status="denied", content=content)]
        case "respond":
            content = f"Not called. {decision.by} answers in its place: {decision.result}"
            return [ToolCallFinished(number=number, status="answered", content=content)]
        case "happened":
            content = decision.result or f"Done. ({decision.by} looked it up{because})"
            return [ToolCallFinished(number=number, status="ok", content=content, adopted=True)]
        case "abandon":
            content = f"Nobody can tell whether this happened; given up by {decision.by}{because}"
            return [ToolCallFinished(number=number, status="unknown", content=content)]


def on_delegation(state: RunState, delegation: Delegation, *, at: datetime) -> tuple[Refused | None, Events]:
    """What becomes of an approver's wish to lend their right: why not, or None; and the events."""
    policy = _policy(state)
    known = _known(state, delegation)
    if isinstance(known, Refused):
        return known, [_rejected("delegate", known)]
    until = delegation.until or at + timedelta(seconds=delegation.seconds or 0)
    refused = None
    if not policy.approver(delegation.by):
        refused = Refused("not_entitled", f"{delegation.by} has no right to lend: the policy names no such approver")
    elif not policy.approver(delegation.to):
        refused = Refused("not_entitled", f"{delegation.to} is no approver, so nobody could tell their decisions")
    elif delegation.to == delegation.by:
        refused = Refused("malformed", f"{delegation.by} has that right already")
    elif known.proof and not delegation.until:
        refused = Refused("malformed", "signed for so many seconds, it would be good for ever: give `until`")
    elif not timedelta() < until - at <= timedelta(seconds=LONGEST_LOAN):
        refused = Refused("too_late" if until <= at else "malformed", f"until {until.isoformat()} is over, or too far")
    elif delegation.signature and delegation.signature in state.spent:
        refused = Refused("duplicate", "this has lent the right once")
    if refused:
        return refused, [_rejected("delegate", refused)]
    proof = {"proof": known.proof, "key": known.key, "signature": delegation.signature}
    lent = {"by": delegation.by, "to": delegation.to, "until": until, "reason": delegation.reason}
    return None, [RightDelegated.model_validate({**lent, **proof})]


def on_revocation(state: RunState, revocation: Revocation) -> tuple[Refused | None, Events]:
    """What becomes of a wish to take back what was remembered or lent: why not, or None; and the events."""
    known = _known(state, revocation)
    if isinstance(known, Refused):
        return known, [_rejected("revoke", known)]
    policy, by = _policy(state), revocation.by
    if policy.approvers and not policy.approver(by):
        refused = Refused("not_entitled", f"the policy names no approver {by!r}")
        return refused, [_rejected("revoke", refused)]
    said = {"by": by, "reason": revocation.reason, "proof": known.proof, "key": known.key}
    said |= {"signature": revocation.signature}
    events: Events = []
    if any(rule.rule == revocation.remembered for rule in state.remembered):
        events.append(RuleRevoked.model_validate({"rule": revocation.remembered, **said}))
    if any((right.by, right.to) == (by, revocation.delegated_to) for right in state.lent):
        events.append(DelegationRevoked.model_validate({"to": revocation.delegated_to, **said}))
    if not events:
        open_rules = ", ".join(rule.rule for rule in state.remembered) or "none"
        refused = Refused("unknown_request", f"nothing of {by}'s to revoke; remembered rules: {open_rules}")
        return refused, [_rejected("revoke", refused)]
    return None, events


def on_due(state: RunState, *, at: datetime) -> Events:
    """What the passing of time leads to for the open requests: reminders, escalations, and decisions by default."""
    events: Events = []
    for request in state.requests:
        if request.expires_at and request.expires_at <= at:
            decision = request.terms.on_expiry
            events.append(ApprovalExpired(request=request.request, decision=decision))
            if decision == "deny":
                content = "Denied: nobody has decided in time."
                events.append(ToolCallFinished(number=request.number, status="denied", content=content))
            continue
        if request.escalate_at and request.escalate_at <= at:
            step = request.terms.escalate[request.level]
            events.append(ApprovalEscalated(request=request.request, by=step.by))
        if request.remind_at and request.remind_at <= at:
            events.append(ApprovalReminded(request=request.request))
    return events


def _judge(state: RunState, decision: Decision, request: Request | None, *, at: datetime) -> Known | Refused:
    if request is None:
        return _without_request(state, decision)
    if decision.decision not in request.answers:
        wanted = " or ".join(request.answers)
        return Refused("wrong_kind", f"request {request.request} asks for {wanted}, not {decision.decision}")
    if decision.digest and decision.digest != request.digest:
        return Refused("digest_mismatch", f"request {request.request} has the digest {request.digest}")
    known = _known(state, decision)
    if isinstance(known, Refused):
        return known
    if known.proof and not decision.digest:
        return Refused("digest_mismatch", f"a signature covers what was seen: give the digest {request.digest}")
    right = _right(state, decision, request, at=at)
    if isinstance(right, Refused):
        return right
    if decision.decision == "respond" and not decision.result:
        return Refused("malformed", "give the answer as `result`")
    return _editable(state, decision, state.call(request.number)) or known._replace(right=right)


def _without_request(state: RunState, decision: Decision) -> Refused:
    if state.outcome:
        return Refused("too_late", f"the run is {state.outcome}")
    if how := state.decided.get(decision.request):
        late = "expired" in how
        return Refused("too_late" if late else "duplicate", f"request {decision.request} was decided before: {how}")
    still_open = ", ".join(request.request for request in state.requests) or "none"
    return Refused("unknown_request", f"no request {decision.request}; open: {still_open}")


def _known(state: RunState, said: Signed) -> Known | Refused:
    """How it is known who says this."""
    policy = _policy(state)
    if not said.signature:
        if policy.signatures == "required":
            return Refused("unsigned", "the policy wants decisions to be signed; `starter.py keygen` makes a key")
        return Known()
    message = said.signed_bytes(state.thread)
    approver = policy.approver(said.by)
    for key in approver.keys if approver else ():
        if is_signed(key, said.signature, message):
            return Known("signed", key)
    for gateway in policy.gateways:
        for key in gateway.keys:
            if is_signed(key, said.signature, message):
                return Known("vouched", key)
    return Refused("bad_signature", f"no key of {said.by}, nor of a gateway, has signed this")


def _right(state: RunState, decision: Decision, request: Request, *, at: datetime) -> str | Refused:
    """Whose right to decide this person uses, or why they have none. Of each right there is one vote."""
    policy, terms, by = _policy(state), request.terms, decision.by
    denies = decision.decision == "deny"
    if policy.approvers and policy.approver(by) is None:
        return Refused("not_entitled", f"the policy names no approver {by!r}")
    if policy.approvers:
        entitled = set(policy.entitled(request.who))
        if denies and terms.veto:
            entitled |= set(policy.entitled(terms.veto))
    else:
        entitled = {by, *request.who} if not request.who else set(request.who)
    rights = [by, *(right.by for right in state.lent if right.to == by and right.until > at)]
    rights = [right for right in rights if right in entitled]
    if not rights:
        who = ", ".join(request.who) or "an approver"
        return Refused("not_entitled", f"request {request.request} is decided by {who}, not {by}")
    if not terms.requester_may_decide and not denies:
        rights = [right for right in rights if right not in state.requesters and by not in state.requesters]
        if not rights:
            return Refused("not_entitled", f"{by} has asked for this with the task or a message; somebody else decides")
    unused = [right for right in rights if decision.decision != "approve" or right not in request.approved_by]
    if not unused:
        return Refused("duplicate", f"{by} has approved request {request.request} before")
    return unused[0]


def _editable(state: RunState, decision: Decision, call: CallState) -> Refused | None:
    """Why the arguments that a person gives cannot take the place of the LLM's; None if they can."""
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
    edited = call.call.model_copy(update={"arguments": canonical(decision.arguments).decode("utf-8", "replace")})
    verdict = judge_call(state, edited)
    if verdict.verdict == "deny":
        return Refused("against_policy", f"the policy denies these arguments ({verdict.rule})")
    return None


def _policy(state: RunState) -> Policy:
    return state.spec.policy if state.spec else Policy()


def _rejected(signal: str, refused: Refused) -> SignalRejected:
    return SignalRejected(signal=signal, explanation=f"{refused.outcome}: {refused.explanation}")

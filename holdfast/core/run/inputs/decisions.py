"""Apply people's decisions on approval requests, and reminders, escalations and expiry of undecided ones. Pure.

1. Every decision is recorded with its outcome. Only an accepted one affects the call.
2. An approval is bound to the request's digest. The start of the approved call consumes it: one effect, in one run.
3. Changed arguments are judged like the LLM's (`holdfast.core.run.rules.verdicts`): under another rule, or with other
   approval requirements, they need another request.
4. The LLM takes no part: its text is never a decision.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never
from typing import cast as cast_type

from temporalio import workflow

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.core.authority.server_questions import accept
from holdfast.core.authority.statements import Decision, read_decision
from holdfast.core.authority.votes import Vote, agreeing, cast, one_login, votes_for
from holdfast.core.base.canonical import exact_json, parsed
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log import events as ev
from holdfast.core.run.inputs.pause import on_pause_due
from holdfast.core.run.rules.approval_requests import ask_people, has_preview, new_request, with_editor
from holdfast.core.run.rules.authority import Outcome, Principal, Rejection
from holdfast.core.run.rules.constraints import refuse_approval
from holdfast.core.run.rules.remembered_approvals import rule_made_by
from holdfast.core.run.rules.standings import standing_of
from holdfast.core.run.rules.verdicts import judge_call
from holdfast.core.run.state.authority import ASKED_ANEW, with_votes
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.features import EDITS_ASK_ANEW, FEEDBACK, LINEAR_SCHEMAS, LOGINS
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_sleep_due
from holdfast.core.run.waits.polling import call_problem
from holdfast.core.tools.argument_schema import unfit
from holdfast.core.tools.effects import words_of
from holdfast.core.tools.foreign_waits import ServerQuestion

Events = list[ev.AgentEvent]

EDITED_BYTES = 250_000
"""Maximum size in bytes, in one step, of the votes on open requests and of arguments that people have changed."""


def on_decision(state: RunState, decision: Decision, *, at: datetime) -> tuple[ev.DecisionReceived, Events]:
    """Return the event that records a person's decision and its outcome, and the events that follow from it."""
    if decision.via and state.features < LOGINS:
        decision = decision.model_copy(update={"via": ""})
    if decision.say and state.features < FEEDBACK:
        decision = decision.model_copy(update={"say": ""})
    request = state.authority.request(decision.request)
    speaker = _authorize(state, decision, request, at=at)
    if isinstance(speaker, Rejection) or request is None:
        refused = speaker if isinstance(speaker, Rejection) else Rejection("unknown_request", "")
        return _decision_event(decision, refused.outcome, refused.explanation, Principal()), []
    edit = "" if request.question else request.edit(decision.arguments)
    if (edit or decision.say or request.quorum > 1 or request.requirements) and (full := _refuse_size(state, decision)):
        return _decision_event(decision, full.outcome, full.explanation, Principal()), []
    if not edit:
        outcome, explanation, votes = _count_vote(request, decision, speaker, request.votes, at=at)
        received = _with_logins(state, _decision_event(decision, outcome, explanation, speaker), votes)
        return received, _consequences(state, decision, request, votes) if outcome == "accepted" else []
    call = state.calls.get(request.number).call.model_copy(update={"arguments": edit})
    verdict = judge_call(state, call)
    if verdict.verdict == "deny":
        why = f"the policy denies these arguments ({verdict.rule})"
        return _decision_event(decision, "against_policy", why, Principal()), []
    if verdict.verdict == "allow":
        why = f"the policy allows these arguments ({verdict.rule})"
        return _decision_event(decision, "accepted", why, speaker, rule=verdict.rule), []
    edited = with_editor(new_request(state, "approval", request.number, call, verdict, at=at), by=decision.by)
    if (verdict.rule, verdict.terms, verdict.requirements) != (request.rule, request.terms, request.requirements):
        why = f"these arguments fall under another rule, or other terms ({verdict.rule}): request {edited.id}"
        received = _decision_event(decision, "judged_anew", why, speaker, rule=verdict.rule)
        return received, [ask_people(state, edited)]
    outcome, explanation, votes = _count_vote(request, decision, speaker, (), at=at)
    if outcome == "waiting_for_quorum" and state.features >= EDITS_ASK_ANEW:
        # The others have not seen these arguments: ask them under a new id, which never named other arguments.
        why = f"the others are asked about these arguments: request {edited.id}, {explanation}"
        if has_preview(state, edited.tool):  # nobody has seen the preview of these arguments yet
            why = f"all are asked about these arguments, with their preview: request {edited.id}"
            received = _decision_event(decision, "judged_anew", why, speaker, rule=verdict.rule)
            return received, [ask_people(state, edited)]
        received = _decision_event(decision, "judged_anew", why, speaker, rule=verdict.rule)
        return received, [ev.ApprovalRequested(request=with_votes(edited, votes))]
    received = _with_logins(state, _decision_event(decision, outcome, explanation, speaker, rule=verdict.rule), votes)
    return received, _consequences(state, decision, request, votes) if outcome == "accepted" else []


def refuse_feedback(state: RunState, payload: Any) -> Rejection | None:
    """Return why a decision with `say` is rejected before it is recorded; None if it is not.

    A run below the feature level reads no `say`, so the approval would count without it. Only an update can be rejected
    for that: what is in history is read as an older release reads it.
    """
    decision = read_decision(payload) if state.features < FEEDBACK else ""
    if isinstance(decision, str) or not decision.say:
        return None
    older = f"this run has feature level {state.features}, and `say` is read from level {FEEDBACK} on"
    return Rejection("malformed", f"{older}: approve without it, and send the agent a message")


def _refuse_size(state: RunState, decision: Decision) -> Rejection | None:
    """Return why the state has no room for this vote, these arguments or this feedback until a request is decided; None
    if it has.
    """
    if decision.decision == "deny":
        return None
    edited = sum(len(call.call.arguments.encode()) for call in state.calls.current if call.edited_by)
    edited += sum(len(call.feedback.encode()) for call in state.calls.current)
    edited += sum(len(request.arguments.encode()) for request in state.authority.requests if request.edited_by)
    votes = sum(len(vote.model_dump_json().encode()) for request in state.authority.requests for vote in request.votes)
    if edited + votes + 2 * len(decision.model_dump_json().encode()) <= EDITED_BYTES:
        return None
    full = f"the votes and changed arguments of this step have reached the limit of {EDITED_BYTES:,} bytes"
    return Rejection("too_many", f"{full}; deny the request, or decide without changes")


def _decision_event(
    decision: Decision, outcome: Outcome, explanation: str, speaker: Principal, *, rule: str = ""
) -> ev.DecisionReceived:
    if outcome == "duplicate":
        speaker = Principal()  # a duplicate proves nothing
    return ev.DecisionReceived(
        request=decision.request,
        decision=decision.decision,
        by=decision.by,
        reason=decision.reason,
        outcome=cast_type(DecisionOutcome, outcome),  # never `busy`: no request is open before the agent is loaded
        explanation=explanation,
        digest_given=decision.digest or "",
        arguments=decision.arguments,
        result=decision.result,
        remember=decision.remember,
        say=decision.say,
        right=speaker.right if speaker.right != decision.by else "",
        standings=speaker.standings,
        rule=rule,
        via=decision.via,
        proof=speaker.proof,
        key=speaker.key,
        signature=decision.signature,
    )


def _with_logins(state: RunState, received: ev.DecisionReceived, votes: tuple[Vote, ...]) -> ev.DecisionReceived:
    """Add to the event the members of the quorum whose votes came from one login."""
    same = one_login(votes) if received.outcome == "accepted" and state.features >= LOGINS else ()
    if not same:
        return received
    why = f"{received.explanation}; " if received.explanation else ""
    explanation = f"{why}the votes of {', '.join(same)} came from one login"
    return received.model_copy(update={"one_login": same, "explanation": explanation})


def _count_vote(
    request: ApprovalRequest, decision: Decision, speaker: Principal, before: tuple[Vote, ...], *, at: datetime
) -> tuple[DecisionOutcome, str, tuple[Vote, ...]]:
    """Count a decision with the votes before it.

    Returns:
        The outcome, an explanation, and the votes that give the same answer.
    """
    vote = _vote(request, decision, speaker)
    if decision.decision == "deny":
        return "accepted", "", (vote,)
    older = next((each for each in before if each.by == vote.by), None)
    if older and (older.answer, older.said.remember, older.said.say, older.standings) == (
        vote.answer,
        decision.remember,
        decision.say,
        vote.standings,
    ):
        return "duplicate", f"{vote.by} has already answered {decision.decision} to request {request.id}", ()
    votes = agreeing(cast(before, vote), vote)
    if not request.satisfied_by(votes):
        verb = "have approved" if decision.decision == "approve" else f"have answered {decision.decision} so"
        return "waiting_for_quorum", f"{_tally(request, votes)} {verb}", votes
    forgotten = any(each.said.remember for each in votes) and not rule_made_by(votes, number=0, quorum=request.quorum)
    why = "not remembered: every person whose approval counts has to ask for that, with a right of their own"
    return "accepted", why if forgotten else _explain_delay(request, decision, at=at), votes


def _explain_delay(request: ApprovalRequest, decision: Decision, *, at: datetime) -> str:
    """Say when an answer takes effect if a request of the call may still arrive; empty if it takes effect at once."""
    if decision.decision not in ("absent", "undo") or request.settles_at is None or request.settles_at <= at:
        return ""
    done = "is undone" if decision.decision == "undo" else "runs"
    until = f"{request.settles_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"it {done} after {until}: until then, a request of it may still arrive"


def _vote(request: ApprovalRequest, decision: Decision, speaker: Principal) -> Vote:
    right = speaker.right if speaker.right != decision.by else ""
    return Vote(
        said=decision,
        seen=request.seen,
        right=right,
        proof=speaker.proof,
        key=speaker.key,
        standings=speaker.standings,
    )


def _tally(request: ApprovalRequest, votes: tuple[Vote, ...]) -> str:
    """Return the count of votes and the quorum of each policy that requires approval: `1 of 2`."""
    return ", ".join(
        f"{len(votes_for(votes, number))} of {each.terms.quorum}" + (f" ({each.rule})" if request.requirements else "")
        for number, each in enumerate(request.required)
    )


def _consequences(state: RunState, decision: Decision, request: ApprovalRequest, votes: tuple[Vote, ...]) -> Events:
    number = request.number
    by = ", ".join(vote.by for vote in votes)
    because = f": {decision.reason}" if decision.reason else ""
    call = state.calls.get(number)
    past = call.past
    if request.question:
        if decision.decision != "deny" or request.question.task:
            return []  # the call continues
        content = f"{decision.by} declined to answer the question of its server{because}"
        return [ev.ToolCallFinished(number=number, status="denied", content=call.feedback + content)]
    match decision.decision:
        case "approve":
            number = state.authority.rule_count + 1
            rule = rule_made_by(votes, number=number, quorum=request.quorum) if decision.remember else None
            if rule is None:
                return []
            voters = tuple(vote.by for vote in votes)
            return [ev.RuleRemembered(rule=rule.rule, tool=rule.tool, call_digest=rule.call_digest, by=voters)]
        case "absent" | "undo":
            return []
        case "deny":
            content = words_of(f"Denied by {decision.by}{because}", past)
            return [ev.ToolCallFinished(number=number, status="denied", content=content)]
        case "respond":
            verb = "answer" if len(votes) > 1 else "answers"
            content = words_of(f"Not called. {by} {verb} in its place: {decision.result}", past)
            return [ev.ToolCallFinished(number=number, status="answered", content=content)]
        case "happened":
            content = decision.result or f"Done. ({by} confirmed that it happened{because})"
            content = call.feedback + content
            return [ev.ToolCallFinished(number=number, status="ok", content=content, adopted=True)]
        case "abandon":
            content = f"{call.feedback}The outcome is unknown; {by} gave up finding out{because}"
            return [ev.ToolCallFinished(number=number, status="unknown", content=content)]
        case _:
            assert_never(decision.decision)


def on_due(state: RunState, *, at: datetime) -> Events:
    """Return the events that are due: reminders, escalations and decisions on expiry of open requests, and the ends of
    waits and of a pause. None for a run that was moved: they are due on the other cluster.
    """
    if state.outcome == "moved":
        return []
    events: Events = []
    for request in state.authority.requests:
        if request.expires_at and request.expires_at <= at:
            decision = request.on_expiry
            events.append(ev.ApprovalExpired(request=request.id, decision=decision))
            if request.question:
                content = "Denied: nobody answered the question of its server in time."
                ended = ev.ToolCallFinished(number=request.number, status="denied", content=content)
                events += [] if request.question.task else [ended]
            elif decision == "deny":
                past = state.calls.get(request.number).past
                content = words_of("Denied: the request expired before it was decided.", past)
                events.append(ev.ToolCallFinished(number=request.number, status="denied", content=content))
            continue
        if request.escalate_at and request.escalate_at <= at:
            step = request.next_escalation
            events.append(ev.ApprovalEscalated(request=request.id, by=step.by if step else ()))
        if request.remind_at and request.remind_at <= at:
            events.append(ev.ApprovalReminded(request=request.id))
    if state.dormancy.waits:
        events += on_sleep_due(state, at=at)
    if state.pause:
        events += on_pause_due(state, at=at)
    return events


def _authorize(
    state: RunState, decision: Decision, request: ApprovalRequest | None, *, at: datetime
) -> Principal | Rejection:
    if request is None or state.outcome:
        return _without_request(state, decision)
    if decision.decision not in request.answers:
        answers = " or ".join(request.answers)
        return Rejection("wrong_kind", f"request {request.id} asks for {answers}, not {decision.decision}")
    if decision.digest and decision.digest != request.digest:
        return Rejection("digest_mismatch", f"request {request.id} has the digest {request.digest}")
    speaker = standing_of(state, decision, request, at=at)
    if isinstance(speaker, Rejection):
        return speaker
    if decision.say and decision.decision != "approve":
        return Rejection("malformed", "`say` goes with approve; the agent reads the reason of any other decision")
    if decision.decision == "respond" and not decision.result:
        return Rejection("malformed", "give the answer as `result`")
    if request.question:
        return _refuse_answer(request.question, decision) or speaker
    if refusal := _refuse_edit(state, decision, state.calls.get(request.number), at=at):
        return refusal
    if state.constraints.kept and decision.decision in ("approve", "absent"):
        call = request.call(request.edit(decision.arguments))
        if refusal := refuse_approval(state, call, at=at):
            return refusal
    return speaker


def _refuse_answer(question: ServerQuestion, decision: Decision) -> Rejection | None:
    """Return why a server's question does not accept this decision; None if it does."""
    if decision.arguments is not None or decision.remember or decision.say:
        return Rejection("malformed", "the server has its arguments already: answer its question, or deny it")
    if decision.decision == "deny":
        return None
    answer = decision.result if decision.decision == "respond" else None
    why = accept(question, answer)
    return Rejection("malformed", why) if isinstance(why, str) else None


def _without_request(state: RunState, decision: Decision) -> Rejection:
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if how := state.authority.decided.get(decision.request):
        if ASKED_ANEW in how and state.features >= EDITS_ASK_ANEW:
            why = f"request {decision.request} is closed: {how}. Look at that one, and decide on it"
            return Rejection("too_late", why)
        late = "expired" in how
        return Rejection("too_late" if late else "duplicate", f"request {decision.request} was decided before: {how}")
    still_open = ", ".join(request.id for request in state.authority.requests) or "none"
    return Rejection("unknown_request", f"no request {decision.request}; open: {still_open}")


def _refuse_edit(state: RunState, decision: Decision, call: CallState, *, at: datetime) -> Rejection | None:
    """Return why the tool rejects the arguments that a person gives; None if it accepts them."""
    if decision.arguments is None:
        return None
    if decision.decision != "approve":
        return Rejection("malformed", f"arguments go with approve, not with {decision.decision}")
    assert state.spec is not None
    linear = state.features >= LINEAR_SCHEMAS
    if problem := _argument_problem(state.spec, call.call.name, decision.arguments, linear=linear):
        return Rejection("malformed", problem)
    edited = ToolCall(id="", name=call.call.name, arguments=exact_json(decision.arguments))
    if problem := call_problem(state.spec, edited, at=at):
        return Rejection("malformed", problem[:500])
    if polled := state.spec.polled_call(edited):
        problem = _argument_problem(state.spec, polled.name, parsed(polled.arguments), linear=linear)
        return Rejection("malformed", f"arguments.{problem}") if problem else None
    return None


def _argument_problem(spec: AgentSpec, name: str, arguments: dict[str, Any], *, linear: bool) -> str:
    """Return why the tool of that name rejects these arguments; empty if it accepts them."""
    tool = spec.tool(name)
    assert tool is not None
    if why := (unfit if linear else _unfit_in_0_1)(arguments, tool.parameters):
        return why
    if missing := tool.defaults.keys() - arguments.keys():
        # Every argument has to be judged; a default would be filled in after the verdict.
        return f"arguments: give every parameter, also {', '.join(sorted(missing))}"
    return ""


def _unfit_in_0_1(arguments: dict[str, Any], parameters: Mapping[str, Any]) -> str:
    with workflow.unsafe.imports_passed_through():
        import jsonschema  # here, because few processes ever need it
    try:
        jsonschema.validate(arguments, parameters)
    except jsonschema.ValidationError as error:
        place = ".".join(str(part) for part in error.absolute_path)
        return f"arguments{'.' if place else ''}{place}: {error.message}"[:500]
    return ""

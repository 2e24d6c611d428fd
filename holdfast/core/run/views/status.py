"""Describe a run's current activity and its next steps in words: for `show`, the gateway and the Web UI.

Pure functions of the state, recorded or live. Texts of people and tools in the descriptions are short and on one line;
the caller has to escape them for its output format.
"""

from datetime import datetime
from typing import Any, assert_never

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.base.models import Frozen, replace
from holdfast.core.base.text import one_line
from holdfast.core.budget.account import LLM_CALL
from holdfast.core.nodes import scope_text
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.fold.runs import unblock_run
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.state import next_actions as act
from holdfast.core.run.state.calls import Phase as CallPhase
from holdfast.core.run.state.dormancy import Wait as Sleep
from holdfast.core.run.state.features import KEEPS_TRUST, SIGNED_STEERING
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.deciders import may_steer, open_requests, pending_view
from holdfast.core.run.views.lifecycle import phase_of

SHOWN_REQUESTS = 10
"""Maximum number of open requests with an entry each."""


class NextStep(Frozen):
    """A possible next step."""

    when: str
    """The condition: `request 3 is approved`."""
    then: str
    """The consequence: `deploy runs`."""


def run_view(state: RunState) -> dict[str, Any]:
    """Return the state for `show`, with the lifecycle phase, the current activity and the next steps."""
    view = state_view(state)
    status = {
        "lifecycle": phase_of(state),
        "now": doing(state),
        "next": [each.model_dump() for each in following(state)],
    }
    view["pending"] = open_requests(state)
    view["may_steer"] = may_steer(state)
    return {**{name: view[name] for name in ("thread", "agent", "status")}, **status, **view}


def state_view(state: RunState) -> dict[str, Any]:
    """Return the state as `show` presents it (design: the CLI contract)."""
    return {
        "thread": state.thread,
        "agent": state.spec.name if state.spec else None,
        "status": state.status,
        "features": state.features,
        "step": state.steps.count,
        "events": state.events,
        "task": state.task,
        "refinements": [refinement.view() for refinement in state.refinements],
        "workspace": state.workspace,
        "schedule": state.origin.schedule,
        **({"caller": state.origin.caller} if state.origin.caller else {}),
        "fork": state.fork.view() if state.fork else None,
        "imported": state.imported.view() if state.imported else None,
        **({"lost": state.lost.view()} if state.lost else {}),
        "lineage": state.origin.lineage.view() if state.origin.lineage else None,
        "subagents": [child.view() for child in state.subagents.children],
        "pending": pending_view(state),
        **({"policy_change": state.policy_change} if state.policy_change else {}),
        "remembered": [rule.view() for rule in state.authority.rules],
        "delegated": [delegation.view() for delegation in state.authority.delegations],
        "constraints": [constraint.view() for constraint in state.constraints.kept],
        "delayed": [call.view() for call in state.calls.delayed],
        **({"places": state.places.view(state.scope)} if state.scope or state.places != Places() else {}),
        "blocked": state.blocked.view() if state.blocked else None,
        "paused": state.pause.view() if state.pause else None,
        "unattended": state.unattended,
        "steering": _steering(state),
        "dormancy": state.dormancy.view() if state.dormancy.waits or state.dormancy.buffered else None,
        "llm": state.spec.llm if state.spec else None,
        "limits": limits_of(state),
        "warning": warning_of(state),
        "trust": state.context.trust if state.features >= KEEPS_TRUST else None,
        **({"context": state.typed_context.latest} if state.typed_context.values is not None else {}),
        "usage": state.usage.model_dump(),
        "budget": state.account.view() if state.account.limits else None,
        "result": state.result if state.outcome or state.idle.awaiting or state.has_partial_result else None,
        "structured": state.structured and (state.outcome is not None or state.idle.awaiting),
        "updated_at": state.updated_at.isoformat(),
    }


def _steering(state: RunState) -> dict[str, Any] | None:
    """Return the values to which a statement that steers the run is bound; None if the run accepts none."""
    if state.features < SIGNED_STEERING:
        return None
    return {"run": state.origin.first_run_id, "seen": state.holds}


def limits_of(state: RunState) -> dict[str, int] | None:
    """Return each count that a limit of the agent bounds, with the limit; None until the agent is loaded."""
    if state.spec is None:
        return None
    limits = state.spec.limits
    return {
        "steps": state.steps.count,
        "step_limit": state.steps.limit,
        "rejected_replies": state.steps.rejected_replies,
        "max_rejected_replies": limits.max_rejected_replies,
        "max_calls": limits.max_calls,
        "repeats": state.repeats.highest if state.repeats.seen else 0,
        "repeats_asked": limits.repeats_asked,
    }


def warning_of(state: RunState) -> str:
    """Return advice to a person about a problem that does not stop the run; empty for none."""
    limit = state.spec.limits.compaction_tokens if state.spec else 0
    if state.outcome or not limit or state.context.floor < limit:
        return ""
    return (
        f"A compaction cannot shorten this context to its limit: {state.context.floor:,} tokens of {limit:,} "
        "(compaction_tokens) are instructions, tools, the task and what people said, which are kept word for word. "
        f"It is compacted at {2 * state.context.floor:,} tokens instead, or when the provider refuses a request as "
        "too long. Raise the limit, or put long texts into files."
    )


def doing(state: RunState) -> str:
    """Return the run's current activity: `calls the LLM for step 5`, `waits for a decision on request 3`."""
    if state.outcome:
        return f"was {state.outcome}" if state.outcome in ("cancelled", "moved") else f"has {state.outcome}"
    if state.moving:
        return "is being moved to another place"
    if state.places.until and not state.pause and not state.blocked:
        return _waits_for_node(state)
    action = _next(state)
    match action:
        case act.LoadAgent():
            return "waits for a worker to load its agent"
        case act.LoadPolicy():
            return f"asks its workers for the policy {state.policy_change[:16]}…, which it adopts"
        case act.CallLLM():
            return f"calls the LLM for step {state.steps.count + 1}"
        case act.Compact():
            return "compacts its context"
        case act.TakeMessages():
            count = len(state.inbox.waiting)
            what = "a message" if count == 1 else f"{count} messages"
            return f"shows {what} to the LLM, after the LLM call under way if there is one"
        case act.Verify(tools=tools, baseline=baseline):
            why = "for those who are asked to decide" if baseline else "after a long pause"
            return f"looks at the world with {_listed(tools)}, {why}"
        case act.ResolveCalls():
            return f"finds out what became of {_names(state, 'orphaned')}, which a closed run has left under way"
        case act.StartCalls():
            return f"starts {_names(state, 'allowed')}"
        case act.NoteProgress():
            return "notes in progress.txt where it is"
        case act.ReportBudget():
            return "notes how much of its budget is used"
        case act.AskForLearnings():
            return "asks the LLM what it has learnt"
        case act.EndSubagents():
            return f"cancels {len(state.subagents.open)} sub-agents in the background, before it ends"
        case act.Complete():
            return "ends with the answer that the LLM has given"
        case act.Block(cause=cause):
            return f"stops because of {cause}"
        case act.Fail():
            return "cancels its sub-agents, if it has any, and fails: nobody attends it"
        case act.Poll() | act.Wait() | act.Finish():
            return _waiting(state)
        case _:
            assert_never(action)


def _waits_for_node(state: RunState) -> str:
    fits = f"that fits {scope_text(state.scope)}" if state.scope else "that takes its work"
    last = f" ({one_line(state.places.rejected[-1].line, 200)})" if state.places.rejected else ""
    return f"waits until {_time(state.places.until)} for a node {fits}{last}"


def _next(state: RunState) -> act.Action:
    """Return the next action; `CallLLM` if the budget has a reservation for an LLM call, which is then under way."""
    action = next_action(state, at=state.updated_at)
    return act.CallLLM() if isinstance(action, act.ReportBudget) and LLM_CALL in state.account.reserved else action


def _waiting(state: RunState) -> str:
    if state.awaits_subagents:
        count, outside = max(1, len(state.subagents.open)), awaited(state)
        children = "1 sub-agent" if count == 1 else f"{count} sub-agents"
        return f"waits for {children}" + (f", and {outside}" if outside else "")
    running, outside = _listed([call.call.name for call in state.running_calls]), awaited(state)
    if previewing := _names(state, "previewing"):
        running = " and ".join(filter(None, (running, f"the preview of {previewing}")))
    if running:
        return f"runs {running}" + (f", and {outside}" if outside else "")
    return outside or "judges the calls of the LLM's reply"


def awaited(state: RunState) -> str:
    """Return the external inputs that the run waits for; empty if it waits for none."""
    if state.pause:
        until = f" until {_time(state.pause.until)}, or" if state.pause.until else ""
        return f"waits{until} for a person to resume it"
    if state.blocked and state.unattended:
        count = len(state.authority.requests)
        return "waits for people to say whether an effect happened, and then fails" if count else ""
    if state.blocked and state.blocked.cause == BUDGET_SPENT:
        return "waits for a person to extend its budget"
    if state.blocked:
        return f"waits for a person to fix the cause ({one_line(state.blocked.cause, 60)})"
    if state.status == "waiting_message":
        return "waits for a message" + (f", until {_time(state.idle.until)}" if state.idle.until else "")
    ids = [request.id for request in state.authority.requests]
    sleeps = one_line(state.dormancy.words, 300) if state.dormancy.waits else ""
    decisions = f"a decision on request {ids[0]}" if len(ids) == 1 else f"{len(ids)} decisions" if ids else ""
    repeats = " and ".join(
        f"{_time(call.starts_at)}, to {'repeat' if call.repeats else 'call'} {call.call.name}"
        for call in state.calls.delayed
    )
    external = " and for ".join(filter(None, (decisions, sleeps, repeats)))
    return f"waits for {external}" if external else ""


def following(state: RunState) -> tuple[NextStep, ...]:
    """Return the possible next steps, each with its condition; none for a run that is over."""
    if state.outcome:
        return ()
    if state.pause:
        comes = f"{_time(state.pause.until)} comes, or " if state.pause.until else ""
        resumed = replace(state, pause=None)
        return (NextStep(when=f"{comes}a person resumes it", then=f"it {doing(resumed)}"),)
    if state.blocked and state.unattended:
        return (NextStep(when="every effect is accounted for", then=f"the run fails ({state.blocked.cause})"),)
    if state.blocked and state.blocked.cause == BUDGET_SPENT:
        return (NextStep(when="a person sends `extend`", then="it calls the LLM again"),)
    if state.blocked:
        retried = f"it {doing(unblock_run(state))}"
        return (NextStep(when="the cause is fixed and a person sends `retry`", then=retried),)
    return _after(state, _next(state))


def _after(state: RunState, action: act.Action) -> tuple[NextStep, ...]:
    calls_llm = f"it calls the LLM for step {state.steps.count + 1}"
    end = "the run ends" if state.ends_at(state.updated_at) else ""
    match action:
        case act.LoadAgent():
            return (NextStep(when="its agent is loaded", then=calls_llm),)
        case act.LoadPolicy():
            return (NextStep(when="a worker has it", then="the calls that have not started are judged again"),)
        case act.CallLLM():
            last = "its answer" if state.idle.limit else "the result, and ends the run"
            then = f"the calls in the reply are judged; a reply without calls is {last}"
            return (NextStep(when="the LLM has replied", then=then),)
        case act.Compact():
            waits = f"it {awaited(state)}" if state.status == "waiting_message" else ""
            return (NextStep(when="its context is compacted", then=end or waits or calls_llm),)
        case act.TakeMessages():
            return (NextStep(when="the messages are shown", then=calls_llm),)
        case act.Verify(baseline=False):
            return (NextStep(when="it has looked", then="what was due before the pause follows"),)
        case act.Wait() if state.status == "waiting_message":
            ends = (NextStep(when=f"none comes before {_time(state.idle.until)}", then="it completes"),)
            return (NextStep(when="a message comes", then=calls_llm), *(ends if state.idle.until else ()))
        case act.StartCalls() | act.ResolveCalls() | act.Verify() | act.Poll() | act.Wait():
            steps = [each for request in state.authority.requests[:SHOWN_REQUESTS] for each in _decided(request)]
            steps += [_woken(state, wait) for wait in state.dormancy.waits[:SHOWN_REQUESTS]]
            return (*steps, NextStep(when="every call of the step has its result", then=end or calls_llm))
        case act.NoteProgress():
            blocked = f"it {_waiting(state)}" if state.blocked else ""
            return (NextStep(when="that is noted", then=end or blocked or calls_llm),)
        case act.ReportBudget():
            return (NextStep(when="that is recorded", then=calls_llm),)
        case act.AskForLearnings():
            return (NextStep(when="the LLM has replied", then="its notes are judged, and the run ends"),)
        case act.EndSubagents():
            return (NextStep(when="they have ended", then="the run ends"),)
        case act.Complete():
            return (NextStep(when="that is recorded", then="the run is over"),)
        case act.Fail():
            return (NextStep(when="that is recorded", then="the run is over, as failed"),)
        case act.Block() | act.Finish():
            return ()
        case _:
            assert_never(action)


def _decided(request: ApprovalRequest) -> list[NextStep]:
    """Return the consequences of a decision on a request, and of its expiry."""
    name = f"request {request.id}"
    if request.kind == "reconcile":
        return [NextStep(when=f"{name} is decided", then=f"it is known what became of {request.tool}")]
    if request.kind == "question":
        return [NextStep(when=f"{name} is answered", then=f"{request.tool} continues")]
    follows = [NextStep(when=f"{name} is approved", then=f"{request.tool} runs")]
    if request.expires_at:
        when = f"{name} is not decided before {_time(request.expires_at)}"
        denied = request.on_expiry == "deny"
        follows.append(NextStep(when=when, then="it is denied" if denied else f"{request.tool} runs"))
    return follows


def _woken(state: RunState, wait: Sleep) -> NextStep:
    """Return the consequence of the end of a wait."""
    first = f"{one_line(wait.trigger.words, 200)} comes, or a message or `wake`"
    return NextStep(when=first, then=f"{state.calls.get(wait.number).call.name} has its result")


def _names(state: RunState, phase: CallPhase) -> str:
    return _listed([call.call.name for call in state.calls.current if call.phase == phase])


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Join names: `look`, `look and pay`, or the first few of many."""
    shown = list(dict.fromkeys(names))[:5]
    if len(names) > len(shown):
        return f"{', '.join(shown)} ({len(names)} calls)"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else ""

"""The fold over events: `state = evolve(state, event)`. Nothing else changes a state."""

from datetime import timedelta
from functools import reduce
from typing import Any, assert_never

from holdfast.llm.content import size_of
from holdfast.llm.messages import more_than_text, text_of
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunReset,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.run.decision_fold import (
    asked_by,
    decided,
    expired,
    lent,
    moved,
    raised,
    remembered,
    requested,
    taken_back,
    voted,
)
from holdfast.run.state import Blocked, CallState, Found, RunState, Waiting
from holdfast.seals.starts import START_WITHIN
from holdfast.tools.effects import PastEffect
from holdfast.transcript.transcript import clip
from holdfast.trust import Trust, least

SAID_CHARS = 64_000
"""Characters of follow-up messages that survive a fold verbatim; the oldest make room."""

STANDING = 50
"""Denials and effects in doubt that survive a fold verbatim; the oldest make room."""

STANDING_CHARS = 1_000
"""Characters of each."""

REASON_CHARS = 2_000
"""Of why a person is asked, after a reset."""


def evolve(state: RunState, event: AgentEvent) -> RunState:
    """The state after `event`.

    Raises:
        EventOutOfPlace: Nothing that came before leads to it.
    """
    change = {"remembering": None, **_change(state, event), **_time_passed(state, event)}
    return state.model_copy(update={**change, "events": state.events + 1, "updated_at": event.at})


def _time_passed(state: RunState, event: AgentEvent) -> dict[str, Any]:
    """How long ago the agent last did something, where that is so long that it has to look at the world first.

    Whatever it was that took so long: people, an outage, a slow tool, a thread that was closed meanwhile. Once stale,
    it stays so until it has looked: an LLM that answers after a day answers what it was sent before.
    """
    if isinstance(event, StateVerified):
        return {"stale_seconds": 0, "acted_at": event.at}
    acted: dict[str, Any] = {"acted_at": event.at} if _acts(state, event) else {}
    if isinstance(event, AgentLoaded):
        state = state.model_copy(update={"spec": event.spec})
    # While no agent is loaded, nobody knows whether it will look: what is known of the pause stays.
    return {**acted, "stale_seconds": state.paused(event.at)} if state.spec else acted


def _acts(state: RunState, event: AgentEvent) -> bool:
    """Whether the agent itself does something. What anybody sends does not make a run look fresh."""
    match event:
        case LLMReplied() | ToolCallStarted() | AgentLoaded():
            return True
        case ToolCallFinished(status="ok" | "failed" | "undone"):
            return any(call.number == event.number and call.phase == "started" for call in state.calls)
        case _:
            return False


def _change(state: RunState, event: AgentEvent) -> dict[str, Any]:
    match event:
        case RunStarted():
            return _started(state, event)
        case RunReset():
            return _reset(state, event)
        case RunContinued() | SignalRejected() | RefusalsCounted():
            return {}
        case UserMessageReceived():
            text, known = text_of(event.content), asked_by(state, event)
            if event.position == 1:
                return {"task": text, "user": event.by, **known}
            if event.by != state.user:
                known["user_proven"] = False  # what is remembered for one person is not recalled for another
            more, size = more_than_text(event.content), size_of(event.content)
            kept = clip(text, SAID_CHARS)
            waiting = Waiting(message=event.position, text=kept, by=event.by, more=more, size=size)
            return {**known, "inbox": (*state.inbox, waiting)}
        case MessageTaken():
            return _taken(state, event)
        case AgentLoaded():
            limits = event.spec.limits
            loaded = {"spec": event.spec, "spec_hash": event.spec_hash, "workspace": event.workspace}
            loaded["notify"] = event.notify
            loaded["memory"] = ""  # what is recalled now comes next
            idle_limit = limits.idle_limit if state.idle_limit < 0 else state.idle_limit
            return {**loaded, "step_limit": state.step + limits.max_steps, "idle_limit": idle_limit}
        case MemoryRecalled():
            standing = next((tier.text for tier in event.tiers if tier.tier == "standing"), "")
            files = any(tier.tier == "files" for tier in event.tiers)
            return {"memory": standing, **(_read(state, "tool") if files else {})}
        case LLMReplied():
            tokens = event.usage.prompt_tokens + event.usage.completion_tokens
            counted = {"usage": state.usage + event.usage, "context_tokens": tokens, "overflow": 0, "oversized": False}
            heard = {"unanswered": 0, "unanswered_bytes": 0}
            return {"step": state.step + 1, "calls": (), "baseline": (), **heard, **counted}
        case MessageAwaited():
            until = event.at + timedelta(seconds=state.idle_limit)
            return {"awaiting": True, "idle_until": until, "result": event.result, "rejected_replies": 0}
        case ContextExceeded():
            return {"overflow": state.overflow + 1, "oversized": True}
        case ContextCompacted():
            told = {"summary": event.summary, "usage": state.usage + event.usage}
            return {**told, "context_tokens": 0, "oversized": False, "compacted_at": state.step, "rejected_replies": 0}
        case ReplyRejected():
            return {"rejected_replies": state.rejected_replies + 1}
        case ToolCallRequested():
            return _called(state, event)
        case VerdictGiven(verdict="allow"):
            return {"rejected_replies": 0, "calls": moved(state, event.number, phase="allowed", terms=event.terms)}
        case VerdictGiven():
            return {"rejected_replies": 0}
        case ApprovalRequested() | ReconcileRequested():
            return requested(state, event)
        case ApprovalReminded():
            return raised(state, event.request, reminded=1)
        case ApprovalEscalated():
            return raised(state, event.request, level=1)
        case ApprovalExpired():
            return expired(state, event)
        case DecisionReceived(outcome="accepted"):
            return decided(state, event)
        case DecisionReceived(outcome="waiting_for_quorum"):
            return voted(state, event)
        case DecisionReceived():
            return {}
        case StateVerified():
            return {**_read(state, _found(state, event)), "baseline": tuple(map(Found.of, event.findings))}
        case BaselineRecorded():
            return {"baseline": tuple(map(Found.of, event.findings))}
        case RuleRemembered():
            return remembered(state, event)
        case RuleRevoked():
            return {"remembered": tuple(rule for rule in state.remembered if rule.rule != event.rule)}
        case AuthorityDelegated():
            return lent(state, event)
        case DelegationRevoked():
            return taken_back(state, event)
        case ToolCallStarted():
            return {"calls": moved(state, event.number, phase="started", grant="", begun=True)}
        case ToolCallFinished():
            return _finished(state, event)
        case RunBlocked():
            after = event.outage.words(event.at) if event.outage else ""
            return {"blocked": Blocked(cause=event.cause, message=event.message, after=after)}
        case RunUnblocked():
            at_limit = state.spec is not None and state.step >= state.step_limit
            granted = state.spec.limits.max_steps if state.spec and at_limit else 0
            # Where nothing was left to fold, the request is made once more as it is.
            oversized = state.oversized and state.overflow <= 2 and state.step > 0
            again = {"rejected_replies": 0, "overflow": min(state.overflow, 2), "oversized": oversized}
            return {"blocked": None, "step_limit": state.step_limit + granted, **again}
        case RunFinished():
            ended = {"outcome": event.outcome, "result": event.result, "failure": event.cause}
            return {**ended, "blocked": None, "requests": (), "awaiting": False, "idle_until": None}
        case _:
            assert_never(event)


def _started(state: RunState, event: RunStarted) -> dict[str, Any]:
    """A thread that was closed begins again where it ended; its agent is resolved anew."""
    past = state.spec
    # Nobody followed what an agent has read that did not mind, and the next one may.
    unknown = past is not None and not past.depends_on_trust and bool(past.tools or past.memory.files)
    trust = "web" if unknown else least(state.trust, event.trust)
    idle_limit = -1 if event.idle_limit is None else event.idle_limit
    ended: dict[str, Any] = {"depth": event.depth, "trust": trust}
    ended |= {"first_run_id": event.first_run_id, "sealed": event.sealed}
    ended |= {"calls": tuple(_orphaned(state, call) for call in state.calls), "requests": (), "past": ()}
    ended["user_proven"] = state.user_proven and event.user_proven
    ended |= {"outcome": None, "result": "", "failure": "", "blocked": None, "awaiting": False, "idle_until": None}
    # A start that is older is refused for its age (`holdfast.seals.starts`).
    starts = {name: at for name, at in state.starts.items() if event.at - at < 3 * START_WITHIN}
    ended["starts"] = {**starts, event.start: event.at} if event.start else starts
    return {"thread": event.thread, "spec": None, "idle_limit": idle_limit, "rejected_replies": 0, **ended}


def _orphaned(state: RunState, call: CallState) -> CallState:
    """A call as a thread that is continued has it: an effect under way when the thread was closed is to be settled."""
    if call.phase == "finished":
        return call
    past = PastEffect(
        number=call.number,
        first_run_id=state.first_run_id,
        tool=call.call.name,
        call_digest=call.call.digest,
        key=state.effect_key(call.number, call.call),
        epoch=call.epoch,
    )
    return call.model_copy(update={"phase": "orphaned", "request": None, "past": call.past or past})


def _reset(state: RunState, event: RunReset) -> dict[str, Any]:
    """What happened after the point that the run is at again: calls that have not begun meet their own effects."""
    known = {effect.key for effect in state.past}
    change: dict[str, Any] = {"calls": state.calls, "requests": state.requests, "past": state.past}
    for effect in event.effects:
        if call := _meeting(change["calls"], state, effect):
            change["calls"] = moved(state.model_copy(update=change), call.number, past=effect)
            change["requests"] = tuple(
                each.model_copy(update={"why": f"{each.why}; {effect.words}"[:REASON_CHARS]})
                if each.number == call.number
                else each
                for each in change["requests"]
            )
        elif effect.key not in known:
            change["past"] += (effect,)
    return change


def _meeting(calls: tuple[CallState, ...], state: RunState, effect: PastEffect) -> CallState | None:
    """The call of the step that has had an effect: its own, or the same one, where nobody has to be asked."""
    for call in calls:
        free = not call.begun and call.past is None and call.phase in ("requested", "awaiting_approval", "allowed")
        if free and effect.key == state.effect_key(call.number, call.call):
            return call
    for call in calls:
        free = not call.begun and call.past is None and call.phase == "allowed" and not call.grant
        if free and (effect.tool, effect.call_digest) == (call.call.name, call.call.digest):
            return call
    return None


def _called(state: RunState, event: ToolCallRequested) -> dict[str, Any]:
    past = next((effect for effect in state.past if event.past and effect.key == event.past), None)
    call = CallState(number=event.number, call=event.call, past=past, epoch=past.epoch if past else 0)
    left = tuple(effect for effect in state.past if effect is not past)
    return {"calls": (*state.calls, call), "call_count": event.number, "past": left}


def _taken(state: RunState, event: MessageTaken) -> dict[str, Any]:
    taken = next(waiting for waiting in state.inbox if waiting.message == event.message)
    said = [*state.said, taken]
    while len(said) > 1 and sum(len(each.text) for each in said) > SAID_CHARS:
        del said[0]
    inbox = tuple(waiting for waiting in state.inbox if waiting is not taken)
    unsaid = state.unsaid + len(state.said) + 1 - len(said)
    heard = {"unanswered": state.unanswered + 1, "unanswered_bytes": state.unanswered_bytes + taken.size}
    return {"inbox": inbox, "said": tuple(said), "unsaid": unsaid, "awaiting": False, "idle_until": None, **heard}


def _finished(state: RunState, event: ToolCallFinished) -> dict[str, Any]:
    change: dict[str, Any] = {
        "calls": moved(state, event.number, phase="finished", request=None),
        "requests": tuple(request for request in state.requests if request.number != event.number),
    }
    if event.status in ("denied", "unknown"):
        call = state.call(event.number).call
        line = f"{call.name}({call.arguments}): {event.content}"[:STANDING_CHARS]
        change["standing"] = (*state.standing, line)[-STANDING:]
    tool = state.spec.tool(state.call(event.number).call.name) if state.spec else None
    if tool and event.status in ("ok", "failed", "undone"):
        # What a failed call says may quote anything: it is never the LLM's own words.
        label = least(tool.trust, "tool") if event.status == "failed" else tool.trust
        change |= _read(state, event.trust or label)
    return change


def _found(state: RunState, event: StateVerified) -> Trust:
    """What the findings are worth: no more than any tool's results."""
    tools = {tool.name: tool.trust for tool in state.spec.tools} if state.spec else {}
    return reduce(least, (each.trust or tools.get(each.tool, "tool") for each in event.findings), "tool")


def _read(state: RunState, trust: Trust) -> dict[str, Any]:
    """The LLM reads something of that trust. Kept only where it matters: a snapshot says no more than it has to."""
    return {"trust": least(state.trust, trust)} if state.spec and state.spec.depends_on_trust else {}

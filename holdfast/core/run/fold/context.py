"""The fold of replies, messages, memory and findings: everything that the LLM reads besides tool results."""

from functools import reduce

from holdfast.core.authority.claims import claim_of
from holdfast.core.base.models import replace
from holdfast.core.llm.blocks import more_than_text, text_of
from holdfast.core.llm.messages import size_of
from holdfast.core.log import events as ev
from holdfast.core.run.fold.calls import lower_trust
from holdfast.core.run.state.context import FOLLOW_UPS_CHARS, TaskRefinement, WaitingMessage
from holdfast.core.run.state.features import CLAIMS, COMPACTION_MUST_HELP, MESSAGE_IDS
from holdfast.core.run.state.freshness import FindingDigest
from holdfast.core.run.state.progress import Repeats
from holdfast.core.run.state.state import RunState
from holdfast.core.transcript.transcript import clip
from holdfast.core.trust import Trust, least


def begin_step(state: RunState, event: ev.LLMReplied) -> RunState:
    """Begin a step."""
    step = state.steps.count + 1
    request_tokens = max(event.usage.prompt_tokens, event.request_tokens)
    context = state.context.record_reply(request_tokens + event.usage.completion_tokens)
    if state.features >= COMPACTION_MUST_HELP and state.spec and step == context.compacted_at + 1:
        context = context.with_floor(request_tokens, state.spec.limits.compaction_tokens)
    claim = claim_of(event.message) if state.features >= CLAIMS and event.message else ""
    return replace(
        state,
        steps=replace(state.steps, count=step),
        pauses=0,
        calls=state.calls.next_step(claim),
        constraints=state.constraints.active(event.at) if state.constraints.kept else state.constraints,
        inbox=state.inbox.mark_answered(),
        context=context,
        ending=state.ending.replied(),
        freshness=replace(state.freshness, baseline=()),
        usage=state.usage + event.usage,
    )


def compact(state: RunState, event: ev.ContextCompacted) -> RunState:
    """Compact the context to a summary."""
    context, steps = state.context.record_compaction(event.summary, step=state.steps.count), state.steps.use_reply()
    return replace(state, context=context, steps=steps, usage=state.usage + event.usage)


def request_compaction(state: RunState, event: ev.CompactionRequested) -> RunState:
    """Record a request for a compaction. The author of a summary becomes a requester."""
    context = state.context.request_compaction(summary=event.summary, by=event.by)
    if not event.summary:
        return replace(state, context=context)
    authority = state.authority.add_requester(event.by)
    if not event.proof:
        authority = replace(authority, requesters_unproven=True)
    elif event.until:
        authority = authority.use_statement(event.said.signed_digest(state.thread), until=event.until, at=event.at)
    return replace(state, context=context, authority=authority, origin=state.origin.note_sender(event.by))


def receive_message(state: RunState, event: ev.UserMessageReceived) -> RunState:
    """Receive a person's message. The first one is the task; later ones wait."""
    authority, text = state.authority, text_of(event.content)
    if event.proof and event.until:
        authority = authority.use_statement(event.said.signed_digest(state.thread), until=event.until, at=event.at)
    if not event.proof and not event.task:
        authority = replace(authority, requesters_unproven=True)
    authority = authority.add_requester(event.by)
    if event.position == 1:
        return replace(state, task=text, origin=replace(state.origin, user=event.by), authority=authority)
    message = WaitingMessage(
        message=event.position,
        text=clip(text, FOLLOW_UPS_CHARS),
        by=event.by,
        more=more_than_text(event.content),
        size=size_of(event.content),
    )
    # The agent reads the message at the end of the step, so calls that are delayed as repeats start now.
    calls, inbox = state.calls.without_delays(), state.inbox.receive(message)
    if state.features >= MESSAGE_IDS:
        inbox = inbox.record_id(event.id, event.content, event.by)
    dormancy = state.dormancy.record_hops(0) if state.dormancy.hops else state.dormancy
    origin = state.origin.note_sender(event.by)
    return replace(state, origin=origin, inbox=inbox, authority=authority, calls=calls, dormancy=dormancy)


def refine_task(state: RunState, event: ev.TaskRefined) -> RunState:
    """Refine the task. The refinement waits like a message, and its sender becomes a requester.

    A refinement by the agent's own call does not wait: the LLM reads it as the call's result.
    """
    authority = state.authority
    if not event.proof:
        authority = replace(authority, requesters_unproven=True)
    refinement = TaskRefinement(
        number=event.refinement,
        message=event.position,
        kind=event.kind,
        text=event.text,
        by=event.by,
        at=event.at,
        id=event.id,
        proof=event.proof,
        own=event.call is not None,
    )
    if event.call is not None:
        return replace(state, refinements=(*state.refinements, refinement))
    waiting = WaitingMessage(message=event.position, text=event.text, by=event.by, size=size_of(event.text))
    return replace(
        state,
        refinements=(*state.refinements, refinement),
        origin=state.origin.note_sender(event.by),
        inbox=state.inbox.receive(waiting),
        calls=state.calls.without_delays(),
        authority=authority.add_requester(event.by),
    )


def reclassify_run(state: RunState, event: ev.RunReclassified) -> RunState:
    """Reclassify the run: its agent is loaded later, and `keep_account` lowers the budget. It waits like a message, and
    its sender becomes a requester.
    """
    authority = state.authority.add_requester(event.by)
    if not event.proof:
        authority = replace(authority, requesters_unproven=True)
    elif event.until:
        authority = authority.use_statement(event.said.signed_digest(state.thread), until=event.until, at=event.at)
    own = state.spec is not None and event.agent == state.spec.name
    waiting = WaitingMessage(message=event.position, text=event.notice, by=event.by, size=size_of(event.notice))
    after = replace(
        state,
        next_agent="" if own else event.agent or state.next_agent,
        origin=state.origin.note_sender(event.by),
        inbox=state.inbox.receive(waiting),
        calls=state.calls.without_delays(),
        authority=authority,
    )
    return lower_trust(after, event.trust) if event.trust else after


def take_message(state: RunState, event: ev.MessageTaken) -> RunState:
    """Show the LLM a waiting message, or a waiting refinement, which a compaction keeps separately."""
    message, context = state.inbox.find(event.message), state.context
    if all(refinement.message != event.message for refinement in state.refinements):
        context = context.add_follow_up(message)
    inbox, idle, ending = state.inbox.take(message), state.idle.end(), state.ending.put_off()
    return replace(state, inbox=inbox, context=context, idle=idle, ending=ending, repeats=Repeats())


def await_message(state: RunState, event: ev.MessageAwaited) -> RunState:
    """Keep the LLM's answer, and begin to wait for a follow-up message."""
    idle, steps = state.idle.begin(event.at), state.steps.use_reply()
    return replace(state, idle=idle, result=event.result, structured=event.structured, steps=steps)


def recall(state: RunState, event: ev.MemoryRecalled) -> RunState:
    """Keep the standing memory, and lower the trust level to that of the memory files that the LLM reads."""
    standing = next((tier.text for tier in event.tiers if tier.tier == "standing"), "")
    recalled = replace(state, context=replace(state.context, standing_memory=standing))
    return reduce(lower_trust, (tier.trust for tier in event.tiers if tier.tier == "files"), recalled)


def keep_baseline(state: RunState, findings: tuple[ev.Finding, ...]) -> RunState:
    """Keep the findings of the `verify` tools: the state of the world for which the approvals of this step hold."""
    baseline = tuple(map(FindingDigest.of, findings))
    return replace(state, freshness=replace(state.freshness, baseline=baseline))


def verify(state: RunState, event: ev.StateVerified) -> RunState:
    """Keep the findings of the `verify` tools after a long pause. The LLM reads them, at the trust level of results."""
    tools = {tool.name: tool.trust for tool in state.spec.tools} if state.spec else {}
    trust: Trust = reduce(least, (each.trust or tools.get(each.tool, "tool") for each in event.findings), "tool")
    return lower_trust(keep_baseline(state, event.findings), trust)

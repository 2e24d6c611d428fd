"""How messages, replies and results change a run's state, and the trust in the LLM that reads them."""

from functools import reduce

from holdfast.base.replacing import replace
from holdfast.errors import EventOutOfPlace
from holdfast.llm.blocks import more_than_text, text_of
from holdfast.llm.content import size_of
from holdfast.log.events import (
    DormancyBegan,
    Finding,
    LLMReplied,
    MessageTaken,
    StateVerified,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
    UserMessageReceived,
)
from holdfast.run.ending import progress_due
from holdfast.run.features import COMPACTION_MUST_HELP, KEEPS_TRUST
from holdfast.run.repeats import counted
from holdfast.run.state import RunState
from holdfast.run.substates.context import FOLLOW_UPS_CHARS
from holdfast.run.substates.dormancy import Polls, Wait
from holdfast.run.substates.freshness import FindingDigest
from holdfast.run.substates.inbox import TaskRefinement, WaitingMessage
from holdfast.run.substates.repeats import Repeats
from holdfast.tools.triggers import PollTrigger
from holdfast.transcript.transcript import clip
from holdfast.trust import Trust, least


def receive_message(state: RunState, event: UserMessageReceived) -> RunState:
    """Receive a person's message: the first one is the task, a later one waits."""
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
    # The agent reads the message at the end of the step: what only waits because it repeats itself starts now.
    calls, inbox = state.calls.without_delays(), state.inbox.receive(message)
    return replace(state, origin=state.origin.heard(event.by), inbox=inbox, authority=authority, calls=calls)


def refine_task(state: RunState, event: TaskRefined) -> RunState:
    """Refine the task: the refinement waits like a message, and who makes it asks for what follows.

    The LLM reads that of its own call as the call's result.
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
        origin=state.origin.heard(event.by),
        inbox=state.inbox.receive(waiting),
        calls=state.calls.without_delays(),
        authority=authority.add_requester(event.by),
    )


def take_message(state: RunState, event: MessageTaken) -> RunState:
    """Show a waiting message to the LLM, or a refinement of the task, which a compaction keeps apart."""
    message, context = state.inbox.find(event.message), state.context
    if all(refinement.message != event.message for refinement in state.refinements):
        context = context.add_follow_up(message)
    inbox, idle, ending = state.inbox.take(message), state.idle.end(), state.ending.put_off()
    return replace(state, inbox=inbox, context=context, idle=idle, ending=ending, repeats=Repeats())


def begin_step(state: RunState, event: LLMReplied) -> RunState:
    """Begin a step."""
    step = state.steps.count + 1
    request_tokens = max(event.usage.prompt_tokens, event.request_tokens)
    context = state.context.answered(request_tokens + event.usage.completion_tokens)
    if state.features >= COMPACTION_MUST_HELP and state.spec and step == context.compacted_at + 1:
        context = context.with_floor(request_tokens, state.spec.limits.compaction_tokens)
    return replace(
        state,
        steps=replace(state.steps, count=step),
        pauses=0,
        calls=state.calls.next_step(),
        constraints=state.constraints.unended(event.at),
        inbox=state.inbox.answered(),
        context=context,
        ending=state.ending.replied(),
        freshness=replace(state.freshness, baseline=()),
        usage=state.usage + event.usage,
    )


def begin_wait(state: RunState, event: DormancyBegan) -> RunState:
    """Let a started call sleep.

    Raises:
        EventOutOfPlace: It has not started, or sleeps already.
    """
    if all(call.number != event.number for call in state.running_calls):
        raise EventOutOfPlace(f"call {event.number} has not started, or sleeps already")
    polls = Polls(again=event.at) if isinstance(event.trigger, PollTrigger) else None
    wait = Wait(number=event.number, trigger=event.trigger, since=event.at, polls=polls)
    return replace(state, dormancy=state.dormancy.began(wait, wake=event.wake))


def start_subagent(state: RunState, event: SubagentStarted) -> RunState:
    """Add a child run of a started call.

    Raises:
        EventOutOfPlace: The call has not started, or has started one already.
    """
    if state.calls.get(event.number).phase != "started":
        raise EventOutOfPlace(f"call {event.number} has not started")
    return replace(state, subagents=state.subagents.started(event))


def end_subagent(state: RunState, event: SubagentEnded) -> RunState:
    """Note how a child run ended. The LLM reads the reasons of its constraints, which are as trusted as its words.

    Raises:
        EventOutOfPlace: There is no such open child.
    """
    taken = state.constraints.take_over(event.constraints, number=event.number, at=event.at)
    state = replace(state, subagents=state.subagents.ended(event), constraints=taken)
    return lower_trust(state, event.trust) if event.constraints else state


def request_call(state: RunState, event: ToolCallRequested) -> RunState:
    """Add a call to the current step. A call of the run's own is what it had to note in progress.txt."""
    calls = state.calls.request(event.number, event.call, past=event.past, own=event.own)
    if not event.own:
        return replace(state, calls=calls)
    noted = progress_due(state, at=event.at)
    if not noted:
        raise EventOutOfPlace("the run has nothing to note in progress.txt")
    return replace(state, calls=calls, ending=replace(state.ending, noted=noted))


def finish_call(state: RunState, event: ToolCallFinished) -> RunState:
    """Give a call its result, which the LLM reads; an open request about the call is closed."""
    call = state.calls.get(event.number)
    after = replace(
        state,
        calls=state.calls.put(replace(call, phase=call.after("finish"), request=None)),
        authority=state.authority.without_requests_about(event.number),
        dormancy=state.dormancy.ended(event.number),
        repeats=counted(state, event),
    )
    if call.own:
        return after  # the LLM reads nothing of it
    if event.status in ("denied", "unknown"):
        line = f"{call.call.name}({call.call.arguments}): {event.text}"
        after = replace(after, context=after.context.add_unresolved_call(line))
    if event.scope:
        refused = (
            state.spec.polled_call(call.call) if state.spec else None
        ) or call.call  # what said so is the tool that was polled
        constraints = after.constraints.add(
            event.number, refused, scope=event.scope, reason=event.text, until=event.until, at=event.at
        )
        after = replace(after, constraints=constraints)
    tool = state.spec.tool(call.call.name) if state.spec else None
    if tool and event.status in ("ok", "failed", "undone", "cannot"):
        # The message of a failed call may quote anything: it never counts as the LLM's own words.
        label = least(tool.trust, "tool") if event.status in ("failed", "cannot") else tool.trust
        after = lower_trust(after, event.trust or label)
    return after


def lower_trust(state: RunState, trust: Trust) -> RunState:
    """Lower the trust in the LLM to that of what it reads."""
    context = state.context
    kept = state.features >= KEEPS_TRUST or state.origin.lineage is not None
    depends = state.spec is not None and (kept or state.spec.depends_on_trust)
    if not depends or least(context.trust, trust) == context.trust:
        return state
    return replace(state, context=replace(context, trust=least(context.trust, trust)))


def keep_baseline(state: RunState, findings: tuple[Finding, ...]) -> RunState:
    """Keep what the `verify` tools found: approvals of this step are good for it."""
    baseline = tuple(map(FindingDigest.of, findings))
    return replace(state, freshness=replace(state.freshness, baseline=baseline))


def trust_of_findings(state: RunState, event: StateVerified) -> Trust:
    """Return how far the findings can be trusted: no further than the results of any tool."""
    tools = {tool.name: tool.trust for tool in state.spec.tools} if state.spec else {}
    return reduce(least, (each.trust or tools.get(each.tool, "tool") for each in event.findings), "tool")

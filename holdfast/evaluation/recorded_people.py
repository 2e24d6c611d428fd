"""Gives a play what people gave the recorded run: decisions, messages, refinements, retries and extensions."""

from contextlib import suppress

from holdfast.api.thread import Thread
from holdfast.api.views import ThreadState
from holdfast.api.waiting import wait
from holdfast.client.threads import Threads
from holdfast.core.llm.blocks import text_of
from holdfast.core.log.events import AgentEvent, ApprovalRequested, ToolCallRequested
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.errors import Refused
from holdfast.evaluation.compare.recording import RecordedInput
from holdfast.evaluation.recorded_results import Play

NOBODY = "recording"
"""Who decides where the recorded run's policy did, at the expiry of a request."""
_POLL = 0.01


async def drive(play: Play, thread: Thread, threads: Threads) -> None:
    """Give the play what people gave the recorded run, until it needs something else."""
    unblocked, extensions = list(play.recording.unblocked), list(play.recording.extensions)
    while True:
        state = await wait(threads, play.thread, until="attention", poll=_POLL)
        match state.status:
            case "completed" | "waiting_message" if play.inputs:
                await send(thread, play.inputs.pop(0))
            case "waiting_approval":
                if not await _decide(play, thread, state):
                    return
            case "blocked" if state.blocked and state.blocked.cause == "BudgetSpent" and extensions:
                await thread.extend(extensions.pop(0))
            case "blocked" if state.blocked and state.blocked.cause in unblocked:
                if state.blocked.cause == LLM_REJECTED:
                    return
                unblocked.remove(state.blocked.cause)
                await thread.retry()
            case _:
                return


async def send(thread: Thread, given: RecordedInput) -> None:
    """Send a play a message or a refinement of its task. In another course, it may come too late."""
    with suppress(Refused):
        if given.refinement:
            await thread.refine(given.refinement, text_of(given.content), by=given.by)
        else:
            await thread.say(given.content, by=given.by)


async def _decide(play: Play, thread: Thread, state: ThreadState) -> bool:
    """Decide open requests as they were decided in the recording; False if that has none of these decisions."""
    calls = dict[int, str]()
    asked = dict[str, str]()
    for event in await events_of(thread):
        match event:
            case ToolCallRequested(number=number):
                calls[number] = event.call.digest
            case ApprovalRequested():
                asked[event.request.id] = calls.get(event.request.number, "")
            case _:
                pass
    decided = False
    for request in state.pending:
        if made := play.decisions.get(asked.get(request.request, "")):
            decision = made.pop(0)
            given = decision.model_dump(exclude={"decision", "by"})
            with suppress(Refused):
                await thread.decide(request, decision.decision, by=decision.by or NOBODY, **given)
            decided = True
    return decided


async def events_of(thread: Thread) -> list[AgentEvent]:
    """Return the events of a thread so far."""
    return [event async for event in thread.events()]

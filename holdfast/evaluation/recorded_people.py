"""Repeats in a rerun the recorded input of people: decisions, messages, refinements, retries and extensions."""

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
from holdfast.evaluation.recorded_results import Rerun

NOBODY = "recording"
"""The name under which a rerun repeats decisions that the policy made when a request expired."""
_POLL = 0.01


async def drive(rerun: Rerun, thread: Thread, threads: Threads) -> None:
    """Repeat the recorded input of people, until the rerun needs input that is not in the recording."""
    unblocked, extensions = list(rerun.recording.unblocked), list(rerun.recording.extensions)
    while True:
        state = (await wait(threads, rerun.thread, until="answer", poll=_POLL)).state
        match state.status:
            case "completed" | "waiting_message" if rerun.inputs:
                await send(thread, rerun.inputs.pop(0))
            case "waiting_approval":
                if not await _decide(rerun, thread, state):
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


async def send(thread: Thread, recorded: RecordedInput) -> None:
    """Send a rerun a message or a refinement of its task. If the rerun diverged, it may come too late."""
    with suppress(Refused):
        if recorded.refinement:
            await thread.refine(recorded.refinement, text_of(recorded.content), by=recorded.by)
        else:
            await thread.say(recorded.content, by=recorded.by)


async def _decide(rerun: Rerun, thread: Thread, state: ThreadState) -> bool:
    """Repeat the recorded decisions about the open requests; return False if there are none."""
    calls = dict[int, str]()
    requests = dict[str, str]()
    for event in await events_of(thread):
        match event:
            case ToolCallRequested(number=number):
                calls[number] = event.call.digest
            case ApprovalRequested():
                requests[event.request.id] = calls.get(event.request.number, "")
            case _:
                pass
    decided = False
    for request in state.pending:
        if decisions := rerun.decisions.get(requests.get(request.request, "")):
            decision = decisions.pop(0)
            fields = decision.model_dump(exclude={"decision", "by"})
            with suppress(Refused):
                await thread.decide(request, decision.decision, by=decision.by or NOBODY, **fields)
            decided = True
    return decided


async def events_of(thread: Thread) -> list[AgentEvent]:
    """Return the events of a thread so far."""
    return [event async for event in thread.events()]

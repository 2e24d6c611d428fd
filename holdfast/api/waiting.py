"""Wait until a thread has ended, or needs a person."""

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Literal

from temporalio.client import WorkflowExecutionDescription, WorkflowHistoryEventFilterType
from temporalio.service import RPCError

from holdfast.api.views import Result, ThreadState
from holdfast.client.follow import POLL_SECONDS
from holdfast.client.reading.runs import ENDED, UNAUTHENTICATED, status_of
from holdfast.client.threads import Threads
from holdfast.errors import HistoryForged, HoldfastError, QueryRefused, RunCancelled, RunFailed, ServerUnreachable

Until = Literal["end", "attention"]
"""`end`: until the run has ended. `attention`: also return earlier, if it waits for an approval, a message or a
retry, or is paused or dormant."""

_log = logging.getLogger("holdfast.client")
_LONG_POLL = timedelta(seconds=60)


async def wait(threads: Threads, thread: str, *, until: Until, poll: float = POLL_SECONDS) -> ThreadState:
    """Wait without a time limit, and return the thread's state at the end of the wait.

    After the first response, the wait survives restarts of servers and workers.

    Args:
        threads: The threads.
        thread: The thread's id.
        until: The condition to wait for.
        poll: Seconds between polls of an open run.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: No server responds to the first call.
    """
    reached, last_logged = False, ""
    while True:
        try:
            found = await threads.reader.find(thread)
            reached = True
            over = found is None or found.status in ENDED
            if found and not over and until == "end":
                await _until_closed(threads, found)
                continue
            # Temporal returns the status without a worker; only a worker can say whether a message is being handled.
            if found is None or over or status_of(found) != "running":
                state = ThreadState.model_validate(await threads.state(thread, found=found if over else None))
                if over or state.status != "running":
                    return state
        except (ServerUnreachable, QueryRefused) as error:
            if not reached:
                raise
            if last_logged != str(error):
                last_logged = str(error)
                _log.info("%s", last_logged)
        await asyncio.sleep(poll)


async def _until_closed(threads: Threads, found: WorkflowExecutionDescription) -> None:
    """Wait until Temporal has closed a run, which may continue as new. The server responds to a long poll."""
    run = threads.runs.client.get_workflow_handle(found.id, run_id=found.run_id)
    only_last = WorkflowHistoryEventFilterType.CLOSE_EVENT
    try:
        async for _ in run.fetch_history_events(
            wait_new_event=True, event_filter_type=only_last, skip_archival=True, rpc_timeout=_LONG_POLL
        ):
            return
    except RPCError as error:
        _log.info("%s", threads.runs.translate_error(error, found.id))
        await asyncio.sleep(POLL_SECONDS)


async def result_of(threads: Threads, state: ThreadState) -> Result:
    """Return the result of a run.

    Raises:
        RunFailed: The run failed.
        RunCancelled: The run was cancelled.
        HistoryForged: The run was not made by our own processes.
    """
    if state.status == UNAUTHENTICATED:
        raise HistoryForged(f"the run of thread {state.thread!r} has no result that counts: {state.warning}")
    if state.status == "cancelled":
        raise RunCancelled(f"the run of thread {state.thread!r} was cancelled", thread=state.thread)
    if state.status == "failed":
        cause = await cause_of(threads, state)
        raise RunFailed(f"the run of thread {state.thread!r} failed: {state.result}", thread=state.thread, cause=cause)
    return Result(
        thread=state.thread,
        status=state.status,
        text=state.result or "",
        structured=state.structured,
        steps=state.step,
        usage=state.usage,
        pending=state.pending,
        blocked=state.blocked,
        paused=state.paused,
    )


async def cause_of(threads: Threads, state: ThreadState) -> str:
    """Return the short name of the reason why a run failed; empty if its last event has none."""
    with contextlib.suppress(HoldfastError):
        async for event in threads.events(state.thread, after=state.events - 2):
            if event["type"] == "run_finished":
                return str(event.get("cause", ""))
    return ""

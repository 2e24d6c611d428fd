"""Wait until a thread has ended, has answered, or needs a person.

A thread and its sub-agents are one thing to wait for.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from temporalio.client import WorkflowExecutionDescription, WorkflowHistoryEventFilterType
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from holdfast.api.request_views import PendingRequest
from holdfast.api.views import Attention, Result, ThreadState, ThreadStatus
from holdfast.client.follow import POLL_SECONDS
from holdfast.client.reading.reader import Note
from holdfast.client.reading.runs import ENDED, UNAUTHENTICATED, status_of
from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import JSON, Threads
from holdfast.client.trees import Node, TreeWatch, hints_below, in_need
from holdfast.config.programs import CLI
from holdfast.core.run.state.state import Blocked
from holdfast.errors import (
    AttentionNeeded,
    HistoryForged,
    HoldfastError,
    QueryRefused,
    RunCancelled,
    RunFailed,
    ServerUnreachable,
)

Until = Literal["end", "attention", "answer"]
"""`end`: until the run has ended. `attention`: also return earlier, if it or a run below it waits for an approval or a
retry, or is paused, or if it waits for a message or is dormant. `answer`: the same, but the requests and blocks of
sub-agents count only if the run waits for those sub-agents."""

_log = logging.getLogger("holdfast.client")
_LONG_POLL = timedelta(seconds=60)
_PENDING = SearchAttributeKey.for_int("HoldfastPending")


@dataclass(frozen=True)
class Waited:
    """A thread at the end of a wait."""

    state: ThreadState
    attention: tuple[Attention, ...] = ()
    """The runs of its tree that need a person, from the top down."""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state.status in (*CLOSED, UNAUTHENTICATED)

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The open requests of the tree, those of the run itself first."""
        below = (each for each in self.attention if each.thread != self.state.thread)
        return (*self.state.pending, *(request for each in below for request in each.pending))

    @property
    def blocked(self) -> Blocked | None:
        """Why the run is blocked, or else the first blocked run below it; None if none is."""
        return self.state.blocked or next((each.blocked for each in self.attention if each.blocked), None)

    @property
    def stuck(self) -> tuple[Attention, ...]:
        """The runs that can end only if a person intervenes: an attended run may wait for an approval for weeks."""
        return tuple(each for each in self.attention if each.blocked or (each.unattended and each.pending))

    def satisfies(self, until: Until) -> bool:
        """Whether the wait is over, or cannot reach its end without a person."""
        if self.over or (until != "end" and self.state.status != "running" and not self._is_failing):
            return True
        match until:
            case "end":
                return bool(self.stuck)
            case "attention":
                below = any(each.thread != self.state.thread for each in self.attention)
                return below or (bool(self.state.pending) and self._awaits_subagents)
            case "answer":
                awaited = any(map(self._is_awaited, self.attention)) or bool(self.state.pending)
                return awaited and self._awaits_subagents

    @property
    def _is_failing(self) -> bool:
        """Whether the run is unattended and blocked: it fails as soon as its tools and sub-agents have ended."""
        return self.state.unattended and self.state.blocked is not None and not self.state.pending

    @property
    def _awaits_subagents(self) -> bool:
        return self.state.lifecycle == "delegating"

    def _is_awaited(self, need: Attention) -> bool:
        """Whether the run waits for this sub-agent, or for one above it. While none runs in the foreground, it waits
        for those in the background.
        """
        open_ones = [each for each in self.state.subagents if each.status == "open"]
        awaited = [each for each in open_ones if not each.background] or open_ones
        return any(need.thread == each.thread or need.thread.startswith(f"{each.thread}.") for each in awaited)

    @property
    def status(self) -> ThreadStatus:
        """The run's status; that of a sub-agent that needs a person, if the run itself works."""
        if self.state.status != "running" or not self.attention:
            return self.state.status
        kinds: dict[ThreadStatus, bool] = {
            "blocked": any(each.blocked for each in self.attention),
            "waiting_approval": any(each.pending for each in self.attention),
        }
        return next((status for status, found in kinds.items() if found), "paused")


async def wait(
    threads: Threads, thread: str, *, until: Until, poll: float = POLL_SECONDS, through_blocks: bool = False
) -> Waited:
    """Wait without a time limit, and return the thread and what needs a person at the end of the wait.

    After the first response, the wait survives restarts of servers and workers. While it lasts although a person has to
    act, the logger `holdfast.client` says so.

    Args:
        threads: The threads.
        thread: The thread's id.
        until: The condition to wait for. With `end`, the wait also ends if the run is stuck (`Waited.stuck`).
        poll: Seconds between polls of an open run.
        through_blocks: With `end`: wait even if the run is stuck, and log nothing about it.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: No server responds to the first call.
    """
    reached, said = False, _Said()
    watch = TreeWatch(threads, thread, every=4 * poll)
    while True:
        try:
            found = await threads.reader.find(thread)
            reached = True
            if found is None or found.status in ENDED:
                return Waited(ThreadState.model_validate(await threads.state(thread, found=found)))
            if not (until == "end" and through_blocks) and (waited := await _look(threads, found, until, watch)):
                if waited.satisfies(until):
                    return waited
                if until == "end":
                    said.waits_for(waited)
            if until == "end":
                await _until_closed(threads, found, within=watch.pause)
                continue
        except (ServerUnreachable, QueryRefused) as error:
            if not reached:
                raise
            said.once(str(error), logging.INFO)
        await asyncio.sleep(poll)


async def look(threads: Threads, thread: str, *, note: Note | None = None) -> Waited:
    """Return a thread as it is now, and the runs of its tree that need a person.

    Args:
        threads: The threads.
        thread: The thread's id.
        note: Called with a message when no worker answers; None to raise instead.
    """
    view = await threads.state(thread, note=note)
    if view["status"] in (*CLOSED, UNAUTHENTICATED):
        return _waited(view, ())
    hints = await hints_below(threads, thread) if view.get("subagents") else []
    return _waited(view, await in_need(threads, thread, state=view, hints=hints, note=note))


async def _look(threads: Threads, found: WorkflowExecutionDescription, until: Until, watch: TreeWatch) -> Waited | None:
    """Return an open run with the runs of its tree that need a person; None if there is no sign of any.

    Temporal has the signs, without a worker. Only a worker can say whether they still hold.
    """
    thread, status = found.id, status_of(found)
    if status != "running" and until != "end":
        return await look(threads, thread)
    own = status != "running" or bool(found.typed_search_attributes.get(_PENDING))
    needs = await watch.look(top=own)
    return _waited(await threads.state(thread), needs) if needs else None


def _waited(view: JSON, needs: Sequence[Node]) -> Waited:
    return Waited(ThreadState.model_validate(view), tuple(map(attention_of, needs)))


def attention_of(node: Node) -> Attention:
    """Return a run of a tree that needs a person, as clients present it."""
    fields = ("thread", "agent", "status", "pending", "blocked", "paused", "unattended")
    return Attention.model_validate({name: getattr(node, name) for name in fields})


@dataclass
class _Said:
    """The messages that a wait has logged: each once."""

    messages: set[str] = field(default_factory=set)

    def once(self, message: str, level: int) -> None:
        if message not in self.messages:
            self.messages.add(message)
            _log.log(level, "%s", message)

    def waits_for(self, waited: Waited) -> None:
        """Say that a person has to act before the wait can end."""
        for each in waited.attention:
            self.once(f"waiting for thread {waited.state.thread!r}: {need_text(each)}", logging.WARNING)


def need_text(need: Attention) -> str:
    """Return why a run needs a person, and the command that helps."""
    thread = f"thread {need.thread!r}"
    if need.blocked and not need.unattended:
        return f"{thread} is blocked ({need.blocked.cause}: {need.blocked.message}); {_next_command(need)}"
    if need.pending:
        requests = ", ".join(f"{request.request} ({request.tool})" for request in need.pending)
        return f"{thread} waits for a decision on request {requests}; {_next_command(need)}"
    return f"{thread} is paused; {_next_command(need)}"


def _next_command(need: Attention) -> str:
    if need.blocked and not need.unattended and need.blocked.cause == "BudgetSpent":
        return f"`{CLI.command('extend', need.thread, '--budget', 'AMOUNTS')}` resumes it"
    if need.blocked and not need.unattended:
        return f"fix the cause, then `{CLI.command('retry', need.thread)}` resumes it"
    if need.pending:
        return f"`{CLI.command('pending', need.thread)}` shows it"
    return f"`{CLI.command('resume', need.thread)}` ends the pause"


async def _until_closed(threads: Threads, found: WorkflowExecutionDescription, *, within: float) -> None:
    """Wait until Temporal has closed a run, which may continue as new. The server responds to a long poll.

    Args:
        threads: The threads.
        found: The run.
        within: The longest wait, in seconds.
    """
    run = threads.runs.client.get_workflow_handle(found.id, run_id=found.run_id)
    only_last = WorkflowHistoryEventFilterType.CLOSE_EVENT
    limit = asyncio.timeout(within)
    try:
        async with limit:
            async for _ in run.fetch_history_events(
                wait_new_event=True, event_filter_type=only_last, skip_archival=True, rpc_timeout=_LONG_POLL
            ):
                return
    except TimeoutError:
        if not limit.expired():
            raise
    except RPCError as error:
        if limit.expired():
            return
        _log.info("%s", threads.runs.translate_error(error, found.id))
        await asyncio.sleep(POLL_SECONDS)


async def result_of(threads: Threads, waited: Waited, *, until: Until = "attention") -> Result:
    """Return the result of a run.

    Args:
        threads: The threads.
        waited: The thread at the end of a wait.
        until: The condition that was waited for.

    Raises:
        RunFailed: The run failed.
        RunCancelled: The run was cancelled.
        AttentionNeeded: With `end`: the run cannot end before a person acts.
        HistoryForged: The run was not made by our own processes.
    """
    state = waited.state
    if state.status == UNAUTHENTICATED:
        raise HistoryForged(f"the run of thread {state.thread!r} has no result that counts: {state.warning}")
    if state.status == "cancelled":
        raise RunCancelled(f"the run of thread {state.thread!r} was cancelled", thread=state.thread)
    if state.status == "failed":
        cause = await cause_of(threads, state)
        raise RunFailed(f"the run of thread {state.thread!r} failed: {state.result}", thread=state.thread, cause=cause)
    if until == "end" and not waited.over and (stuck := waited.stuck):
        why = f"the run of thread {state.thread!r} cannot end before a person acts: {need_text(stuck[0])}"
        raise AttentionNeeded(f"{why}. Then wait for the result again", thread=stuck[0].thread, cause=stuck[0].cause)
    return Result(
        thread=state.thread,
        status=waited.status,
        text=state.result or "",
        structured=state.structured,
        steps=state.step,
        usage=state.usage,
        pending=waited.pending,
        blocked=waited.blocked,
        paused=state.paused or next((each.paused for each in waited.attention if each.paused), None),
        attention=waited.attention,
    )


async def cause_of(threads: Threads, state: ThreadState) -> str:
    """Return the short name of the reason why a run failed; empty if its last event has none."""
    with contextlib.suppress(HoldfastError):
        async for event in threads.events(state.thread, after=state.events - 2):
            if event["type"] == "run_finished":
                return str(event.get("cause", ""))
    return ""

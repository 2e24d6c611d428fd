"""The activities by which a program's workflow reads and steers threads (`holdfast.workflow`).

1. Each request is sealed, so it comes from a workflow on a worker with the fleet key.
2. An activity never waits: a thread without an answer fails the attempt, and Temporal's next attempt looks again. So a
   wait of weeks costs no slot of the worker, and no history of the workflow.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.api.views import ThreadState
from holdfast.api.waiting import cause_of
from holdfast.client.messages import say
from holdfast.client.reading.runs import UNAUTHENTICATED
from holdfast.client.reading.states import decode_lines
from holdfast.client.sending import COUNTING
from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.config.settings import Settings
from holdfast.core.log.events import MessageAwaited, MessageTaken, RunFinished, UserMessageReceived
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.called import (
    RESULT,
    SAY,
    STATE,
    STILL_RUNNING,
    AgentState,
    ReadRequest,
    Said,
    SayRequest,
)
from holdfast.core.run.contracts.error_types import NOT_SEALED
from holdfast.core.run.contracts.runs import RunResult
from holdfast.errors import HoldfastError, RecordUnavailable, ServerUnreachable

NAMES = frozenset({SAY, STATE, RESULT})

log = logging.getLogger("holdfast.plugin")


class CalledThreads:
    """The threads that the workflows of one worker read and steer.

    Args:
        settings: From `environ`.
        environ: The environment, for Temporal's own settings.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._threads: Threads | None = None
        self.activities = (self.say, self.state, self.result)

    @asynccontextmanager
    async def open(self, client: Client, task_queue: str) -> AsyncIterator[None]:
        """Serve the workflows for a block.

        Args:
            client: The worker's client.
            task_queue: The worker's task queue, on which a closed thread continues.
        """
        async with AsyncExitStack() as cleanup:
            parts = Components(self._settings, self._environ, cleanup=cleanup, connected=client)
            self._threads = Threads(
                await parts.client(),
                task_queue=task_queue,
                answer_within=self._settings.answer_seconds,
                record=parts.threads(),
            )
            yield

    @activity.defn(name=SAY)
    async def say(self, request: SayRequest) -> Said:
        """Send a message once, and return the agent's answer to it."""
        _check(request)
        with _failing_for_good():
            state = await self._state(request.thread)
            if activity.info().attempt > 1 and state.status == "running":
                raise still_running(request.thread)
            received, answer = await self._answer(request)
            if answer is not None:
                return Said(text=answer.result, trust=state.trust)
            if not received:
                await self._send(request)
        raise still_running(request.thread)

    @activity.defn(name=STATE)
    async def state(self, request: ReadRequest) -> AgentState:
        """Return the state of a thread."""
        _check(request)
        with _failing_for_good():
            state = await self._state(request.thread)
        return AgentState(
            thread=state.thread,
            status=state.status,
            agent=state.agent,
            step=state.step,
            usage=state.usage,
            pending=tuple(each.model_dump(mode="json") for each in state.pending),
            blocked=state.blocked.cause if state.blocked else "",
            result=state.result,
        )

    @activity.defn(name=RESULT)
    async def result(self, request: ReadRequest) -> RunResult:
        """Return the result of a thread that has ended."""
        _check(request)
        with _failing_for_good():
            state = await self._state(request.thread)
            match state.status:
                case "completed":
                    return RunResult(
                        result=state.result or "",
                        structured=state.structured,
                        steps=state.step,
                        usage=state.usage,
                        trust=state.trust,
                    )
                case "failed" | "cancelled" | "moved" | "terminated" | "timed_out":
                    cause = await cause_of(self._opened, state) if state.status == "failed" else ""
                    raise _no_result(request.thread, state.status, cause, state.result or "")
        raise still_running(request.thread)

    @property
    def _opened(self) -> Threads:
        assert self._threads is not None  # the worker runs
        return self._threads

    async def _state(self, thread: str) -> ThreadState:
        state = ThreadState.model_validate(await self._opened.state(thread, note=log.debug))
        if state.status == UNAUTHENTICATED:
            raise _for_good(f"thread {thread!r}: {state.warning}", NOT_SEALED)
        return state

    async def _answer(self, request: SayRequest) -> tuple[bool, MessageAwaited | RunFinished | None]:
        """Return whether the thread has the message, and the event with the agent's answer to it.

        Raises:
            ApplicationError: The run ended without an answer.
        """
        received, taken = -1, False
        lines = self._opened.reader.lines(request.thread, 0, found=None, note=log.debug)
        async for event in decode_lines(lines):
            match event:
                case UserMessageReceived() if event.id == request.id and received < 0:
                    received, taken = event.position, event.task
                case MessageTaken() if event.message == received:
                    taken = True
                case MessageAwaited() if taken:
                    return True, event
                case RunFinished() if taken and event.outcome == "completed":
                    return True, event
                case RunFinished() if received >= 0:
                    raise _no_result(request.thread, event.outcome, event.cause, event.result)
        return received >= 0, None

    async def _send(self, request: SayRequest) -> None:
        sent = await say(
            self._opened, request.thread, request.message, by=request.by, when_busy=request.when_busy, id=request.id
        )
        if sent.outcome not in COUNTING | {"duplicate"}:
            message = f"message to thread {request.thread!r}: {sent.outcome.replace('_', ' ')}: {sent.explanation}"
            raise _for_good(message, "NotAccepted")


def still_running(thread: str) -> ApplicationError:
    """Return the error of an attempt after which Temporal looks again; the SDK logs it at the level DEBUG."""
    message = f"thread {thread!r} has no answer yet"
    return ApplicationError(message, type=STILL_RUNNING, category=ApplicationErrorCategory.BENIGN)


def _check(request: Any) -> None:
    """Reject a request that no workflow of this fleet has made.

    Raises:
        ApplicationError: It bears no valid seal.
    """
    if is_unsealed(request):
        raise _for_good(str(request), NOT_SEALED)


@contextmanager
def _failing_for_good() -> Iterator[None]:
    """Let Temporal retry only what another attempt can change: a server or a worker that does not answer."""
    try:
        yield
    except (ServerUnreachable, RecordUnavailable):
        raise
    except HoldfastError as error:
        raise _for_good(str(error), type(error).__name__) from error


def _no_result(thread: str, status: str, cause: str, why: str) -> ApplicationError:
    kind = "RunCancelled" if status == "cancelled" else cause or "RunFailed"
    return _for_good(f"the run of thread {thread!r} ended as {status}, without a result: {why}", kind)


def _for_good(message: str, cause: str) -> ApplicationError:
    return ApplicationError(message, type=cause, non_retryable=True)

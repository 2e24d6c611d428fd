"""Carries out the call of a foreign tool: the first request, what follows from people's answers, and its task."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from pydantic import ValidationError

from holdfast.config.logs import EventLogger
from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.tools.decorator import ToolContext
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.foreign_waits import Asks, ForeignTask, Resumed, ServerQuestion, TaskEnded, Working
from holdfast.core.tools.not_done import NotDone
from holdfast.mcp.connection import Connection
from holdfast.mcp.content import content_of, text_in
from holdfast.mcp.limits import (
    AnswerTimeout,
    ConnectionLost,
    NotConnected,
    QuestionRejected,
    ServerError,
    StateExpired,
    TaskUnknown,
)
from holdfast.mcp.pins import PinnedTool
from holdfast.mcp.questions import CallState, RequiredVisits, read_requests, roots_of
from holdfast.mcp.session import Answer
from holdfast.mcp.tasks import DEFAULT_INTERVAL, STATUS_CHARS, CreatedTask, Task, TaskState

MAX_ROUNDS: Final = 10
"""How often a server may ask in one request for what needs no person, such as the roots."""

log = EventLogger("mcp")


@dataclass(frozen=True)
class ForeignCall:
    """One call of a foreign tool, or what follows of it."""

    server: MCP
    tool: PinnedTool
    pin: str
    connection: Connection
    context: ToolContext

    @property
    def _effect(self) -> Effect:
        return self.server.effect_of(self.tool.name)

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Make the call, or continue it; return its content, a question to people or its task.

        Raises:
            NotDone: The call had no effect.
            ConnectionLost: The connection ended; the request may have arrived.
            AnswerTimeout: No answer came in time; the request may have arrived.
            ServerError: The server answered with an error.
        """
        resumed = self.context.resumed
        if resumed and resumed.task:
            return await (self._cancel(resumed.task) if resumed.cancels else self._follow(resumed))
        responses, state = _next(resumed, self.context)
        answered: str | None = None  # the question of people's answer, once the server has forgotten that it asked
        for pause in range(MAX_ROUNDS):
            try:
                answer = await self._send(arguments, responses, state)
            except StateExpired:
                if state is None or answered is not None or resumed is None or resumed.state is None:
                    raise
                # Servers of the SDKs forget it after ten minutes, and when they start again. People may take longer.
                answered, responses, state = CallState.decoded(resumed.state).asked, {}, None
                continue
            if isinstance(answer, types.CallToolResult):
                return self._content(answer)
            if isinstance(answer, CreatedTask):
                return self._working(answer)
            requested = read_requests(answer.input_requests or {})
            if requested.parts:
                question = requested.question(self.server.name)
                if resumed is None or question.digest != answered:
                    return self._asks(question, answer, requested.roots)
                roots = {key: roots_of(self.context.workspace) for key in requested.roots}
                responses, state, answered = {**resumed.responses, **roots}, answer.request_state, ""  # once
                continue
            if not requested.roots:  # the server only wants to be called again
                await asyncio.sleep(min(0.05 * 2**pause, 1.0))
            responses = {key: roots_of(self.context.workspace) for key in requested.roots}
            state = answer.request_state
        raise QuestionRejected(f"it asked for input {MAX_ROUNDS} times in a row")

    async def _send(self, arguments: dict[str, Any], responses: dict[str, Any], state: str | None) -> Answer:
        return await self.connection.call(
            self.tool.name,
            arguments,
            pin=self.pin,
            key=self.context.key,
            repeats=self._effect is Effect.READ,
            responses=responses,
            state=state,
        )

    def _asks(self, question: ServerQuestion, answer: types.InputRequiredResult, roots: tuple[str, ...]) -> Asks:
        if not self.context.pends:
            raise QuestionRejected("it asks for input, and nobody answers a server's questions in this run")
        visits = isinstance(answer, RequiredVisits)
        return Asks(question, CallState(answer.request_state, roots, visits, question.digest).encoded())

    def _working(self, task: Task) -> Working:
        if not self.context.pends:
            raise ServerError("it began a task, and this run follows no tasks")
        return Working(task.as_task(self.server.name))

    def _content(self, result: types.CallToolResult) -> Any:
        if not result.is_error:
            return content_of(result, self.tool.output_schema)
        text = text_in(result) or "the server reported an error without saying which"
        raise NotDone(text) if self.server.fails_without_effect(self.tool.name) else ServerError(text)

    # Its task.

    async def _follow(self, resumed: Resumed) -> Any:
        """Send the answers that people have given, and read the state of the task."""
        try:
            if resumed.responses:
                await self.connection.answer_task(resumed.task, resumed.responses)
            state = await self.connection.task(resumed.task)
        except TaskUnknown as error:
            return self._ended(f"its server no longer knows the task: {error}")
        except (NotConnected, ConnectionLost, AnswerTimeout, ServerError) as error:
            if resumed.polls:
                raise
            # The polls that follow send the answers again.
            return Working(self._unread(resumed.task, error))
        match state.status:
            case "working":
                return self._working(state)
            case "input_required":
                return await self._answer(state, resumed)
            case "completed":
                return self._result(state)
            case "failed":
                message = (state.error or {}).get("message")
                return self._ended(f"its task failed: {message or state.status_message or 'without saying why'}")
            case "cancelled":
                return self._ended(f"its task was cancelled. {state.status_message or ''}".rstrip())

    def _unread(self, task: str, error: Exception) -> ForeignTask:
        message = str(error)[:STATUS_CHARS]
        return ForeignTask(server=self.server.name, id=task, interval=DEFAULT_INTERVAL, message=message)

    async def _answer(self, state: TaskState, resumed: Resumed) -> Any:
        requests = state.input_requests or {}
        open_requests = {key: each for key, each in requests.items() if key not in resumed.answered}
        if not open_requests:  # the server has not read the answers yet
            return self._working(state)
        try:
            requested = read_requests(open_requests)
            if requested.roots:
                roots = {key: roots_of(self.context.workspace) for key in requested.roots}
                await self.connection.answer_task(resumed.task, roots)
            if not requested.parts:
                return self._working(state)
            return Asks(requested.question(self.server.name, task=resumed.task))
        except QuestionRejected as error:
            await self._cancel(resumed.task)
            return self._ended(f"its task was cancelled: {error}")

    def _result(self, state: TaskState) -> Any:
        try:
            return self._content(types.CallToolResult.model_validate(state.result, by_name=False))
        except ValidationError:
            return self._ended("the result of its task is not what the protocol prescribes")
        except NotDone as error:
            return TaskEnded(str(error))
        except ServerError as error:
            return self._ended(str(error))

    def _ended(self, reason: str) -> TaskEnded:
        return TaskEnded(reason[:2_000], unknown=self._effect is not Effect.READ)

    async def _cancel(self, task: str) -> str:
        """Ask the server to cancel a task. It may refuse, and it may be unavailable: the run ends nevertheless."""
        try:
            await self.connection.cancel_task(task)
        except Exception as error:
            log.warning("mcp_task_not_cancelled", server=self.server.name, task=task, reason=str(error)[:500])
            return "not cancelled"
        return "cancelled"


def _next(resumed: Resumed | None, context: ToolContext) -> tuple[dict[str, Any], str | None]:
    """Return the responses and the state that go with the request; neither for a call that begins."""
    if resumed is None or resumed.state is None:
        return {}, None
    kept = CallState.decoded(resumed.state)
    if kept.visits:
        return {}, None
    roots = {key: roots_of(context.workspace) for key in kept.roots}
    return {**resumed.responses, **roots}, kept.state

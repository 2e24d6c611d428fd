"""One live connection to an MCP server, owned by one task.

The SDK's contexts and their cancel scopes belong to the owner task alone, and each request runs in a task of the
connection. So if a server dies, its cancellation ends the owner, and callers get an error: never a `CancelledError`
that nobody sent, which an activity would take for a cancellation of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import mcp_types as types
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    URL_ELICITATION_REQUIRED,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.base.canonical import portable
from holdfast.mcp.http import http_transport
from holdfast.mcp.limits import (
    CONNECT_SECONDS,
    AnswerTimeout,
    ConnectionLost,
    NotConnected,
    ServerError,
    StateExpired,
    TaskUnknown,
    Verdict,
)
from holdfast.mcp.notices import Notices
from holdfast.mcp.pins import MAX_TOOLS, PinnedServer, PinnedTool, ServerRejected, check_list
from holdfast.mcp.questions import NOT_ASKED, required_visits
from holdfast.mcp.stdio import stdio_transport
from holdfast.mcp.tasks import CancelTask, CreatedTask, GetTask, TaskAnswers, TaskParams, Tasks, TaskState, UpdateTask
from holdfast.version import __version__

EFFECT_KEY: Final = "holdfast/effect-key"
"""The field of a call's `_meta` with its effect key: the same for every attempt at the call."""
CLOSE_SECONDS: Final = 15.0
"""How long a connection may take to close."""
_PAGES: Final = 100
"""Maximum number of pages of a list."""
Answer = types.CallToolResult | types.InputRequiredResult | CreatedTask
"""The answer to a call: its result, what the server asks for first, or the task that continues it."""
_ANSWER: Final[TypeAdapter[Answer]] = TypeAdapter(Answer)

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)


class Session:
    """One live connection, which opens as the object is made: wait for `ready`.

    Args:
        server: The server.
        secrets: The values of the variables that it declares.
    """

    def __init__(self, server: MCP, secrets: Mapping[str, str]) -> None:
        self._server = server
        self._secrets = secrets
        self._verdict = Verdict()
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._requests: set[asyncio.Task[Any]] = set()
        self._owner = asyncio.create_task(self._own(), name=f"mcp {server.name}")
        self.list_changed = False
        """Whether the server has announced another list since the last one was read."""
        self._notices = Notices(server.name, secrets)
        self._asked = 0
        """How many questions the server has asked on the connection."""

    @property
    def ended(self) -> bool:
        """Whether the connection has ended, or is about to."""
        return self._owner.done() or self._closing.is_set() or bool(self._verdict.reason)

    @property
    def reason(self) -> str:
        """Why it ended, for people."""
        return self._verdict.reason or "the connection ended"

    async def _own(self) -> None:
        try:
            transport = stdio_transport if self._server.command else http_transport
            streams = transport(self._server, self._secrets, self._verdict, self._notices)
            client = Client(
                streams,
                client_info=types.Implementation(name="holdfast", version=__version__),
                read_timeout_seconds=CONNECT_SECONDS,
                message_handler=self._hear,
                logging_callback=self._log,
                log_level="info",
                elicitation_callback=self._dismiss,
                list_roots_callback=self._refuse_roots,
                extensions=[Tasks()],
                cache=None,
            )
            async with client:
                self._client = client
                self._ready.set()
                await self._closing.wait()
        except BaseException as error:
            self._verdict.reach(_reason(error))
        finally:
            self._client = None
            self._ready.set()
            for request in self._requests:
                request.cancel()

    async def _hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.list_changed = True

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._notices.take("mcp_server_says", params.data, level=params.level)

    async def _dismiss(self, context: object, params: object) -> types.ElicitResult:
        """Answer a question on the connection, as older protocols have it (`holdfast.mcp.questions`)."""
        self._asked += 1
        return types.ElicitResult(action="cancel")

    async def _refuse_roots(self, context: object) -> types.ErrorData:
        """Refuse the roots on the connection: they are those of one run, and all runs share the connection."""
        return types.ErrorData(code=INVALID_REQUEST, message="the roots are those of one call; this is none")

    async def ready(self) -> None:
        """Wait until the connection is open.

        Raises:
            NotConnected: It cannot be opened; the message says why.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._ready.wait()
        if self._client is None:
            self._verdict.reach(f"it did not answer within {CONNECT_SECONDS:g} s")
            await self.close()
            raise NotConnected(f"the MCP server {self._server.name!r} cannot be reached: {self.reason}")

    async def read_list(self) -> PinnedServer:
        """Return the server's identity and its whole list of tools.

        Raises:
            NotConnected: The list cannot be read.
            ServerRejected: The list cannot be pinned.
        """
        self.list_changed = False
        try:
            return await self._request(self._read_list)
        except (ConnectionLost, AnswerTimeout, ServerError) as error:
            raise NotConnected(f"the tools of the MCP server {self._server.name!r} cannot be read: {error}") from None

    async def _read_list(self, client: Client) -> PinnedServer:
        tools: list[PinnedTool] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += [_pinned(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        else:
            raise ServerRejected(f"its list has more than {_PAGES} pages")
        about = client.server_info
        pinned = PinnedServer(
            source=self._server.source,
            name=about.name if about else "",
            version=about.version if about else "",
            title=(about.title if about else None) or "",
            instructions=client.instructions or "",
            tools=tuple(sorted(tools, key=lambda tool: tool.name)),
        )
        check_list(pinned)
        return pinned

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        key: str,
        responses: Mapping[str, Any],
        state: str | None,
    ) -> Answer:
        """Call a tool.

        Args:
            tool: The server's own name for it.
            arguments: As the schema describes them.
            key: The effect key.
            responses: The answers to what the server asked for in its answer before.
            state: The state that it sent with that.

        Raises:
            NotConnected: The connection has ended; nothing was sent.
            ConnectionLost: The connection ended; the request may have arrived.
            AnswerTimeout: No answer came in time; the request may have arrived.
            ServerError: The server answered with an error, or not as the protocol says.
        """
        params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": {EFFECT_KEY: key}}
        params |= {"inputResponses": responses} if responses else {}
        params |= {"requestState": state} if state is not None else {}
        request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            self._notices.take("mcp_progress", message or "", tool=tool, key=key, done=progress, total=total)

        async def send(client: Client) -> Any:
            # Not `client.call_tool`, which checks the result by the server's own schema at any cost.
            return await client.session.send_request(
                request, _ANSWER, request_read_timeout_seconds=self._server.timeout, progress_callback=hear
            )

        asked = self._asked
        answer: Answer = await self._request(send)
        if self._asked > asked and isinstance(answer, types.CallToolResult):
            return answer.model_copy(update={"content": [*answer.content, types.TextContent(text=NOT_ASKED)]})
        return answer

    async def task(self, task: str) -> TaskState:
        """Return the state of a task; raises as `Connection.task` does."""
        return await self._about_task(GetTask(params=TaskParams(task_id=task)), TaskState)

    async def answer_task(self, task: str, responses: Mapping[str, Any]) -> None:
        """Send the answers to what a task asks for."""
        params = TaskAnswers(task_id=task, input_responses=dict(responses))
        await self._about_task(UpdateTask(params=params), types.EmptyResult)

    async def cancel_task(self, task: str) -> None:
        """Ask the server to cancel a task."""
        await self._about_task(CancelTask(params=TaskParams(task_id=task)), types.EmptyResult)

    async def _about_task(self, request: types.Request[Any, Any], result: type[R]) -> R:
        async def send(client: Client) -> R:
            return await client.session.send_request(request, result)

        return await self._request(send, unknown_task=True)

    async def _request(self, send: Callable[[Client], Awaitable[T]], *, unknown_task: bool = False) -> T:
        client = self._client
        if client is None or self.ended:
            raise NotConnected(f"the MCP server {self._server.name!r} cannot be reached: {self.reason}")
        request = asyncio.ensure_future(send(client))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            await asyncio.wait([request])  # not the task itself: its cancellation would look like the caller's
        except asyncio.CancelledError:
            request.cancel()
            raise
        if request.cancelled():
            raise ConnectionLost(self.reason)
        error = request.exception()
        if error is None:
            return request.result()
        if isinstance(error, MCPError) and error.code == INVALID_PARAMS and unknown_task:
            raise TaskUnknown(str(error)[:500])
        visits = isinstance(error, MCPError) and error.code == URL_ELICITATION_REQUIRED and not unknown_task
        if visits and (asked := required_visits(cast(MCPError, error).data)):
            return cast(T, asked)
        raise self._translated(error) from None

    def _translated(self, error: BaseException) -> BaseException:
        match error:
            case ServerRejected():
                return error
            case MCPError() if error.code == REQUEST_TIMEOUT:
                return AnswerTimeout(f"{self._server.name} did not answer within its time limit")
            case MCPError() if error.code == CONNECTION_CLOSED or self._verdict.reason:
                return ConnectionLost(self._verdict.reason or str(error))
            case MCPError() if _is_expired(error):
                return StateExpired(str(error)[:2_000])
            case MCPError():
                return ServerError(str(error)[:2_000])
            case ValidationError():
                return ServerError("its answer is not what the protocol prescribes")
            case _:
                return ConnectionLost(self._verdict.reason or _reason(error))

    async def retire(self) -> None:
        """Accept no more requests, and close when those under way have ended."""
        self._verdict.reach("the connection was given up")
        while self._requests and not self._owner.done():
            await asyncio.wait([*self._requests, self._owner], return_when=asyncio.FIRST_COMPLETED)
        await self.close()

    async def close(self) -> None:
        """Close the connection, and end the server if it is a child process."""
        self._closing.set()
        done, _ = await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
        if not done:
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)


def _pinned(tool: types.Tool) -> PinnedTool:
    """Return the definition of a tool. Numbers that JSON parsers read differently become portable ones."""
    annotations = tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if tool.annotations else {}
    return PinnedTool(
        name=portable(tool.name),
        title=portable(tool.title or ""),
        description=portable(tool.description or ""),
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=annotations,
    )


def _is_expired(error: MCPError) -> bool:
    """Whether a server no longer reads its state, as both official SDKs say it."""
    data = error.data
    return error.code == INVALID_PARAMS and isinstance(data, dict) and data.get("reason") == "invalid_request_state"


def _reason(error: BaseException) -> str:
    """Return the first cause of an error of the SDK, which may be in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, asyncio.CancelledError):
        return "the connection ended"
    return str(error)[:500] or type(error).__name__

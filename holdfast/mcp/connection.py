"""The connection to one MCP server over the life of a worker: opened on first use, checked, and opened again.

1. No tool is called whose definition differs from its pin. The list is read when a connection is opened, when the
   server says that it has changed, and before a call if it was last read more than `CHECK_SECONDS` ago. That also finds
   most dead connections before anything is sent.
2. Once a call was sent it is never sent again, except to a tool without effect.
3. Cancelling a call ends neither the connection nor the server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.config.logs import EventLogger
from holdfast.core.agents.mcp_servers import MCP
from holdfast.mcp.limits import AnswerTimeout, ConnectionLost, NotConnected, PinRejected
from holdfast.mcp.pins import PinnedServer, ServerRejected
from holdfast.mcp.session import Session

if TYPE_CHECKING:
    from holdfast.mcp.session import Answer
    from holdfast.mcp.tasks import TaskState

T = TypeVar("T")

NO_RESPONSES: Final[Mapping[str, Any]] = {}

CHECK_SECONDS: Final = 5.0
"""How old the last reading of a list may be when a tool is called."""
FIRST_DELAY: Final = 0.5
"""Seconds without another attempt after a failed one; they double with each."""
LONGEST_DELAY: Final = 30.0

log = EventLogger("mcp")


class Connection:
    """The connection to one server.

    Args:
        server: The server.
        secrets: The values of the variables that it declares.
    """

    def __init__(self, server: MCP, secrets: Mapping[str, str]) -> None:
        self._server = server
        self._secrets = secrets
        self._session: Session | None = None
        self._offered: PinnedServer | None = None
        self._checked_at = 0.0
        self._opening = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._last_failure = ""
        self._closed = False
        self._retiring: dict[asyncio.Task[None], Session] = {}

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        pin: str,
        key: str,
        repeats: bool,
        responses: Mapping[str, Any] = NO_RESPONSES,
        state: str | None = None,
    ) -> "Answer":
        """Call a tool.

        Args:
            tool: The server's own name for it.
            arguments: As the schema describes them.
            pin: The pin of the accepted definition.
            key: The effect key.
            repeats: Whether the tool has no effect, so that a lost call may be repeated once.
            responses: The answers to what the server asked for in its answer before.
            state: The state that it sent with that.

        Raises:
            NotConnected: The server cannot be reached; nothing was sent.
            PinRejected: The server offers another tool than the accepted one; nothing was sent.
            ConnectionLost: The connection ended; the request may have arrived.
            AnswerTimeout: No answer came in time; the request may have arrived.
            ServerError: The server answered with an error.
        """
        for last in (False, True):
            session, offered = await self._checked()
            if offered.pins.get(tool) != pin:
                raise PinRejected(self._rejection(tool, offered))
            try:
                return await session.call(tool, arguments, key=key, responses=responses, state=state)
            except NotConnected:  # it ended after the check, and nothing was sent
                self._retire(session)
                if last:
                    raise
            except ConnectionLost:
                self._retire(session)
                if last or not repeats:
                    raise
            except AnswerTimeout:
                self._retire(session)
                raise
        raise AssertionError("the last attempt returns or raises")

    async def task(self, task: str) -> "TaskState":
        """Return the state of a task.

        Raises:
            NotConnected: The server cannot be reached.
            ConnectionLost: The connection ended.
            AnswerTimeout: No answer came in time.
            TaskUnknown: The server does not know the task.
            ServerError: The server answered with an error.
        """
        return await self._about_task(lambda session: session.task(task))

    async def answer_task(self, task: str, responses: Mapping[str, Any]) -> None:
        """Send the answers to what a task asks for; raises as `task` does."""
        await self._about_task(lambda session: session.answer_task(task, responses))

    async def cancel_task(self, task: str) -> None:
        """Ask the server to cancel a task; raises as `task` does."""
        await self._about_task(lambda session: session.cancel_task(task))

    async def _about_task(self, send: Callable[[Session], Awaitable[T]]) -> T:
        session, _ = await self._checked()
        try:
            return await send(session)
        except (NotConnected, ConnectionLost, AnswerTimeout):
            self._retire(session)
            raise

    async def offered(self) -> PinnedServer:
        """Return the server's identity and its list of tools, as they are now.

        Raises:
            NotConnected: The server cannot be reached, or its list cannot be used.
        """
        return (await self._checked())[1]

    async def _checked(self) -> tuple[Session, PinnedServer]:
        """Return a connection whose list was read recently.

        A caller that is cancelled leaves it to the next one: a read has one second as a local activity, and starting a
        server may take longer.
        """
        checking = asyncio.create_task(self._check())
        checking.add_done_callback(_retrieve)
        return await asyncio.shield(checking)

    async def _check(self) -> tuple[Session, PinnedServer]:
        async with self._opening:
            if (session := self._session) is not None and not session.ended:
                fresh = time.monotonic() - self._checked_at < CHECK_SECONDS and not session.list_changed
                if fresh and self._offered is not None:
                    return session, self._offered
                try:
                    return session, await self._read_list(session)
                except NotConnected:
                    self._retire(session)
            return await self._open()

    async def _open(self) -> tuple[Session, PinnedServer]:
        if self._closed:
            raise NotConnected(f"the MCP server {self._server.name!r} is not reached: this worker is stopping")
        if (wait := self._not_before - time.monotonic()) > 0:
            raise NotConnected(f"{self._last_failure} (the next attempt is in {wait:.1f} s)")
        session = Session(self._server, self._secrets)
        try:
            await session.ready()
            offered = await self._read_list(session)
        except BaseException as error:
            self._retire(session)
            if isinstance(error, NotConnected):
                self._fail(str(error))
            raise
        self._session, self._failures = session, 0
        return session, offered

    async def _read_list(self, session: Session) -> PinnedServer:
        try:
            self._offered = await session.read_list()
        except ServerRejected as error:
            raise NotConnected(f"the MCP server {self._server.name!r} cannot be used: {error}") from None
        self._checked_at = time.monotonic()
        return self._offered

    def _fail(self, reason: str) -> None:
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2**self._failures)
        self._failures += 1
        self._not_before, self._last_failure = time.monotonic() + delay, reason
        log.warning("mcp_server_not_reached", server=self._server.name, reason=reason, retry_in=delay)

    def _rejection(self, tool: str, offered: PinnedServer) -> str:
        what = "has changed" if tool in offered.pins else "is no longer offered"
        name = self._server.name
        log.warning("mcp_tool_changed", server=name, tool=tool)
        return (
            f"not called: the tool {tool} of the MCP server {name!r} {what}; an operator must accept that "
            f"(holdfast mcp diff {name}, then holdfast mcp lock {name})"
        )

    def _retire(self, session: Session) -> None:
        """Replace a session by the next call's, and let the calls under way end."""
        if self._session is session:
            self._session = None
        task = asyncio.create_task(session.retire())
        self._retiring[task] = session
        task.add_done_callback(self._retiring.pop)

    async def close(self) -> None:
        """Close the connection for good; calls under way lose theirs."""
        self._closed = True
        async with self._opening:
            open_sessions = [*([self._session] if self._session else []), *self._retiring.values()]
            await asyncio.gather(*(session.close() for session in open_sessions))
            await asyncio.gather(*self._retiring)


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Mark the error of a task as seen: its callers may all have been cancelled."""
    if not task.cancelled():
        task.exception()

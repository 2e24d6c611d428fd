"""The MCP server over stdin and stdout, for one client on the same machine, which starts it.

The client is a program that an LLM uses, so it may do less than the person at the command line: it starts agents, reads
their results and cancels its own tasks. It decides requests only if the person says so.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

from holdfast.client.threads import Threads
from holdfast.core.stores import ArtifactStore
from holdfast.gateway.bodies import read_json
from holdfast.gateway.callers import Caller, Scope
from holdfast.gateway.http.limits import BODY_BYTES
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import EACH_CALLER, Quota, Quotas, Slots
from holdfast.gateway.mcp.exposed import ExposedAgent
from holdfast.gateway.mcp.server import Backend, server_for
from holdfast.gateway.page.links import RequestPage
from holdfast.gateway.routes.interventions import Actions

SCOPES: tuple[Scope, ...] = ("start", "read", "cancel", "transcript", "artifacts")
"""What a client may do."""

WAITS = 16
"""The most waits for results at once."""
LONGEST_WAIT = 30
"""The longest wait for a result, in seconds: below the time-outs of clients."""

_CHUNK = 64 * 1024

Reject = Callable[[str], Awaitable[None]]


async def serve_stdio(
    threads: Threads,
    agents: Mapping[str, ExposedAgent],
    *,
    by: str,
    may_decide: bool,
    artifacts: ArtifactStore | None,
    page_of: RequestPage,
) -> None:
    """Serve the client until it closes stdin.

    Args:
        threads: The threads.
        agents: The exposed agents.
        by: The person in whose name the client acts.
        may_decide: Whether people decide requests in the client. Their decisions are unsigned.
        artifacts: The artifact store; None for none.
        page_of: See `holdfast.gateway.page.links.RequestPage`.
    """
    caller = Caller(by, (*SCOPES, "decide") if may_decide else SCOPES)
    waits = Slots("waits", WAITS, WAITS)
    backend = Backend(threads, Actions(threads, None), agents, artifacts, waits, LONGEST_WAIT, page_of)
    server = server_for(caller, backend, first=within(EACH_CALLER, by))
    reader = asyncio.StreamReader(_CHUNK)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    lines = Lines(reader)
    async with stdio_server(stdin=cast(Any, lines)) as (incoming, outgoing):

        async def reject(why: str) -> None:
            error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message=why))
            await outgoing.send(SessionMessage(error))

        lines.reject = reject
        await server.run(incoming, outgoing, server.create_initialization_options())


class Lines:
    """The messages on stdin, one a line: bounded, and JSON that every parser reads alike. Others are rejected.

    Args:
        reader: The bytes.
        limit: The longest message, in bytes.
    """

    def __init__(self, reader: asyncio.StreamReader, limit: int = BODY_BYTES) -> None:
        self._reader = reader
        self._limit = limit
        self.reject: Reject = _ignore
        """Called with the reason why a message was rejected."""

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines():
            if line is None:
                await self.reject(f"a message has at most {self._limit:,} bytes")
                continue
            try:
                read_json(line)
            except HTTPProblem as problem:
                await self.reject(str(problem))
                continue
            yield line.decode()

    async def _lines(self) -> AsyncIterator[bytes | None]:
        """Yield each line, and None for one that is too long, no part of which is read as a message."""
        buffer, searched, too_long = bytearray(), 0, False
        while chunk := await self._reader.read(_CHUNK):
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                if too_long or len(line) > self._limit:
                    yield None
                elif line.strip():
                    yield line
                too_long = False
            searched = len(buffer)
            if searched > self._limit:
                buffer.clear()
                searched, too_long = 0, True


async def _ignore(why: str) -> None:
    return None


def within(quota: Quota, name: str) -> ServerMiddleware[Any]:
    """Return what limits the requests of a client.

    Args:
        quota: Its quota.
        name: Its name.
    """
    quotas = Quotas(quota)

    async def limited(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        quotas.take(name)
        with quotas.under_way(name):
            return await call_next(ctx)

    return limited

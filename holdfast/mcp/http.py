"""Carries messages to an MCP server over streamable HTTP.

1. A response is bounded, and must not be compressed: a few megabytes of gzip can hold gigabytes.
2. Requests have the catalog's headers, with secrets in them. Redirects lead to no other origin (the SDK sees to that).
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from holdfast.core.agents.mcp_servers import MCP
from holdfast.mcp.limits import CONNECT_SECONDS, MAX_MESSAGE_BYTES, MAX_RESPONSE_BYTES, Verdict
from holdfast.mcp.notices import Notices
from holdfast.mcp.oauth import ClientCredentials


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a response, up to a limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, verdict: Verdict, most: int) -> None:
        self._stream, self._verdict, self._most = stream, verdict, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._stream:
            read += len(piece)
            if read > self._most:
                self._verdict.reach(f"it sent a response of more than {self._most:,} bytes")
                raise httpx2.StreamError(self._verdict.reason)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def http_transport(
    server: MCP, secrets: Mapping[str, str], verdict: Verdict, notices: Notices
) -> AsyncIterator[Any]:
    """Yield the streams of messages to and from a server.

    Args:
        server: Its address and headers.
        secrets: The values of the variables that it declares.
        verdict: Receives the reason if the server misbehaves.
        notices: Not used: the size of a response bounds the notices in it.
    """

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            verdict.reach("it sent a compressed response, which was not asked for")
            await response.aclose()
            raise httpx2.StreamError(verdict.reason)
        streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(stream, verdict, MAX_RESPONSE_BYTES if streamed else MAX_MESSAGE_BYTES)

    headers = {**server.filled(server.headers, secrets), "Accept-Encoding": "identity"}
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=server.timeout + CONNECT_SECONDS)
    local = httpx2.URL(server.url).scheme == "http"  # only this machine is reached without TLS, and never by a proxy
    client = httpx2.AsyncClient(
        auth=ClientCredentials(server, server.oauth, secrets, verdict) if server.oauth else None,
        headers=headers,
        timeout=timeout,
        event_hooks={"response": [bound]},
        trust_env=not local,
        follow_redirects=False,
    )
    async with (
        client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams

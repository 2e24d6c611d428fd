"""Tokens for MCP servers: the credentials go to the operator's endpoint alone, and no log or history has either."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs

import pytest

from holdfast import MCP, OAuth
from holdfast.errors import CatalogError, SettingsError
from holdfast.mcp.limits import NotConnected
from tests.security.test_mcp_servers import _response, http, result
from tests.support.mcp_tools import caller

SECRET = "s3cr3t & more"


class Protected:
    """An MCP server that wants a token, and the endpoint that gives tokens, on one port."""

    def __init__(self) -> None:
        self.given = 0
        """How many tokens the endpoint has given; the last one alone is valid."""
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.seen: set[str] = set()
        """The headers with which the server was called."""
        self.token_answer: bytes | None = None
        self.port = 0

    @property
    def server(self) -> MCP:
        """The server as a catalog declares it."""
        address = f"http://127.0.0.1:{self.port}"
        oauth = OAuth(token_url=f"{address}/token", client_id="desk", client_secret="${DESK}", scope="a b")
        return MCP("desk", url=f"{address}/mcp", oauth=oauth, timeout=30)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = (line.partition(":") for line in head.split("\r\n"))
                fields = {name.lower(): value.strip() for name, _, value in lines}
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                writer.write(self._answer(head.split()[1], fields.get("authorization", ""), body))
                await writer.drain()
        writer.close()

    def _answer(self, path: str, authorization: str, body: bytes) -> bytes:
        if path == "/token":
            self.asked.append((authorization, parse_qs(body.decode())))
            self.given += 1
            token = {"access_token": f"t{self.given}", "token_type": "Bearer", "expires_in": 3_600}
            return self.token_answer or http(json.dumps(token).encode())
        self.seen.add(authorization)
        if authorization != f"Bearer t{self.given}":
            return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        return _response(json.loads(body or "{}"), lambda number: http(result(number, "done")))


@asynccontextmanager
async def protected() -> AsyncIterator[Protected]:
    """Run the server and the endpoint."""
    both = Protected()
    server = await asyncio.start_server(both.serve, "127.0.0.1", 0)
    both.port = server.sockets[0].getsockname()[1]
    try:
        yield both
    finally:
        server.close()


async def test_a_token_is_got_once_and_renewed_when_it_is_rejected() -> None:
    """The endpoint gets the credentials and the server's address; the server gets tokens, and never the credentials."""
    async with protected() as both, caller(both.server, DESK=SECRET) as call:
        assert await call("desk_pay") == "done"
        given = both.given
        assert await call("desk_pay") == "done"
        assert both.given == given, "the token is kept"
        both.given += 1  # the server rejects the tokens so far
        assert await call("desk_pay") == "done"
    for authorization, fields in both.asked:
        assert base64.b64decode(authorization.removeprefix("Basic ")) == b"desk:s3cr3t+%26+more"
        assert fields == {"grant_type": ["client_credentials"], "resource": [both.server.url], "scope": ["a b"]}
    assert {each.split()[0] for each in both.seen} == {"Bearer"}


@pytest.mark.parametrize(
    "answer",
    [
        http(b"[" * 100_000),
        http(b'{"access_token": "a\\r\\nX-Evil: 1"}'),
        http(json.dumps({"access_token": "a" * 20_000}).encode()),
        http(b'{"access_token": 5}'),
        http(b"x" * 9_000_000),
        b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 13\r\n\r\ns3cr3t & more",
    ],
)
async def test_an_endpoint_that_gives_no_token_ends_the_connection(answer: bytes) -> None:
    """The reason names the endpoint, and neither the credentials nor what it answered."""
    async with protected() as both:
        both.token_answer = answer
        with pytest.raises((NotConnected, SettingsError)) as raised:
            async with caller(both.server, DESK=SECRET):
                pass
    assert SECRET not in str(raised.value)
    assert both.seen == set(), "nothing was sent to the server"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"token_url": "http://auth.example/token"}, "https"),
        ({"token_url": "https://me:pw@auth.example/token"}, "password"),
        ({"client_secret": "in plain text"}, "by its name"),
        ({"client_id": ""}, "by its name"),
    ],
)
def test_credentials_are_secrets_by_reference(fields: dict[str, str], reason: str) -> None:
    """A secret in the catalog's source, or an endpoint without TLS, is refused when the catalog is loaded."""
    given = {"token_url": "https://auth.example/token", "client_id": "desk", "client_secret": "${DESK}", **fields}
    with pytest.raises(CatalogError, match=reason):
        MCP("desk", url="https://desk.example/mcp", oauth=OAuth(**given))
    with pytest.raises(CatalogError, match="without a header"):
        MCP(
            "desk",
            url="https://desk.example/mcp",
            headers={"authorization": "x"},
            oauth=OAuth(token_url="https://a.example", client_id="d", client_secret="${DESK}"),
        )

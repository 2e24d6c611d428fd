"""The MCP server over streamable HTTP: one path of the gateway, and one exchange a request.

1. Before the SDK reads anything, the caller is authenticated, and the body is complete, within the gateway's limits and
   JSON that every parser reads alike.
2. A web page cannot use it: a request with the `Origin` of another site is rejected, and so is one for another host,
   as a page sends it whose name was bound to our address (DNS rebinding).
3. No exchange leaves anything behind: there are no sessions, for clients of earlier protocol versions neither.
"""

import logging
import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import PARSE_ERROR

from holdfast.gateway.authentication import Authenticator
from holdfast.gateway.bodies import read_json
from holdfast.gateway.callers import Caller
from holdfast.gateway.http.limits import Message, Receive, Send
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.mcp.server import Backend, server_for

PATH = "/mcp"

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

logging.getLogger("mcp").setLevel(logging.ERROR)  # it would log each exchange


class _Exchange(Response):
    """The response to one request, which the SDK writes.

    Args:
        caller: The authenticated caller.
        body: The complete body.
        backend: What serves it.
    """

    def __init__(self, caller: Caller, body: bytes, backend: Backend) -> None:
        super().__init__()
        self._server = server_for(caller, backend)
        self._body = body

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        unread = [self._body]

        async def receive_again() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive_again, send)


def mcp_router(authenticator: Authenticator, backend: Backend, audience: str) -> APIRouter:
    """Return the route of the MCP server.

    Args:
        authenticator: Authenticates callers.
        backend: What serves them.
        audience: The gateway's URL.
    """
    routes = APIRouter()
    site = urlsplit(audience)
    knows = Depends(authenticator.for_scope(None))

    @routes.post(PATH, include_in_schema=False, dependencies=[Depends(_SameSite(site.scheme, site.netloc.lower()))])
    async def mcp(request: Request, caller: Annotated[Caller, knows]) -> Response:
        body = await request.body()
        try:
            read_json(body)
        except HTTPProblem as problem:
            error = {"code": PARSE_ERROR, "message": str(problem)}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
        return _Exchange(caller, body, backend)

    return routes


@dataclass(frozen=True)
class _SameSite:
    """A dependency that rejects requests of other sites, and those for other hosts."""

    scheme: str
    netloc: str

    async def __call__(self, request: Request) -> None:
        """Check the headers of a request.

        Raises:
            HTTPProblem: 421: it is for another host; 403: it is of another site.
        """
        host, origin = request.headers.get("host", "").lower(), request.headers.get("origin")
        name = re.sub(r":\d*$", "", host)
        if host != self.netloc and name not in _LOOPBACK:
            why = f"this gateway is {self.netloc}; set HOLDFAST_GATEWAY_URL to the address that clients use"
            raise HTTPProblem(421, why)
        own = (f"{self.scheme}://{self.netloc}", f"http://{host}")  # the host is ours, so a page there is, too
        if origin is not None and origin.lower() not in own:
            raise HTTPProblem(403, "pages of other sites cannot use this gateway")

"""Gets tokens for an MCP server over HTTP, by OAuth 2.1's client credentials.

1. The operator names the token endpoint. Nothing that the server says leads a worker, or its credentials, elsewhere: no
   metadata is discovered, and no redirect followed.
2. A token lives in the memory of one connection. It is renewed before it expires, and once if the server rejects it.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import httpx2

from holdfast.core.agents.mcp_servers import MCP, OAuth
from holdfast.mcp.limits import Verdict

MARGIN_SECONDS: Final = 30.0
"""How long before its end a token is renewed."""
DEFAULT_SECONDS: Final = 300.0
"""How long a token is used whose lifetime the endpoint does not say."""
TOKEN_CHARS: Final = 16_000
"""Maximum length of a token."""


class TokenRejected(Exception):  # never shown to users: the connection ends with its reason
    """The endpoint gave no token."""


class ClientCredentials(httpx2.Auth):
    """Adds a token to each request.

    Args:
        server: The server, whose address the token is for.
        oauth: The endpoint and the credentials.
        secrets: The values of the variables that the server declares.
        verdict: Receives the reason if there is no token.
    """

    def __init__(self, server: MCP, oauth: OAuth, secrets: Mapping[str, str], verdict: Verdict) -> None:
        self._server, self._oauth, self._verdict = server, oauth, verdict
        self._secret = server.filled({"secret": oauth.client_secret}, secrets)["secret"]
        self._token = ""
        self._until = 0.0
        self._renewing = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a token; if the server rejects that one, once more with another."""
        for last in (False, True):
            async with self._renewing:
                if time.monotonic() >= self._until:
                    answer = yield self._token_request()
                    await answer.aread()  # it is bounded, like every response
                    self._keep(answer)
                token = self._token
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != 401 or last:
                return
            async with self._renewing:
                if self._token == token:
                    self._until = 0.0

    def _token_request(self) -> httpx2.Request:
        fields = {"grant_type": "client_credentials", "resource": self._server.url}
        fields |= {"scope": self._oauth.scope} if self._oauth.scope else {}
        pair = f"{quote_plus(self._oauth.client_id)}:{quote_plus(self._secret)}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        return httpx2.Request("POST", self._oauth.token_url, headers=headers, content=urlencode(fields))

    def _keep(self, response: httpx2.Response) -> None:
        """Keep the token of a response.

        Raises:
            TokenRejected: It has none.
        """
        answer = _object(response.content) if response.status_code == 200 else {}
        token = answer.get("access_token")
        if not isinstance(token, str) or not 0 < len(token) <= TOKEN_CHARS or not _is_plain(token):
            self._verdict.reach(f"the token endpoint {self._oauth.token_url} gave no token ({response.status_code})")
            raise TokenRejected(self._verdict.reason)
        seconds = answer.get("expires_in")
        lifetime = float(seconds) if isinstance(seconds, int | float) and 0 < seconds < 10**9 else DEFAULT_SECONDS
        self._token, self._until = token, time.monotonic() + max(lifetime - MARGIN_SECONDS, lifetime / 2)


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token

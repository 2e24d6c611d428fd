"""Signing in with an OpenID Connect provider: authorization code, with PKCE, state and nonce.

1. A sign-in belongs to the browser that began it: a cookie has its id, and the provider brings the state back.
   Each is used once, within ten minutes.
2. The person is one that the file of callers names by a claim. Their session is as with a token: name, scopes, threads.
3. After signing in, the browser is led to a path of the page alone, which was chosen at the beginning.
"""

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.config.page_links import path_of
from holdfast.gateway.callers import OpenIDProvider
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import HEADERS, own_path
from holdfast.gateway.page.openid import NotIdentified, OpenID
from holdfast.gateway.page.rendering import page
from holdfast.gateway.page.visits import Door

FLOW_SECONDS = 600
FLOWS = 1_000
"""The most sign-ins under way; beyond that, the oldest ends."""


@dataclass(frozen=True)
class _Flow:
    """A sign-in under way."""

    next: str
    until: float
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        """The digest of the verifier, for PKCE."""
        return urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")


class Federated:
    """The two pages of a sign-in with a provider.

    Args:
        door: Has the sessions and the callers.
        provider: The provider.
        secret: The client's secret; empty for a public client.
        now: A clock, in seconds.
    """

    def __init__(
        self, door: Door, provider: OpenIDProvider, secret: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._door = door
        self._openid = OpenID(provider, secret)
        self._now = now
        self._flows: dict[str, _Flow] = {}
        """Digest of the id in the cookie → sign-in; the oldest first."""
        self._redirect = door.origin.text + path_of("openid", "callback")
        self._cookie = f"{door.origin.cookie}-openid"

    async def begin(self, request: Request) -> Response:
        """Lead the browser to the provider.

        Raises:
            HTTPProblem: 403: another page asks; 503: the provider cannot be read.
        """
        self._door.origin.check(request)
        try:
            authorize = (await self._openid.metadata()).authorize
        except NotIdentified as error:
            raise HTTPProblem(503, f"{error}; sign in with a token, or try again later") from None
        id = secrets.token_urlsafe(32)
        flow = _Flow(own_path(request.query_params.get("next", "")), self._now() + FLOW_SECONDS)
        if len(self._flows) >= FLOWS:
            del self._flows[next(iter(self._flows))]
        self._flows[_digest(id)] = flow
        asked = {
            "response_type": "code",
            "client_id": self._openid.provider.client_id,
            "redirect_uri": self._redirect,
            "scope": "openid email" if self._openid.provider.claim.startswith("email") else "openid profile",
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in authorize else "?"
        address = f"{authorize}{separator}{urlencode(asked)}"
        return RedirectResponse(address, 303, headers={**HEADERS, "Set-Cookie": self._set_cookie(id)})

    async def finish(self, request: Request) -> Response:
        """Begin a session for the person whom the provider names.

        Raises:
            HTTPProblem: 403: another page asks, or not in the browser that began.
        """
        self._door.origin.check(request)
        given = request.query_params
        flow = self._flows.pop(_digest(request.cookies.get(self._cookie, "")), None)
        state = given.get("state", "")
        if flow is None or flow.until <= self._now() or not hmac.compare_digest(state.encode(), flow.state.encode()):
            raise HTTPProblem(403, "this sign-in was not begun in this browser, is too old, or was used: begin again")
        issuer = self._openid.provider.issuer
        if given.get("iss", issuer) != issuer:
            raise HTTPProblem(403, "this answer is of another provider than the one that was asked")
        try:
            if "error" in given or not given.get("code"):
                raise NotIdentified("the provider did not sign you in")
            value = await self._openid.identify(
                given["code"], verifier=flow.verifier, nonce=flow.nonce, redirect=self._redirect
            )
        except NotIdentified as error:
            return self._again(flow, f"You are not signed in: {error}.")
        if (caller := self._door.authenticator.callers.with_identity(value)) is None:
            return self._again(flow, "The provider knows you, and the gateway has no person under that name.")
        sessions = self._door.sessions
        sessions.end(request.cookies.get(self._door.origin.cookie, ""))
        response = RedirectResponse(flow.next, 303, headers=HEADERS)
        response.headers.append("Set-Cookie", self._door.origin.set_cookie(sessions.begin(caller)))
        response.headers.append("Set-Cookie", self._set_cookie(""))
        return response

    def _again(self, flow: _Flow, problem: str) -> Response:
        provider = self._openid.provider.name
        return page("sign_in.html", 403, next=flow.next, link="", problem=problem, provider=provider)

    def _set_cookie(self, id: str) -> str:
        """Return the header that keeps a sign-in's id. `Lax`: the provider's page leads back here."""
        age, secure = FLOW_SECONDS if id else 0, "; Secure" if self._door.origin.secure else ""
        return f"{self._cookie}={id}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

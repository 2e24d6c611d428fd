"""Signing in with an OpenID Connect provider: authorization code, with PKCE, state and nonce.

1. A sign-in belongs to the browser that began it: a sealed cookie has it (`holdfast.gateway.page.flows`), and the
   provider brings its state back, within ten minutes. It may end at another gateway of the page.
2. The person is one that the file of callers names by a claim. Their session is as with a token: name, scopes, threads.
3. After signing in, the browser is led to a path of the page alone, which was chosen at the beginning.
"""

import hmac
import time
from collections.abc import Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.config.page_links import path_of
from holdfast.gateway.callers import OpenIDProvider
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.flows import FLOW_SECONDS, Flow, Flows
from holdfast.gateway.page.guards import HEADERS, own_path
from holdfast.gateway.page.openid import NotIdentified, OpenID
from holdfast.gateway.page.rendering import page
from holdfast.gateway.page.visits import Door


class Federated:
    """The two pages of a sign-in with a provider.

    Args:
        door: Has the sessions and the callers.
        provider: The provider.
        secret: The client's secret; empty for a public client.
        key: The key of the sign-ins under way, from `holdfast.gateway.page.flows.flow_key`.
        now: A clock, in seconds since 1970.
    """

    def __init__(
        self, door: Door, provider: OpenIDProvider, secret: str, *, key: bytes, now: Callable[[], float] = time.time
    ) -> None:
        self._door = door
        self._openid = OpenID(provider, secret)
        self._now = now
        self._flows = Flows(key, door.origin.text, provider.issuer, provider.client_id)
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
        flow = Flow(own_path(request.query_params.get("next", "")), self._now() + FLOW_SECONDS)
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
        return RedirectResponse(
            address, 303, headers={**HEADERS, "Set-Cookie": self._set_cookie(self._flows.seal(flow))}
        )

    async def finish(self, request: Request) -> Response:
        """Begin a session for the person whom the provider names.

        Raises:
            HTTPProblem: 403: another page asks, or not in the browser that began.
        """
        self._door.origin.check(request)
        given = request.query_params
        flow = self._flows.open(request.cookies.get(self._cookie, ""), now=self._now())
        state = given.get("state", "")
        if flow is None or not hmac.compare_digest(state.encode(), flow.state.encode()):
            raise HTTPProblem(403, "this sign-in was not begun in this browser, is too old, or has ended: begin again")
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
        response = RedirectResponse(own_path(flow.next), 303, headers=HEADERS)
        response.headers.append("Set-Cookie", self._door.origin.set_cookie(sessions.begin(caller)))
        response.headers.append("Set-Cookie", self._set_cookie(""))
        return response

    def _again(self, flow: Flow, problem: str) -> Response:
        """Show the form again; this sign-in has ended."""
        provider = self._openid.provider.name
        response = page("sign_in.html", 403, next=flow.next, link="", links=False, problem=problem, provider=provider)
        response.headers.append("Set-Cookie", self._set_cookie(""))
        return response

    def _set_cookie(self, sealed: str) -> str:
        """Return the header that keeps a sign-in, or removes it. `Lax`: the provider's page leads back here."""
        age, secure = FLOW_SECONDS if sealed else 0, "; Secure" if self._door.origin.secure else ""
        return f"{self._cookie}={sealed}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"

"""Who comes in: a bearer token or a signed request, and what it may be used for.

All of that is known from the headers: nobody's body is read before it is known whose it is.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.runtime.gateway.callers import Caller, Callers, Scope
from holdfast.runtime.gateway.problems import Trouble
from holdfast.runtime.gateway.quotas import EACH_CALLER, Quota, Quotas
from holdfast.runtime.gateway.signed_requests import SIGNATURE, SignedRequests, check_body, unknown

_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="A token of HOLDFAST_GATEWAY_TOKENS.")
_SIGNED = APIKeyHeader(
    name=SIGNATURE,
    auto_error=False,
    scheme_name="signature",
    description="Ed25519, with Holdfast-Key, Holdfast-Timestamp and Holdfast-Nonce (docs/operating.md, Webhooks).",
)

CallerOf = Callable[..., Awaitable[Caller]]


class Authenticator:
    """Finds out who asks.

    Args:
        callers: Everybody who may.
        audience: This gateway's URL, for which requests are signed; None for one that takes none.
        share: What each caller may take.
    """

    def __init__(self, callers: Callers, audience: str | None = None, share: Quota = EACH_CALLER) -> None:
        self.callers = callers
        self._signed = SignedRequests(callers, audience)
        self._shares = Quotas(share)

    def for_scope(self, scope: Scope) -> CallerOf:
        """A dependency: who asks, if they may do that.

        Args:
            scope: What it takes.
        """

        async def caller(
            request: Request,
            bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
            _: Annotated[str | None, Security(_SIGNED)],
        ) -> Caller:
            found = self._find(request, bearer)
            request.state.caller = found.name
            self._shares.take(found.name)
            request.state.leaving.enter_context(self._shares.under_way(found.name))
            if scope not in found.scopes:
                has = ", ".join(found.scopes)
                raise Trouble(403, f"{found.name} may not do this: it takes the scope {scope}, and theirs are {has}")
            if SIGNATURE in request.headers:
                check_body(await request.body(), request.headers)
            return found

        return caller

    def _find(self, request: Request, bearer: HTTPAuthorizationCredentials | None) -> Caller:
        if SIGNATURE in request.headers:
            query = request.url.query
            path = request.scope["path"] + (f"?{query}" if query else "")
            return self._signed.caller(request.method, path, request.headers)
        if bearer is None:
            raise unknown("say who you are: `Authorization: Bearer TOKEN`, or sign the request")
        if (found := self.callers.with_token(bearer.credentials)) is None:
            raise unknown("this token is not known here; tokens are listed by their SHA-256 in HOLDFAST_GATEWAY_TOKENS")
        return found

"""Authenticates callers, by a bearer token or a signed request, and checks their scopes and quotas.

The headers suffice for that: no body is read before its caller is authenticated.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.runtime.client.signed_requests import SIGNATURE
from holdfast.runtime.gateway.callers import Caller, Callers, Scope
from holdfast.runtime.gateway.problems import HTTPProblem
from holdfast.runtime.gateway.quotas import EACH_CALLER, Quota, Quotas
from holdfast.runtime.gateway.signed_requests import SignedRequests, check_body, unauthenticated

_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="A token of HOLDFAST_GATEWAY_TOKENS.")
_SIGNED = APIKeyHeader(
    name=SIGNATURE,
    auto_error=False,
    scheme_name="signature",
    description="Ed25519, with Holdfast-Key, Holdfast-Timestamp and Holdfast-Nonce (docs/how-to/gateway.md).",
)

FindCaller = Callable[..., Awaitable[Caller]]


class Authenticator:
    """Authenticates requests.

    Args:
        callers: Who has access.
        audience: This gateway's URL, for which requests are signed; None to refuse signed requests.
        quota: The quota of each caller.
    """

    def __init__(self, callers: Callers, audience: str | None = None, quota: Quota = EACH_CALLER) -> None:
        self.callers = callers
        self._signed = SignedRequests(callers, audience)
        self._quotas = Quotas(quota)

    def for_scope(self, scope: Scope) -> FindCaller:
        """A dependency that returns the caller, if the caller has a scope.

        Args:
            scope: The scope that the route requires.
        """

        async def caller(
            request: Request,
            bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
            _: Annotated[str | None, Security(_SIGNED)],
        ) -> Caller:
            found = self._find(request, bearer)
            request.state.caller = found.name
            self._quotas.take(found.name)
            request.state.cleanup.enter_context(self._quotas.under_way(found.name))
            if scope not in found.scopes:
                scopes = ", ".join(found.scopes)
                raise HTTPProblem(403, f"this requires the scope {scope}, and {found.name} has only {scopes}")
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
            raise unauthenticated("say who you are: `Authorization: Bearer TOKEN`, or sign the request")
        if (found := self.callers.with_token(bearer.credentials)) is None:
            raise unauthenticated("this token is unknown; list the SHA-256 of each token in HOLDFAST_GATEWAY_TOKENS")
        return found

"""Authenticates callers, by a bearer token or a signed request; checks their scopes, quotas and threads.

It needs only the headers: no body is read before its caller is authenticated.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, TypeAlias
from urllib.parse import unquote

from fastapi import Depends, Path, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from holdfast.client.signed_requests import SIGNATURE
from holdfast.client.start_options import check_thread_id
from holdfast.errors import ThreadNotFound
from holdfast.gateway.callers import Caller, Callers, Scope
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import EACH_CALLER, Quota, Quotas
from holdfast.gateway.signed_requests import SignedRequests, check_body, unauthenticated

_BEARER = HTTPBearer(auto_error=False, scheme_name="token", description="A token of HOLDFAST_GATEWAY_TOKENS.")
_SIGNED = APIKeyHeader(
    name=SIGNATURE,
    auto_error=False,
    scheme_name="signature",
    description="Ed25519, with Holdfast-Key, Holdfast-Timestamp and Holdfast-Nonce (docs/how-to/gateway.md).",
)

FindCaller = Callable[..., Awaitable[Caller]]

ThreadInPath: TypeAlias = Annotated[
    str, Path(description="The thread id, percent-encoded: a slash in it is %2F.", min_length=1)
]


class Access(NamedTuple):
    """A caller, and the thread of the request."""

    caller: Caller
    thread: str


class Authenticator:
    """Authenticates requests.

    Args:
        callers: The callers with access.
        audience: This gateway's URL, which signed requests name; None to reject signed requests.
        quota: The quota of each caller.
    """

    def __init__(self, callers: Callers, audience: str | None = None, quota: Quota = EACH_CALLER) -> None:
        self.callers = callers
        self._signed = SignedRequests(callers, audience)
        self._quotas = Quotas(quota)

    def for_scope(self, scope: Scope | None) -> FindCaller:
        """Return a dependency that yields the caller, if the caller has a scope.

        Args:
            scope: The scope that the route requires; None if the route itself checks it.
        """

        async def authenticate(
            request: Request,
            bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
            _: Annotated[str | None, Security(_SIGNED)],
        ) -> Caller:
            caller = self._caller(request, bearer)
            self.admit(request, caller)
            if scope is not None:
                check_scope(caller, scope)
            if SIGNATURE in request.headers:
                check_body(await request.body(), request.headers)
            return caller

        return authenticate

    def admit(self, request: Request, caller: Caller) -> None:
        """Count the request of an authenticated caller towards the caller's quota.

        Raises:
            HTTPProblem: 429: there are too many.
        """
        request.state.caller = caller.name
        self._quotas.take(caller.name)
        request.state.cleanup.enter_context(self._quotas.under_way(caller.name))

    def for_thread(self, scope: Scope) -> Callable[..., Awaitable[Access]]:
        """Return a dependency that yields the caller and the thread in the path, if the caller may access it.

        Args:
            scope: The scope that the route requires.
        """
        with_scope = Depends(self.for_scope(scope))

        async def authorize(request: Request, thread: ThreadInPath, caller: Annotated[Caller, with_scope]) -> Access:
            name = request.state.thread = decode_thread(thread)
            if not caller.reaches(check_thread_id(name)):
                raise ThreadNotFound(name)  # the same response as for a thread that does not exist
            return Access(caller, name)

        return authorize

    def _caller(self, request: Request, bearer: HTTPAuthorizationCredentials | None) -> Caller:
        if SIGNATURE in request.headers:
            query = request.url.query
            path = request.scope["path"] + (f"?{query}" if query else "")
            return self._signed.caller(request.method, path, request.headers)
        if bearer is None:
            raise unauthenticated("say who you are: `Authorization: Bearer TOKEN`, or sign the request")
        if (caller := self.callers.with_token(bearer.credentials)) is None:
            raise unauthenticated("this token is unknown; list the SHA-256 of each token in HOLDFAST_GATEWAY_TOKENS")
        return caller


def check_scope(caller: Caller, scope: Scope) -> None:
    """Check that a caller has a scope.

    Raises:
        HTTPProblem: 403: the caller does not.
    """
    if scope not in caller.scopes:
        scopes = ", ".join(caller.scopes)
        raise HTTPProblem(403, f"this requires the scope {scope}, and {caller.name} has only {scopes}")


def decode_thread(encoded: str, *, status: int = 404) -> str:
    """Decode the thread id in a path.

    Args:
        encoded: The segment of the path.
        status: The HTTP status for an invalid one.

    Raises:
        HTTPProblem: It is not UTF-8.
    """
    try:
        return unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        raise HTTPProblem(status, "the thread id in the path is not UTF-8; percent-encode it") from None

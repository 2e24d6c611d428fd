"""Authenticates callers, by a bearer token or a signed request; checks their scopes, quotas and threads.

The headers suffice for that: no body is read before its caller is authenticated.
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
    """A caller, and the thread that the request is about."""

    caller: Caller
    thread: str


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

    def for_thread(self, scope: Scope) -> Callable[..., Awaitable[Access]]:
        """A dependency that returns the caller and the thread in the path, if the caller may reach it.

        Args:
            scope: The scope that the route requires.
        """
        with_scope = Depends(self.for_scope(scope))

        async def access(request: Request, thread: ThreadInPath, caller: Annotated[Caller, with_scope]) -> Access:
            name = request.state.thread = decode_thread(thread)
            if not caller.reaches(check_thread_id(name)):
                raise ThreadNotFound(name)  # the same answer as where there is none
            return Access(caller, name)

        return access

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


def decode_thread(encoded: str, *, status: int = 404) -> str:
    """The thread id that a path names.

    Args:
        encoded: The segment of the path.
        status: The status where it is none.

    Raises:
        HTTPProblem: It is not UTF-8.
    """
    try:
        return unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        raise HTTPProblem(status, "the thread id in the path is not UTF-8; percent-encode it") from None

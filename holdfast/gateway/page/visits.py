"""Visits: a request of a person who is signed in, or the way to sign in.

The caller of a session passes the same checks as the caller of a token: its scopes, its threads, its quota.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.client.start_options import check_thread_id
from holdfast.config.page_links import path_of
from holdfast.errors import ThreadNotFound
from holdfast.gateway.authentication import Authenticator, decode_thread
from holdfast.gateway.callers import Caller, Scope
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import HEADERS, Origin, is_from_elsewhere, read_form
from holdfast.gateway.page.rendering import page
from holdfast.gateway.page.sessions import Session, Sessions
from holdfast.gateway.page.views.requests import Person


@dataclass(frozen=True)
class Visit:
    """A request of a person who is signed in."""

    request: Request
    session: Session
    gateway_key: str
    is_open: Callable[[], bool] = lambda: True
    """Whether the session is still open: it may end while a response is streamed."""

    @property
    def caller(self) -> Caller:
        """The person, with the scopes of their token."""
        return self.session.caller

    @property
    def person(self) -> Person:
        """The person, for views."""
        return Person(self.caller.name, "decide" in self.caller.scopes, self.gateway_key)

    @property
    def now(self) -> datetime:
        """The time."""
        return datetime.now(UTC)

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    def segment(self, name: str) -> str:
        """Return a decoded segment of the path."""
        return decode_thread(self.request.path_params[name])

    def require(self, scope: Scope) -> None:
        """Check a scope.

        Raises:
            HTTPProblem: 403: the caller's token does not have it.
        """
        if scope not in self.caller.scopes:
            has = ", ".join(self.caller.scopes)
            raise HTTPProblem(403, f"this requires the scope {scope}, and {self.caller.name} has only {has}")

    def thread(self) -> str:
        """Return the thread in the path.

        Raises:
            ThreadNotFound: There is no such thread, as far as the caller may know.
        """
        name = self.request.state.thread = self.segment("thread")
        if not self.caller.reaches(check_thread_id(name)):
            raise ThreadNotFound(name)
        return name

    async def form(self) -> dict[str, list[str]]:
        """Read the form that was sent, and check its token.

        Raises:
            HTTPProblem: It is no form of this session for this path.
        """
        fields = await read_form(self.request)
        if not self.session.is_token((fields.pop("form", [""]))[-1], self.request.scope["path"]):
            raise HTTPProblem(403, "this form is not of your session any more: open the page again")
        return fields

    def render(self, template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
        """Return a page, with what all pages need: the person, and the tokens of forms."""
        return page(
            template,
            code,
            me=self.caller,
            form_token=self.session.form_token,
            here=self.request.scope["path"],
            now=self.now,
            **values,
        )


Answer = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Door:
    """Lets people in who are signed in.

    Args:
        origin: The page's address.
        sessions: The open sessions.
        authenticator: The gateway's, for quotas.
        gateway_key: The public key with which the gateway vouches for people; empty for none.
    """

    origin: Origin
    sessions: Sessions
    authenticator: Authenticator
    gateway_key: str

    def visit(self, answer: Answer) -> Endpoint:
        """Return an endpoint that answers people who are signed in, and leads all others to the sign-in form."""

        async def endpoint(request: Request) -> Response:
            self.origin.check(request)
            id = request.cookies.get(self.origin.cookie, "")
            session = self.sessions.find(id)
            if session is None:
                return self._outside(request)
            self.authenticator.admit(request, session.caller)
            return await answer(Visit(request, session, self.gateway_key, lambda: self.sessions.find(id) is session))

        return endpoint

    def _outside(self, request: Request) -> Response:
        """Answer somebody without a session."""
        here = _address(request) if request.method == "GET" else ""
        if request.headers.get("hx-request") == "true":
            return Response(status_code=401, headers={**HEADERS, "HX-Redirect": path_of("sign-in")})
        if request.headers.get("accept") == "text/event-stream":
            return Response(status_code=401, headers=HEADERS)  # a browser would follow to the form, and not read it
        if request.method == "GET" and is_from_elsewhere(request):
            # The browser left the cookie out, because another site has the link: ask again, from this origin.
            return page("again.html", here=here)
        return RedirectResponse(f"{path_of('sign-in')}?next={quote(here, safe='')}", 303, headers=HEADERS)


def _address(request: Request) -> str:
    """Return the path of a request and its query, percent-encoded as they came."""
    query = request.scope["query_string"].decode("ascii", "replace")
    return str(request.scope["path"]) + (f"?{query}" if query else "")

"""Signing in, with a token of the gateway or a one-time link, and signing out."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.config.page_links import path_of
from holdfast.gateway.page.guards import HEADERS, own_path, read_form
from holdfast.gateway.page.rendering import page
from holdfast.gateway.page.visits import Door, Visit

TOKEN_CHARS = 4_000
"""The longest token that is looked up."""


class SigningIn:
    """The pages of signing in and out.

    Args:
        door: Has the sessions, and the gateway's callers.
    """

    def __init__(self, door: Door) -> None:
        self._door = door
        openid = door.authenticator.callers.openid
        self._provider = openid.name if openid else ""

    async def show(self, request: Request) -> Response:
        """Show the form: with a one-time link, a button alone. Opening the link does not use it up: programs that
        preview links open them, too.
        """
        self._door.origin.check(request)
        link = request.query_params.get("link", "")
        next_path = own_path(request.query_params.get("next", ""))
        return self._form(next_path, link=link)

    async def sign_in(self, request: Request) -> Response:
        """Begin a session under a new id, and end the browser's earlier one.

        Raises:
            HTTPProblem: 403: the form was sent from elsewhere.
        """
        self._door.origin.check(request)
        fields = await read_form(request)
        link, token = (fields.get(name, [""])[-1] for name in ("link", "token"))
        sessions = self._door.sessions
        if link:
            caller = sessions.use_link(link)
        else:
            caller = self._door.authenticator.callers.with_token(token.strip()[:TOKEN_CHARS])
        next_path = own_path(fields.get("next", [""])[-1])
        if caller is None:
            problem = "This link was used, or is too old." if link else "This token is unknown."
            return self._form(next_path, problem=problem)
        sessions.end(request.cookies.get(self._door.origin.cookie, ""))
        headers = {**HEADERS, "Set-Cookie": self._door.origin.set_cookie(sessions.begin(caller))}
        return RedirectResponse(next_path, 303, headers=headers)

    def _form(self, next_path: str, *, link: str = "", problem: str = "") -> Response:
        status, links = 401 if problem else 200, self._door.sessions.prints_links
        given = {"next": next_path, "link": link, "links": links, "problem": problem, "provider": self._provider}
        return page("sign_in.html", status, **given)

    async def sign_out(self, visit: Visit) -> Response:
        """End the session."""
        await visit.form()
        self._door.sessions.end(visit.request.cookies.get(self._door.origin.cookie, ""))
        headers = {**HEADERS, "Set-Cookie": self._door.origin.set_cookie("")}
        return RedirectResponse(path_of("sign-in"), 303, headers=headers)

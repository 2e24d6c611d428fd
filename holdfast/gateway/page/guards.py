"""The guards of the page: which requests of a browser it answers, and what a browser may do with its responses.

1. A request names this page's host, as `HOLDFAST_GATEWAY_URL` has it; one for a name that was rebound is refused.
2. A form comes from this origin: `Origin` is it, and `Sec-Fetch-Site`, if the browser sends it, is `same-origin`.
3. A page is read by this origin, or opened by a person; no other page includes, frames or fetches it.
4. The session's cookie is host-only, `HttpOnly` and `SameSite=Strict`, and `__Host-` over https. Its name has the port,
   because browsers send a cookie to every port of a host.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.config.page_links import PREFIX, path_of
from holdfast.gateway.bodies import Body, read_body
from holdfast.gateway.http.problems import HTTPProblem

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Headers of every response of the page. `no-referrer` would hide the origin of our own forms."""

FIELDS = 1_000
"""The most fields of a form."""

_Sent = TypeVar("_Sent", bound=Body)


class Origin:
    """The address of the page.

    Args:
        url: The gateway's URL: `https://holdfast.example`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url.lower())
        self.secure = parts.scheme == "https"
        usual = 443 if self.secure else 80
        port = parts.port or usual
        name = parts.netloc.rpartition("@")[2].removesuffix(f":{port}")
        self.host = name if port == usual else f"{name}:{port}"
        """The header `Host`, as browsers write it: without the usual port."""
        self.text = f"{parts.scheme}://{self.host}"
        """The header `Origin`."""
        self.cookie = f"__Host-holdfast-{port}" if self.secure else f"holdfast-{port}"
        """The name of the session's cookie."""

    def check(self, request: Request) -> None:
        """Check that a request may have a response.

        Raises:
            HTTPProblem: 403: it is for another host, or was made by another site's page.
        """
        if request.headers.get("host", "").lower() != self.host:
            raise HTTPProblem(403, f"this page is at {self.text}{PREFIX}/; a proxy has to pass on the header Host")
        site = request.headers.get("sec-fetch-site", "")
        if request.method in ("GET", "HEAD"):
            if site in ("cross-site", "same-site") and not _is_opened(request):
                raise HTTPProblem(403, "another page may not read this one")
            return
        if request.headers.get("origin", "").lower() != self.text or site not in ("", "same-origin"):
            raise HTTPProblem(403, "a form has to be sent from this page itself: open it, and try again")

    def set_cookie(self, id: str) -> str:
        """Return the header that keeps a session's id in the browser, or removes it if the id is empty."""
        age = "" if id else "; Max-Age=0"
        return f"{self.cookie}={id}; Path=/; HttpOnly; SameSite=Strict{age}{'; Secure' if self.secure else ''}"


def is_from_elsewhere(request: Request) -> bool:
    """Whether a person followed a link of another site: the browser then leaves out a `SameSite=Strict` cookie."""
    return request.headers.get("sec-fetch-site", "") in ("cross-site", "same-site")


def _is_opened(request: Request) -> bool:
    """Whether the browser opens the response as a page of its own."""
    headers = request.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


async def read_form(request: Request) -> dict[str, list[str]]:
    """Read a form, and return the values of each field, without surrogates.

    Raises:
        HTTPProblem: 415: it is no form; 422: it has too many fields or is not UTF-8.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPProblem(415, "a form is sent as application/x-www-form-urlencoded")
    try:
        body = (await request.body()).decode()
        pairs = parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:
        raise HTTPProblem(422, "the form cannot be read: it is not UTF-8, or has too many fields") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return fields


def read_fields(fields: Mapping[str, Any], kind: type[_Sent]) -> _Sent:
    """Read the fields of a form as the body that the API takes for the same.

    Raises:
        HTTPProblem: 422: they are invalid.
    """
    return read_body(json.dumps(fields).encode(), kind)


def see_other(*segments: str) -> Response:
    """Lead the browser to a page after a form, so that a reload does not send it again."""
    return RedirectResponse(path_of(*segments), 303, headers=HEADERS)


def number_of(text: str | None, otherwise: int) -> int:
    """Return a number of at most 15 digits in a query or a form; `otherwise` for any other text."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else otherwise


def own_path(text: str) -> str:
    """Return a path to go to after signing in, if it is one of the page; else that of the inbox.

    Browsers read two slashes, backslashes and control characters in ways of their own, so only plain paths pass.
    """
    plain = text.startswith(f"{PREFIX}/") and text.isascii() and text.isprintable() and len(text) <= 2_000
    forbidden = set("\\\"<>'` ") & set(text) or "//" in text or ".." in unquote(text).split("/")
    return text if plain and not forbidden else path_of("inbox")

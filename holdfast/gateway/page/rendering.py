"""Renders templates, and serves the files that they load: style sheet and script, from this package alone."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from holdfast.config.page_links import path_of
from holdfast.core.base.text import escape_invisible
from holdfast.gateway.page.guards import HEADERS

HERE = Path(__file__).parent
FILES: Mapping[str, str] = {
    "page.css": "text/css; charset=utf-8",
    "htmx-4.0.1.min.js": "text/javascript; charset=utf-8",
    "sign.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "select.js": "text/javascript; charset=utf-8",
    "times.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""Files → their media types. Nothing else of the folder is served."""


@cache
def templates() -> Environment:
    """The templates. Every value is escaped, and a name that a template misspells is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["visible"] = escape_invisible
    environment.globals["static"] = static_path
    environment.globals["path"] = path_of
    environment.globals["server_time"] = lambda: datetime.now(UTC).isoformat()
    return environment


@cache
def _read(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()


@cache
def static_path(name: str) -> str:
    """Return the path of a file, with its digest, so that browsers keep it until it changes."""
    return f"{path_of('static', name)}?{sha256(_read(name)).hexdigest()[:12]}"


def static_file(name: str) -> Response | None:
    """Return a file that templates load; None for any other name."""
    if name not in FILES:
        return None
    headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
    return Response(_read(name), headers=headers, media_type=FILES[name])


def rendered(template: str, /, **values: Any) -> str:
    """Render a template; half a surrogate pair, which has no encoding, becomes a question mark."""
    return templates().get_template(template).render(**values).encode("utf-8", "replace").decode()


def page(template: str, code: int = 200, /, **values: Any) -> HTMLResponse:
    """Return a page or a fragment of one as a response."""
    return HTMLResponse(rendered(template, **values), code, headers=HEADERS)

"""Paths of the gateway's page, and which addresses of it may be shown as links. Pure.

An address comes from a setting of a worker, and is recorded, so it is judged again wherever it is shown.
"""

import re
from urllib.parse import quote

PREFIX = "/page"

MOST_CHARS = 300
"""The most characters of the address of a gateway."""

_GATEWAY = re.compile(
    r"(?:https://(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])|http://(?:127\.0\.0\.1|localhost|\[::1\]))"
    r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~-]+)*"
)
"""A host over https, or this machine; without a login, a query, or a character with a meaning in Markdown or HTML."""


def path_of(*segments: str) -> str:
    """Return a path of the page, each segment percent-encoded: a thread's id may have a slash."""
    return "/".join([PREFIX, *(quote(each.encode("utf-8", "replace"), safe="") for each in segments)])


def address_of(gateway: str, thread: str, request: str = "") -> str:
    """Return the address at which people decide a request; without one, of the run."""
    return gateway.rstrip("/") + (path_of("requests", thread, request) if request else path_of("runs", thread))


def linkable(gateway: str | None) -> str:
    """Return the address of a gateway as it is recorded, for links to its page; empty if none may be shown."""
    address = (gateway or "").rstrip("/")
    return address if len(address) <= MOST_CHARS and _GATEWAY.fullmatch(address) else ""

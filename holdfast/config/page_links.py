"""Addresses of the gateway's page, below `HOLDFAST_GATEWAY_URL`."""

from urllib.parse import urlsplit

from holdfast.core.base.page_paths import PREFIX as PREFIX
from holdfast.core.base.page_paths import address_of
from holdfast.core.base.page_paths import path_of as path_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_servable(url: str) -> bool:
    """Whether a browser keeps a page at this address apart from other machines: over https, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.hostname or "") in LOOPBACK


def page_link(gateway: str | None, thread: str, request: str = "") -> str | None:
    """Return the address at which people decide a request, or look at a run; None if there is no page.

    Args:
        gateway: `HOLDFAST_GATEWAY_URL`; None if it is not set.
        thread: The thread's id.
        request: The request's id; empty for the run.
    """
    if not gateway or not is_servable(gateway):
        return None
    return address_of(gateway, thread, request)

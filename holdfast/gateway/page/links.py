"""Addresses of the page, for people who are sent to it from elsewhere."""

from collections.abc import Callable
from urllib.parse import quote

from holdfast.client.ui_links import thread_page
from holdfast.gateway.page.guards import PREFIX, Origin, is_servable

RequestPage = Callable[[str, str], str | None]
"""Returns the address at which people decide a request, given its thread and its name; None if there is none."""


def request_page(gateway: str | None, *, ui: str | None, namespace: str) -> RequestPage:
    """Return what finds the addresses of requests: on the gateway's page, or without one, in Temporal's Web UI, which
    shows the command that decides.

    Args:
        gateway: The gateway's URL; None if it is unknown.
        ui: The address of the Web UI; None for none.
        namespace: Temporal's namespace.
    """
    if gateway is None or not is_servable(gateway):
        return lambda thread, request: thread_page(ui, namespace, thread)
    base = f"{Origin(gateway).text}{PREFIX}/requests"
    return lambda thread, request: f"{base}/{quote(thread, safe='')}/{quote(request, safe='')}"

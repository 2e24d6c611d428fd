"""The address of a request, for people who are sent to it by an MCP client."""

from collections.abc import Callable

from holdfast.client.ui_links import thread_page
from holdfast.config.page_links import page_link

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
    return lambda thread, request: page_link(gateway, thread, request) or thread_page(ui, namespace, thread)

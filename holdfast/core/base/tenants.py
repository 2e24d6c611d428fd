"""Tenants: threads by the prefix of their ids, as the gateway separates them."""

from collections.abc import Sequence


def tenant_of(thread: str, prefixes: Sequence[str]) -> str:
    """Return the tenant of a thread: the longest prefix that its id begins with, without a separator at the end.

    Args:
        thread: The thread's id.
        prefixes: One for each tenant, such as `acme-`.

    Returns:
        The tenant; empty if the thread is nobody's.
    """
    found = max((each for each in prefixes if thread.startswith(each)), key=len, default="")
    return found.rstrip("-_./:") or found

"""Links to Temporal's Web UI, if its address is known."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.config.settings import Settings
from holdfast.config.stack_file import read_stack

CLOUD = "https://cloud.temporal.io"


def ui_base(config: Mapping[str, Any], settings: Settings) -> str | None:
    """Return the address of the Web UI for the server that `config` connects to; None if it is unknown."""
    if settings.ui_url is not None:
        return settings.ui_url.rstrip("/")
    address = str(config["target_host"])
    stack = read_stack(settings.home)
    if stack is not None and stack.temporal_address.partition(":")[2] == address.rpartition(":")[2]:
        host = address.rpartition(":")[0]
        if host in ("localhost", "127.0.0.1", stack.temporal_address.partition(":")[0]):
            return stack.ui_url
    if address.partition(":")[0].endswith((".tmprl.cloud", ".api.temporal.io")):
        return CLOUD
    return None


def thread_page(base: str | None, namespace: str, thread: str) -> str | None:
    """Return the address of a thread's page, which shows its latest run; None without a Web UI."""
    if base is None:
        return None
    return f"{base.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{quote(thread, safe='')}"


def ui_link(base: str | None, *, namespace: str, thread: str, run_id: str) -> str | None:
    """Return the address of one run's page; None without a Web UI."""
    if base is None:
        return None
    return f"{base}/namespaces/{quote(namespace, safe='')}/workflows/{quote(thread, safe='')}/{run_id}/history"

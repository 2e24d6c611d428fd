"""Keeps catalogs of one process apart: the workers of a task queue must offer the same agents.

A worker of another process is noticed by `holdfast.worker.takeover`, which warns: during a deployment, an older and a
newer version of one catalog share a queue on purpose. Within one process there is no such reason.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client

from holdfast.config.settings import Settings
from holdfast.core.agents.agent import shared
from holdfast.core.agents.catalog import Catalog
from holdfast.core.base.canonical import digest
from holdfast.errors import SettingsError
from holdfast.worker.takeover.registry import Offer


def offer_of(settings: Settings, catalog: Catalog, reference: str) -> Offer:
    """Return what a worker offers, for other workers of the queue and for `doctor`."""
    llm = settings.default_llm
    hashes = {name: shared(catalog.spec(name, default_llm=llm)).hash for name in catalog.agents}
    return Offer(
        catalog=reference,
        agents=tuple(catalog.agents),
        llm=llm if isinstance(llm, str) else ", ".join(llm),
        folder=str(Path.cwd()),
        digest=digest(["offer/1", hashes]),
    )


@contextmanager
def serving_queue(client: Client, task_queue: str, offer: Offer) -> Iterator[None]:
    """Hold a task queue for a block, together with others of this process that offer the same agents.

    Args:
        client: It names the server and the namespace.
        task_queue: The queue.
        offer: What the worker offers.

    Raises:
        SettingsError: Another worker of this process offers other agents on the queue.
    """
    queue = client.service_client.config.target_host, client.namespace, task_queue
    with _LOCK:
        other = next((each for at, each in _held if at == queue and each.digest != offer.digest), None)
        if other is not None:
            raise SettingsError(
                f"this process already serves the task queue {task_queue!r} with {', '.join(other.agents)} of "
                f"{other.catalog}, and either worker would take the runs of the other: give each catalog a queue of "
                'its own (task_queue="…")'
            )
        _held[queue, offer] += 1
    try:
        yield
    finally:
        with _LOCK:
            _held[queue, offer] -= 1
            if not _held[queue, offer]:
                del _held[queue, offer]


_LOCK = threading.Lock()
_held: Counter[tuple[tuple[str, str, str], Offer]] = Counter()
"""The queues that this process serves, with what it offers there."""

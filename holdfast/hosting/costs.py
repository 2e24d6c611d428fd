"""Settings of a program's worker that cost Holdfast something. They are the program's: none of them is changed."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from temporalio.workflow import NondeterminismError

from holdfast.core.run.contracts.table import HEARTBEAT_TIMEOUT
from holdfast.worker.construction import HEARTBEAT_THROTTLE, STICKY_TIMEOUT

_BEFORE_TIMEOUT = 0.8
"""The share of the heartbeat time-out after which the SDK sends one, unless its limit is shorter."""


def costs_of(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each setting of a worker that costs something: the setting, its cost, and the better value.

    Args:
        config: The worker's configuration (`temporalio.worker.WorkerConfig`).
    """
    sticky: timedelta = config.get("sticky_queue_schedule_to_start_timeout", timedelta(seconds=10))
    if sticky > STICKY_TIMEOUT:
        yield (
            f"sticky_queue_schedule_to_start_timeout is {_seconds(sticky)}: if this worker is killed, its runs wait "
            f"that long for another one; {_seconds(STICKY_TIMEOUT)} is enough"
        )
    limit: timedelta = config.get("max_heartbeat_throttle_interval", timedelta(seconds=60))
    interval = min(limit, HEARTBEAT_TIMEOUT * _BEFORE_TIMEOUT)
    if interval > HEARTBEAT_THROTTLE:
        yield (
            f"max_heartbeat_throttle_interval is {_seconds(limit)}: a call sends a heartbeat every "
            f"{_seconds(interval)} and is given to another worker after {_seconds(HEARTBEAT_TIMEOUT)}, which leaves a "
            f"busy worker {_seconds(HEARTBEAT_TIMEOUT - interval)}; {_seconds(HEARTBEAT_THROTTLE)} is safer"
        )
    if not config.get("build_id") and not config.get("deployment_config"):
        yield (
            "build_id is not set: the SDK hashes every module of the process instead, and each step's history repeats "
            "the hash; set one, or a deployment_config"
        )
    if config.get("max_workflow_task_external_storage_concurrency", 3) > 1 and not _stores_externally(config):
        yield (
            "max_workflow_task_external_storage_concurrency is above 1, and there is no external storage: each payload "
            "costs a task of the event loop; set it to 1"
        )
    if not config.get("graceful_shutdown_timeout"):
        yield (
            "graceful_shutdown_timeout is not set: stopping the worker cancels tool calls at once, and the outcome of "
            "an effect may then be unknown; 5 s let most calls end"
        )
    if any(issubclass(NondeterminismError, each) for each in config.get("workflow_failure_exception_types") or ()):
        yield (
            "workflow_failure_exception_types includes NondeterminismError: a run that a faulty release cannot replay "
            "fails for good, instead of waiting for the next release"
        )


def _stores_externally(config: Mapping[str, Any]) -> bool:
    client = config.get("client")
    return bool(client and client.data_converter.external_storage)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"

"""The workers that poll a task queue, as Temporal lists them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import Client

_LIMIT = timedelta(seconds=5)
FRESH = timedelta(seconds=75)
"""The age of a live worker's last poll: at most a minute, while Temporal lists pollers for minutes after they end."""


@dataclass(frozen=True)
class Poller:
    """A worker that has polled a task queue recently."""

    identity: str
    version: str
    """The release of Holdfast that it runs; empty if it does not say."""
    polled_at: datetime


async def pollers(client: Client, task_queue: str) -> list[Poller]:
    """Return the workers that polled a task queue recently, by identity.

    Raises:
        RPCError: The server does not list them.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=_LIMIT)
    now = datetime.now(UTC)
    found: dict[str, Poller] = {}
    for each in answer.pollers:
        polled = each.last_access_time.ToDatetime(UTC)
        if now - polled < FRESH:
            version = each.worker_version_capabilities.build_id or each.deployment_options.build_id
            found[each.identity] = Poller(each.identity, version, polled)
    return [found[identity] for identity in sorted(found)]


async def server_version(client: Client) -> str:
    """Return the version of the Temporal server.

    Raises:
        RPCError: It does not answer.
    """
    answer = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_LIMIT)
    return answer.server_version

"""The destination of a migrated thread: the id of the one Temporal namespace in which a run may continue it.

Temporal assigns that id when it creates the namespace, and never changes it. A run belongs to one namespace, so this id
identifies the cluster for the thread.
"""

from datetime import timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.client.unreachable import unreachable
from holdfast.core.run.state.state import RunState
from holdfast.errors import ImportRefused

_LIMIT: Final = timedelta(seconds=10)


async def namespace_id(client: Client) -> str:
    """Return the id of the namespace that a client is connected to.

    Raises:
        ServerUnreachable: The server is unreachable, or fails to describe the namespace.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        described = await client.workflow_service.describe_namespace(request, timeout=_LIMIT)
    except RPCError as error:
        raise unreachable(client.service_client.config.target_host, error.message) from None
    return described.namespace_info.id


async def refuse_destination(client: Client, state: RunState) -> None:
    """Reject a thread that was moved to another cluster, where it may be running already.

    Args:
        client: Connected to this cluster.
        state: The thread's state at the end of the file.

    Raises:
        ImportRefused: The thread was moved to another cluster.
        ServerUnreachable: The server is unreachable.
    """
    destination = state.moving.to if state.moving and state.outcome == "moved" else ""
    if destination and destination != (here := await namespace_id(client)):
        raise ImportRefused(
            f"thread {state.thread!r} was moved to the place {destination}, and this is {here}: import it there. "
            "Where you know that it was not imported there, and never will be, --override-destination imports it here; "
            "or --fork it. Nothing was imported."
        )

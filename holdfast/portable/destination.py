"""The place that a moved thread is for: the id of the one Temporal namespace in which a run may continue it.

Temporal makes that id once, with the namespace, and keeps it for ever. A run lives in a namespace, so two places with
the same id would also be one place for the thread.
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


async def place_of(client: Client) -> str:
    """Return the id of the place that a client is connected to.

    Raises:
        ServerUnreachable: The server does not answer, or does not describe the namespace.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        described = await client.workflow_service.describe_namespace(request, timeout=_LIMIT)
    except RPCError as error:
        raise unreachable(client.service_client.config.target_host, error.message) from None
    return described.namespace_info.id


async def refuse_destination(client: Client, state: RunState) -> None:
    """Refuse a thread that was moved to another place: there, it may run already.

    Args:
        client: Connected to this place.
        state: The thread's state at the end of the file.

    Raises:
        ImportRefused: It was.
        ServerUnreachable: The server does not answer.
    """
    named = state.moving.to if state.moving and state.outcome == "moved" else ""
    if named and named != (here := await place_of(client)):
        raise ImportRefused(
            f"thread {state.thread!r} was moved to the place {named}, and this is {here}: import it there. Where you "
            "know that it was not imported there, and never will be, --override-destination imports it here; or --fork "
            "it. Nothing was imported."
        )

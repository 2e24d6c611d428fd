"""Keeps a client of a state folder's embedded stack from reaching another server that has taken over its port.

1. The stack's Temporal server must be running before the client connects and before each request
   (`running_stacks.is_running`). A request that reached another server could be read and executed there.
2. While the stack restarts, a request waits, as it does for an unavailable server, unless another program has the port.
3. A failed request is retried here and not by Temporal's client, which would retry it on any server at that port.

A worker's polls bypass these checks; `until_replaced` ends the worker instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, NoReturn

from temporalio.client import ClientConfig, Plugin
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from holdfast.client.unreachable import unreachable
from holdfast.config.running_stacks import is_running, is_taken, running_stacks, without_stack
from holdfast.config.stack_file import Stack, read_stack
from holdfast.errors import ServerUnreachable

PAUSES: Final = (0.1, 0.2, 0.3, 0.5, 0.8, 1.3, 2.0, 2.0, 2.0)
"""Seconds between the attempts of a request: in total as long as those of Temporal's client. A request that waits for
an event of a run repeats the last pause."""

CHECK_SECONDS: Final = 0.25
"""Seconds between a worker's checks whether another program has the port: a Temporal server takes longer to start."""

_REPEATED: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DATA_LOSS,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.OUT_OF_RANGE,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)
"""The errors after which a request is retried, as Temporal's client would do. A server that closes a connection, as it
does after some minutes, cancels its requests; a caller who cancels one gets no `RPCError`."""


class OwnStack(Plugin):
    """Lets a client reach the stack of one state folder only.

    Args:
        home: The state folder. If it records no stack, the client uses the default address, with any server except
            another folder's stack.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._stack: Stack | None = None

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Change nothing."""
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Connect if the server is the stack's, and check each request."""
        self.check(config.target_host)
        connected = await next(config)
        return connected if read_stack(self.home) is None else _Checked(connected, self)

    def check(self, address: str) -> None:
        """Check which server is at an address, without sending anything there.

        Raises:
            ServerUnreachable: It is not this folder's stack.
        """
        if read_stack(self.home) is None:
            own = not any(each.stack.temporal_address.endswith(_port(address)) for each in running_stacks())
        else:
            own = self.runs_at(address)
        if own:
            return
        if not is_taken(address):
            raise unreachable(address, f"the stack of {self.home} is not running")
        what, fix = without_stack(self.home, address)
        raise ServerUnreachable(f"{what}. Nothing was sent there. Start {fix}.")

    def runs_at(self, address: str) -> bool:
        """Whether the stack is running at an address that a client has connected to."""
        if self._stack is None or not is_running(self.home, self._stack):
            self._stack = read_stack(self.home)  # it may have been restarted, perhaps at another port
            if self._stack is None or not is_running(self.home, self._stack):
                return False
        return self._stack.temporal_address.endswith(_port(address))

    async def until_replaced(self, address: str) -> NoReturn:
        """Wait until another program has the address of the stack; restarts of the stack are ignored.

        Raises:
            ServerUnreachable: The server is not this folder's stack any more.
        """
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self.runs_at(address) and await asyncio.to_thread(is_taken, address):
                self.check(address)  # the stack may have been restarted between the two checks


class _Checked(ServiceClient):
    """The client of Temporal's services, limited to the stack's server."""

    def __init__(self, connected: ServiceClient, stack: OwnStack) -> None:
        super().__init__(connected.config)
        self._connected = connected
        self._stack = stack

    @property
    def worker_service_client(self) -> Any:
        """The client that Temporal's worker polls with."""
        return self._connected.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Send other metadata with each request."""
        self._connected.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """Send another key with each request."""
        self._connected.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: Any,
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        waits = getattr(req, "wait_new_event", False) or rpc == "poll_workflow_execution_update"
        pauses = chain(PAUSES if retry else (), repeat(PAUSES[-1]) if retry and waits else ())
        while True:
            try:
                self._require_stack()
                return await self._connected._rpc_call(
                    rpc, req, resp_type, service=service, retry=False, metadata=metadata, timeout=timeout
                )
            except _Replaced:
                raise
            except RPCError as error:
                if error.status not in _REPEATED or (pause := next(pauses, None)) is None:
                    raise
            await asyncio.sleep(pause)

    def _require_stack(self) -> None:
        if not self._stack.runs_at(address := self.config.target_host):
            kind, what = (_Replaced, ", and another program has its port") if is_taken(address) else (RPCError, "")
            said = f"{self._stack.home} has no running stack there{what}; nothing was sent"
            raise kind(said, RPCStatusCode.UNAVAILABLE, b"")


class _Replaced(RPCError):
    """Another server has the port, so waiting is pointless."""


def _port(address: str) -> str:
    return f":{address.rpartition(':')[2]}"

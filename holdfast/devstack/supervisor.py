"""Restarts servers of the embedded stack that have died. Only the process that owns the stack does so.

When the owner ends, one of the other processes that use the stack becomes the owner.
"""

import asyncio

from holdfast.config.logs import EventLogger
from holdfast.config.stack_file import Stack
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.processes import Report
from holdfast.errors import StackError

CHECK_SECONDS = 1.0

log = EventLogger("worker")


async def restart_dead_servers(servers: DevStack, stack: Stack, *, report: Report) -> bool:
    """Check the servers once a second, and restart those that have died, until cancelled.

    Args:
        servers: The stack.
        stack: The addresses at which it was started.
        report: Called with a line at each restart.

    Raises:
        StackError: Temporal restarted at another port. Another Temporal server may have taken the old one, and this
            worker would execute that server's tasks.
    """
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if await asyncio.to_thread(_needs_start, servers):
            if servers.owned:
                report("A server has died; starting it again …")
            try:
                restarted = await asyncio.to_thread(servers.start)
            except StackError as error:
                log.error("server_not_started", reason=str(error))
                continue
            if restarted.temporal_address != stack.temporal_address:
                raise StackError(
                    f"Temporal's port was taken; it is at {restarted.temporal_address} now. Start this again."
                )


def _needs_start(servers: DevStack) -> bool:
    return not servers.running() if servers.owned else servers.ownerless()

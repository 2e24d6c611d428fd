"""A person's commands, run as separate processes: the command line, and the `temporal` program for signals."""

import json

from holdfast.config.stack_file import Stack
from holdfast.devstack.temporal_server import find_binary
from holdfast.examples.shared import commands


class Commands(commands.Commands):
    """A person's commands to one stack."""

    async def signal(self, stack: Stack, thread: str, payload: dict[str, str]) -> str:
        """Send the signal `approve` as the Web UI does; return the command, shortened for display.

        Raises:
            DemoFailed: The server rejects the signal.
        """
        encoded = json.dumps(payload, separators=(",", ":"))
        command = ["workflow", "signal", "--workflow-id", thread, "--name", "approve", "--input", encoded]
        await self.run(find_binary(), *command, "--address", stack.temporal_address, "--namespace", stack.namespace)
        return f"temporal workflow signal -w {thread} --name approve -i '{encoded}'"

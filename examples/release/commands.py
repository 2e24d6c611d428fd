"""A person's commands, run as separate processes: `starter.py`, and the `temporal` program for signals."""

import json
import sys
from pathlib import Path

from holdfast.examples.shared import commands
from holdfast.runtime.config.stack_file import Stack


class Commands(commands.Commands):
    """A person's commands to one stack."""

    async def signal(self, stack: Stack, thread: str, payload: dict[str, str]) -> str:
        """Send the signal `approve` as the Web UI does; return the command, shortened for display.

        Raises:
            DemoFailed: The server rejects the signal.
        """
        # Beside the interpreter: that program belongs to our installation, and its folder need not be on PATH.
        temporal = str(Path(sys.executable).parent / "temporal")
        written = json.dumps(payload, separators=(",", ":"))
        command = ["workflow", "signal", "--workflow-id", thread, "--name", "approve", "--input", written]
        await self.run(temporal, *command, "--address", stack.temporal_address, "--namespace", stack.namespace)
        return f"temporal workflow signal -w {thread} --name approve -i '{written}'"

"""The doors a person uses, each in a process of its own: `starter.py`, and the `temporal` command for signals."""

import json
import sys
from pathlib import Path

from examples.stage import doors
from holdfast.runtime.config.stack_file import Stack


class Authenticator(doors.Authenticator):
    """Commands of a person, against one stack."""

    async def signal(self, stack: Stack, thread: str, payload: dict[str, str]) -> str:
        """Send the signal `approve` as the Web UI does; returns the command, shortened for a person to read.

        Raises:
            DemoFailed: The server does not take it.
        """
        # Beside the interpreter: that one belongs to our installation, and its folder need not be on PATH.
        temporal = str(Path(sys.executable).parent / "temporal")
        written = json.dumps(payload, separators=(",", ":"))
        command = ["workflow", "signal", "--workflow-id", thread, "--name", "approve", "--input", written]
        await self.run(temporal, *command, "--address", stack.temporal_address, "--namespace", stack.namespace)
        return f"temporal workflow signal -w {thread} --name approve -i '{written}'"

"""The doors a person uses, each in a process of its own: `starter.py`, and the `temporal` command for signals."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from examples.release.workers import ROOT, DemoFailed, environment
from holdfast.runtime.stack import Stack


class Doors:
    """Commands of a person, against one stack.

    Args:
        home: Its state folder.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    async def starter(self, *arguments: str) -> dict[str, Any]:
        """Run `python starter.py … --json`; returns what it prints.

        Raises:
            DemoFailed: It ends with an error.
        """
        found: dict[str, Any] = json.loads(await self._run(sys.executable, "starter.py", *arguments, "--json"))
        return found

    async def signal(self, stack: Stack, thread: str, payload: dict[str, str]) -> str:
        """Send the signal `approve` as the Web UI does; returns the command, shortened for a person to read.

        Raises:
            DemoFailed: The server does not take it.
        """
        # Beside the interpreter: that one belongs to our installation, and its folder need not be on PATH.
        temporal = str(Path(sys.executable).parent / "temporal")
        written = json.dumps(payload, separators=(",", ":"))
        command = ["workflow", "signal", "--workflow-id", thread, "--name", "approve", "--input", written]
        await self._run(temporal, *command, "--address", stack.temporal_address, "--namespace", stack.namespace)
        return f"temporal workflow signal -w {thread} --name approve -i '{written}'"

    async def _run(self, *command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=environment(self._home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode:
            words = (errors or output).decode(errors="replace").strip()
            name = f"{Path(command[0]).name} {' '.join(command[1:3])} …"
            raise DemoFailed(f"`{name}` failed (exit code {process.returncode}): {words}")
        return output.decode()

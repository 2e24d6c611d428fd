"""A person's commands, run as separate processes of the command line."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.config.programs import base_folder
from holdfast.examples.shared.workers import HOLDFAST, DemoFailed, environment


class Commands:
    """A person's commands to one stack.

    Args:
        home: The stack's state folder.
        settings: Environment variables, the same as the worker's.
    """

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self._environment = environment(home, settings)

    async def starter(self, *arguments: str) -> dict[str, Any]:
        """Run a verb with `--json`; return its output.

        Raises:
            DemoFailed: The command failed.
        """
        output: dict[str, Any] = json.loads(await self.run(*HOLDFAST, *arguments, "--json"))
        return output

    async def run(self, *command: str) -> str:
        """Run a command; return its output.

        Raises:
            DemoFailed: The command failed.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=base_folder(),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode:
            message = (errors or output).decode(errors="replace").strip()
            name = f"{Path(command[0]).name} {' '.join(command[1:4])} …"
            raise DemoFailed(f"`{name}` failed (exit code {process.returncode}): {message}")
        return output.decode()

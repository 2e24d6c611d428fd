"""The door a person uses, in a process of its own: `starter.py`."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.stage.workers import ROOT, DemoFailed, environment


class Authenticator:
    """Commands of a person, against one stack.

    Args:
        home: Its state folder.
        settings: Environment variables, as the worker has them.
    """

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self._environment = environment(home, settings)

    async def starter(self, *arguments: str) -> dict[str, Any]:
        """Run `python starter.py … --json`; returns what it prints.

        Raises:
            DemoFailed: It ends with an error.
        """
        found: dict[str, Any] = json.loads(await self.run(sys.executable, "starter.py", *arguments, "--json"))
        return found

    async def run(self, *command: str) -> str:
        """Run a command; returns what it prints.

        Raises:
            DemoFailed: It ends with an error.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=self._environment,
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

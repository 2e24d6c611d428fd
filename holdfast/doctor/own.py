"""The checks of a process that serves the page: of its own machine, by its own settings."""

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast.config.programs import base_folder
from holdfast.config.project import Project, read_project
from holdfast.config.settings import Settings
from holdfast.doctor.check import Check
from holdfast.doctor.examine import examine, examine_endpoints
from holdfast.doctor.limited import Limited
from holdfast.errors import SettingsError


class OwnChecks:
    """The checks of this process.

    Args:
        settings: Its settings.
        config: Temporal's connection configuration (`connect_config`).
    """

    def __init__(self, settings: Settings, config: dict[str, Any]) -> None:
        self._settings = settings
        self._config = config
        self._limited = Limited()

    async def installation(self) -> list[Check]:
        """Make all checks but those of LLM endpoints."""
        try:
            project = await asyncio.to_thread(_project)
        except SettingsError as error:  # a file has changed since this process began
            return [Check("settings", "missing", str(error), "correct it; docs/reference/settings.md")]
        return await examine(self._settings, self._config, project, limited=self._limited, serves=True)

    async def endpoints(self) -> list[Check]:
        """Ask the LLM endpoints."""
        return await examine_endpoints(self._settings, limited=self._limited)


def _project() -> Project:
    """Read the project's files: from a disk that may hang."""
    return read_project(os.environ, folder=Path.cwd(), default_root=base_folder(), runs_code=False)

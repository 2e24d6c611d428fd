"""Writes a small project that runs: the files in `templates`. It never overwrites a file."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from holdfast.config.programs import PACKAGE
from holdfast.errors import HoldfastError

AGENT: Final = "agent"
WORKSPACES: Final = {
    "release": ("package", "repository"),
    "loop": ("package", "repository"),
    "research": ("library", "documents"),
}
"""By example: the workspace folder of its agents, and the module of the example that creates it."""
_RENAMED: Final = {"gitignore": ".gitignore"}
"""A template cannot be called `.gitignore`: it would exclude files from our own repository."""


class ProjectExists(HoldfastError):
    """The new project's files exist already."""


def create_project(folder: Path, template: str) -> list[Path]:
    """Write a template's files into a folder, created if missing; return their paths.

    Args:
        folder: The folder of the project.
        template: A folder of `templates`: `agent`, or the name of an example, which gets a workspace, too.

    Raises:
        ProjectExists: A file of that name exists; nothing is written.
        HoldfastError: The example's workspace cannot be created.
        OSError: The folder cannot be written.
    """
    contents = {folder / _RENAMED.get(file.name, file.name): file.read_bytes() for file in _templates(template)}
    workspace = None if template == AGENT else folder / WORKSPACES[template][0]
    if existing := [path for path in [*contents, *([workspace] if workspace else [])] if os.path.lexists(path)]:
        raise ProjectExists(
            f"nothing was written, because there is already {', '.join(map(str, existing))}. Name a new folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    if workspace:
        _create_workspace(template, workspace)
    _write(contents)
    return sorted([*contents, *([workspace] if workspace else [])])


def _write(contents: Mapping[Path, bytes]) -> None:
    """Write all files, or leave none: leftovers would fail the next attempt."""
    written = []
    try:
        for path, content in contents.items():
            with path.open("xb") as file:  # `x` also fails if another process has created the file meanwhile
                written.append(path)
                file.write(content)
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise


def _templates(name: str) -> list[Traversable]:
    entries = (files("holdfast.cli") / "templates" / name).iterdir()
    return sorted((file for file in entries if file.is_file()), key=lambda file: file.name)


def _create_workspace(example: str, folder: Path) -> None:
    """Create an example's workspace in a separate process: the CLI does not import examples."""
    command = [sys.executable, "-m", f"holdfast.examples.{example}.{WORKSPACES[example][1]}", str(folder.absolute())]
    # `-m` searches the current folder first, so that has to be our package's parent.
    completed = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise HoldfastError(f"the workspace {folder} cannot be created: {completed.stderr.strip()}")

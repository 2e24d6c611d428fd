"""Decides whether to print the servers that a project's files name: once for each folder and content.

The record of this is beside the user's other state, never in the project's folder or in a state folder that the
project names: a folder from somebody else must not suppress the message. If the record cannot be written, every
command prints it.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.config.own_file import NotOwnFile, read_own_file
from holdfast.config.project import Project
from holdfast.config.state_folder import write_private


def is_new(project: Project, environ: Mapping[str, str]) -> bool:
    """Return whether these redirects differ from the last ones recorded for this folder, and record them.

    Args:
        project: The project's files and environment.
        environ: The process's own environment, without the additions of the project's files.
    """
    digest = hashlib.sha256(json.dumps(_redirected(project)).encode()).hexdigest()
    record = _record_file(project, environ)
    if record is None:
        return True
    with suppress(NotOwnFile, OSError):
        if read_own_file(record, private=True) == digest:
            return False
    with suppress(OSError):
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(record, digest.encode())
    return True


def _redirected(project: Project) -> list[list[str]]:
    """Return the variables that redirect commands, with their values, sorted for the digest."""
    return [[name, project.environ[name]] for name in sorted({*project.redirecting})]


def _record_file(project: Project, environ: Mapping[str, str]) -> Path | None:
    """Return the file with the last digest for this folder; None if it would be in the folder itself."""
    state = Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "") / ".local/state")
    if not state.is_absolute() or state.resolve().is_relative_to(project.root.resolve()):
        return None
    name = hashlib.sha256(str(project.root.resolve()).encode()).hexdigest()
    return state / "holdfast" / "redirects" / name

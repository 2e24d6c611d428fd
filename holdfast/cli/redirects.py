"""Says which servers a project's files name: once for each folder and content, not at every command.

What was said is kept beside the user's other state, never in the project's folder or in the state folder that the
project may name: a folder that somebody else made must not bring a note that keeps it silent. Where nothing can be
kept, it is said at every command.
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
    """Return whether these redirects differ from the last ones that were noted for this folder, and note them.

    Args:
        project: What the program was given.
        environ: The process's own environment, without what the project's files add.
    """
    digest = hashlib.sha256(json.dumps(_redirected(project)).encode()).hexdigest()
    place = _place(project, environ)
    if place is None:
        return True
    with suppress(NotOwnFile, OSError):
        if read_own_file(place, private=True) == digest:
            return False
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(place, digest.encode())
    return True


def _redirected(project: Project) -> list[list[str]]:
    """The variables that redirect commands, with their values; in order, for the digest."""
    return [[name, project.environ[name]] for name in sorted({*project.redirecting})]


def _place(project: Project, environ: Mapping[str, str]) -> Path | None:
    """The file that keeps what was said for this folder; None where it would be in the folder itself."""
    state = Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "") / ".local/state")
    if not state.is_absolute() or state.resolve().is_relative_to(project.root.resolve()):
        return None
    name = hashlib.sha256(str(project.root.resolve()).encode()).hexdigest()
    return state / "holdfast" / "redirects" / name

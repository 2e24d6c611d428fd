"""Reads and locks the references of a git folder, without git and without following links."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.workspace.git import git_files
from holdfast.workspace.git.git import GitFailed, GitLocked

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
"""The name of an object."""


def read_ref(folder: Path, ref: str) -> str:
    """Return the commit that a reference such as `refs/heads/main` names; empty if there is none.

    Raises:
        NotPlain: As `read`.
        GitFailed: It names no commit.
    """
    content = git_files.read(folder, ref)
    if content is None:
        packed = (git_files.read(folder, "packed-refs") or b"").decode("utf-8", "surrogateescape")
        lines = (line.split(" ", 1) for line in packed.splitlines() if " " in line and line[0] not in "#^")
        content = next((value.encode() for value, name in lines if name == ref), b"")
    commit = content.decode("ascii", "replace").strip()
    if commit and not HASH.fullmatch(commit):
        raise GitFailed(f"the repository of {folder.parent.name} cannot be read; repair {ref} first")
    return commit


@contextmanager
def locking(folder: Path, name: str) -> Iterator[int]:
    """Hold one of git's lock files; yields its descriptor, open for writing, since git renames a lock into place.

    Raises:
        GitLocked: Another git process holds it.
    """
    try:
        handle = git_files.create(folder, name)
    except FileExistsError:
        raise GitLocked(f"another git process holds {folder.name}/{name}; try again when it has ended") from None
    identity = os.fstat(handle)
    try:
        yield handle
    finally:
        os.close(handle)
        with suppress(FileNotFoundError), git_files.parent_of(folder, name) as (parent, last):
            if os.path.samestat(identity, os.stat(last, dir_fd=parent, follow_symlinks=False)):
                os.unlink(last, dir_fd=parent)

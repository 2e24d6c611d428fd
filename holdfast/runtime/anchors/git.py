"""An anchor that is a git repository: each batch of seals becomes a commit on a branch of its node.

1. A commit has its seals in its message, a line each, and no files. So it costs one small object, and its name covers
   all seals before it.
2. Each node has a branch of its own, so nodes never wait for one another, and no push is refused because another node
   was faster. Workers of one node take turns.
3. Others may own the repository. So no git process opens it here: we write two kinds of files, objects and one branch,
   through no link, and run none of its hooks and settings.
"""

import asyncio
import hashlib
import os
import re
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from holdfast.log.node_seals import NodeSeal
from holdfast.runtime.anchors.folder import names
from holdfast.runtime.anchors.git_remote import Remote
from holdfast.runtime.memory import git_files
from holdfast.runtime.memory.git import GitFailed, GitLocked, git_program
from holdfast.runtime.memory.git_refs import locking, read_ref
from holdfast.runtime.memory.locks import exclusive

BRANCHES = "refs/heads/seals"
"""Where the nodes' branches are."""
STALE_SECONDS = 30.0
"""Age from which a lock file of git on a node's own branch was left by a process that was killed."""
BETWEEN_SECONDS = 1.0
"""Seconds between commits, in which seals gather."""
MOST = 1_000
"""Seals in one commit."""

log = structlog.get_logger(__name__)


class NotARepository(GitFailed):
    """There is no git repository."""


class GitAnchor:
    """Commits seals to a repository.

    Args:
        repository: A bare repository, or one with a work tree, which is not touched. Must exist.
        remote: Where the commits are pushed to; None to leave them in the repository.
    """

    most = MOST
    between = BETWEEN_SECONDS

    def __init__(self, repository: Path, remote: Remote | None = None) -> None:
        self.name = remote.host if remote else str(repository)
        self._repository = repository
        self._remote = remote

    async def put(self, *seals: NodeSeal) -> None:
        """Commit seals of one node, durably; a push follows, and nothing waits for it.

        Raises:
            OSError: The repository is missing, or cannot be written.
            MemoryRefused: It is no repository, or other processes use it for too long.
        """
        await asyncio.to_thread(self._commit, seals)
        if self._remote:
            self._remote.push_soon()

    async def aclose(self) -> None:
        """Push what was committed, if that is quick."""
        if self._remote:
            await self._remote.aclose()

    def problem(self) -> str:
        """Return why the repository cannot be used; empty if it can, or is made with the first seal."""
        try:
            if self._remote is None:
                object_format(git_folder(self._repository))
            else:
                git_program()
        except (GitFailed, OSError) as error:
            return str(error)
        return ""

    def _commit(self, seals: Sequence[NodeSeal]) -> None:
        node, _ = names("", seals[0].node)
        folder = self._remote.folder() if self._remote else git_folder(self._repository)
        branch = f"{BRANCHES}/{node}" + (f"-{self._remote.id()}" if self._remote else "")
        algorithm = object_format(folder)
        with exclusive(folder, f"holdfast-{node}.lock"):
            before = read_ref(folder, branch)
            tree = _write_object(folder, algorithm, "tree", b"")
            commit = _write_object(folder, algorithm, "commit", _content(tree, before, node, seals))
            _remove_stale(folder, f"{branch}.lock")
            with locking(folder, f"{branch}.lock") as lock:
                if read_ref(folder, branch) != before:
                    raise GitLocked(f"the branch {branch} was changed meanwhile")
                _write(lock, f"{commit}\n".encode())
                git_files.rename(folder, f"{branch}.lock", branch)
                _sync(folder, branch)


def git_folder(place: Path) -> Path:
    """Return the git folder of a repository, without links in its path.

    Raises:
        NotARepository: There is none.
    """
    place = place.resolve()
    for folder in (place / ".git", place):
        parts = [folder / "objects", folder / "refs"]
        if not folder.is_symlink() and (folder / "HEAD").is_file() and all(part.is_dir() for part in parts):
            return folder
    raise NotARepository(f"{place} is no git repository, or leads to one elsewhere: name one made by `git init --bare`")


def object_format(folder: Path) -> str:
    """Return the digest by which a repository names its objects: `sha1` or `sha256`.

    Raises:
        GitFailed: It stores branches or objects in a form that is not supported.
    """
    settings = git_files.read(folder, "config") or b""
    if storage := re.search(rb'(?i)\brefstorage\s*=\s*"?(?!files\b)(\w*)', settings):
        raise GitFailed(f"{folder} stores branches as {storage[1].decode()}: name a repository that has them as files")
    found = re.search(rb'(?i)\bobjectformat\s*=\s*"?(\w+)', settings)
    name = found[1].decode().lower() if found else "sha1"
    if name not in ("sha1", "sha256"):
        raise GitFailed(f"{folder} names its objects by {name[:40]}: name a repository that does by sha1 or sha256")
    return name


def _content(tree: str, before: str, node: str, seals: Sequence[NodeSeal]) -> bytes:
    """The content of a commit. It follows from the seals, and from the commit before."""
    at = int(max(seal.at for seal in seals).timestamp())
    who = f"Holdfast node <{node}@holdfast.invalid> {at} +0000"
    head = [f"tree {tree}", *([f"parent {before}"] if before else []), f"author {who}", f"committer {who}", ""]
    subject = f"{len(seals)} seals of {seals[0].node}" if len(seals) > 1 else f"A seal of {seals[0].node}"
    return b"\n".join([*(line.encode() for line in (*head, subject, "")), *(seal.line() for seal in seals), b""])


def _write_object(folder: Path, algorithm: str, kind: str, content: bytes) -> str:
    """Write an object durably, if it is not there, and return its name."""
    whole = b"%s %d\0%s" % (kind.encode(), len(content), content)
    name = hashlib.new(algorithm, whole, usedforsecurity=False).hexdigest()
    place = f"objects/{name[:2]}/{name[2:]}"
    with git_files.parent_of(folder, place, make=True) as (parent, last), suppress(FileNotFoundError):
        os.stat(last, dir_fd=parent, follow_symlinks=False)
        return name
    unfinished = f"objects/{name[:2]}/tmp_obj_{os.urandom(8).hex()}"  # noqa: S108  # git's name for it
    handle = git_files.create(folder, unfinished)
    try:
        try:
            _write(handle, zlib.compress(whole))
        finally:
            os.close(handle)
        git_files.rename(folder, unfinished, place)
    except OSError:
        git_files.remove(folder, unfinished)
        raise
    _sync(folder, place)
    _sync(folder, f"objects/{name[:2]}")
    return name


def _write(handle: int, content: bytes) -> None:
    if os.write(handle, content) != len(content):
        raise OSError("a file was written in part; is the disk full?")
    os.fsync(handle)


def _sync(folder: Path, name: str) -> None:
    """Make the entry of a name in its folder durable."""
    with git_files.parent_of(folder, name) as (parent, _):
        os.fsync(parent)


def _remove_stale(folder: Path, name: str) -> None:
    """Remove a lock file of git that a killed process has left: our own lock is held, and git's take moments."""
    with suppress(FileNotFoundError), git_files.parent_of(folder, name) as (parent, last):
        age = abs(time.time() - os.stat(last, dir_fd=parent, follow_symlinks=False).st_mtime)
        if age > STALE_SECONDS:
            log.warning("stale_git_lock_removed", path=str(folder / name), seconds=round(age, 1))
            os.unlink(last, dir_fd=parent)

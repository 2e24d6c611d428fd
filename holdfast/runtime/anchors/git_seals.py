"""Reads the seals of a thread from the commits of a git repository, which may belong to others and hold anything.

All commits that the repository still has are read, also those that no branch leads to any more. Git works in a folder
of its own, with our settings, and confined where that is possible (`holdfast.runtime.memory.git`).
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from holdfast.base.canonical import canonical
from holdfast.log.node_seals import read_seal
from holdfast.runtime.anchors.git import object_format
from holdfast.runtime.memory.git import Git, GitFailed
from holdfast.runtime.memory.git_files import read, require_plain
from holdfast.runtime.memory.git_settings import configuration
from holdfast.runtime.memory.views import borrow_objects

READ_SECONDS = 100.0
"""How long reading one repository takes at most."""
MAX_LINE_BYTES = 16_384
"""A longer line is no seal, and is read in parts."""
MAX_COMMIT_BYTES = 16_000_000
"""A larger commit is not read: a batch of seals is smaller."""
MAX_BYTES = 4_000_000_000
"""The most bytes of commits that are read."""


def seals_in_git(folder: Path, thread: str, *, seconds: float = READ_SECONDS) -> tuple[BinaryIO, list[str]]:
    """Return a file with the seals of a thread, a line each, and what is not read, in words.

    Args:
        folder: The git folder of a repository.
        thread: The thread's id.
        seconds: How long that may take.

    Raises:
        GitFailed: The repository cannot be read, or not in time.
        OSError: It cannot be read, or a temporary file cannot be written.
    """
    require_plain(folder)
    if read(folder, "objects/info/alternates"):
        raise GitFailed(f"{folder} borrows objects from another repository: copy them with `git repack -a -d`")
    found = tempfile.TemporaryFile()  # noqa: SIM115  # the caller reads it
    try:
        left_out = _copy(folder, thread, found, seconds)
    except BaseException:
        found.close()
        raise
    notes = [f"{folder} is a shallow clone: it lacks earlier seals"] if (folder / "shallow").exists() else []
    if left_out:
        notes.append(
            f"{left_out} commits of {folder} were not read: each is larger than any batch, or all are too large"
        )
    return found, notes


def _copy(folder: Path, thread: str, found: BinaryIO, seconds: float) -> int:
    """Copy the seals of a thread to a file; return how many commits were left out."""
    until = time.monotonic() + seconds
    wanted = canonical({"thread": thread})[1:-1]
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as commits, tempfile.TemporaryFile() as none:
        git = _git(Path(made).resolve(), folder)
        total = left_out = 0
        form = "--batch-check=%(objectsize) %(objecttype) %(objectname)"
        with _running(git, until, none, "cat-file", "--batch-all-objects", "--unordered", form) as listed:
            for line in listed:
                size, kind, name = (*line.split(), b"", b"")[:3]
                if kind != b"commit":
                    continue  # or an object that is broken
                total += int(size)
                if int(size) <= MAX_COMMIT_BYTES and total <= MAX_BYTES:
                    commits.write(name + b"\n")
                else:
                    left_out += 1
        commits.seek(0)
        with _running(git, until, commits, "cat-file", "--batch") as contents:
            while line := contents.readline(MAX_LINE_BYTES):
                if wanted in line and (seal := read_seal(line)) and seal.thread == thread:
                    found.write(line.rstrip(b"\n") + b"\n")
    return left_out


def _git(view: Path, folder: Path) -> Git:
    """Return a git that works in a folder of ours, and has the objects of a repository."""
    borrow_objects(view, folder)
    (view / "refs").mkdir()
    (view / "HEAD").write_text("ref: refs/heads/main\n")
    (view / "config").write_text(configuration([("extensions.objectformat", object_format(folder))]))
    return Git(view, view, view, folder)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git and its sandbox, which begins with a process that outlives the first one if only that is killed."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _running(git: Git, until: float, given: BinaryIO, *arguments: str) -> Iterator[IO[bytes]]:
    """Run git on the lines of a file; gives what it prints.

    Raises:
        GitFailed: It ended with an error, was not done at `until`, or cannot be started.
    """
    if time.monotonic() >= until:  # a fast git would end before the timer kills it
        raise GitFailed(f"git {arguments[0]} failed: it took too long")
    program, environment = git.command(*arguments)
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                program,
                cwd=git.folder,
                env=environment,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise GitFailed(f"git cannot be started: {error.strerror}") from None
        late = threading.Timer(max(0.0, until - time.monotonic()), _kill, (process,))
        late.start()
        try:
            with process:
                assert process.stdout is not None
                try:
                    yield process.stdout
                except BaseException:
                    _kill(process)
                    raise
        finally:
            late.cancel()
        if process.returncode:
            errors.seek(0)
            why = errors.read(500).decode("utf-8", "replace").strip() or "it took too long"
            raise GitFailed(f"git {arguments[0]} failed: {why}")

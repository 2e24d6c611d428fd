"""Runs git on one repository: with fixed arguments, only our configuration, no shell, and no programs to start.

1. Git never opens a repository's own git folder. It works in a view of it (`views.py`), outside the workspace, so that
   it uses no configuration, hook or link placed in that folder, and writes nothing to it.
2. Git cannot start programs: `PATH` and `GIT_EXEC_PATH` name a nonexistent folder.
3. If bubblewrap works, git runs confined: it can read the work tree and the objects, and write only to its view.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from holdfast.config.logs import EventLogger
from holdfast.core.memory.errors import MemoryRefused
from holdfast.core.memory.markdown import TITLE, flat
from holdfast.workspace.sandbox import PROBE_SECONDS, reading_argv

SECONDS = 100.0
"""Time limit of one git command."""

_NOWHERE = "/nonexistent"

_OPTIONS = {
    "safe.bareRepository": "explicit",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.quotePath": "false",
    "core.pager": "cat",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "commit.status": "false",
    "diff.ignoreSubmodules": "all",
    "submodule.recurse": "false",
    "log.showSignature": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "gc.auto": "0",
    "maintenance.auto": "false",
}

log = EventLogger(__name__)


class GitFailed(MemoryRefused):
    """Git failed, or is not installed; the text has git's message."""


class GitLocked(GitFailed):
    """Another git process holds a lock that is needed."""


@dataclass(frozen=True)
class Git:
    """Runs git on a view of a repository."""

    folder: Path
    """The working directory: the workspace."""
    top: Path
    """The work tree, without links in its path."""
    view: Path
    """Our git folder, in which git works."""
    shared: Path
    """The repository's own git folder, which has the objects."""
    author: str = "Agent"
    """Name of the committer; marked so that people can tell it from a person."""
    keep: tuple[int, ...] = ()
    """Descriptors that git keeps open while it runs; they show that its view is in use."""

    def run(self, *arguments: str, text: str = "", environment: dict[str, str] | None = None) -> str:
        """Run `git ARGUMENTS…` and return its standard output.

        Args:
            arguments: As on a command line. The caller must check untrusted ones.
            text: Its standard input.
            environment: Additional variables, such as dates.

        Raises:
            GitFailed: It ended with an error, took longer than `SECONDS`, or cannot be started.
        """
        program, own = self.command(*arguments)
        try:
            done = subprocess.run(
                program,
                cwd=self.folder,
                env={**own, **(environment or {})},
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=SECONDS,
                pass_fds=self.keep,
                check=False,  # git's own message says more than CalledProcessError
            )
        except subprocess.TimeoutExpired:
            raise GitFailed(f"git {arguments[0]} took longer than {SECONDS:g} s and was stopped; try again") from None
        except OSError as error:
            raise _missing(error.strerror) from None
        if done.returncode:
            output = (done.stderr or done.stdout).decode("utf-8", "replace").strip().replace(str(self.view), ".git")
            raise GitFailed(f"git {arguments[0]} failed: {output[:500]}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return the program that runs `git ARGUMENTS…`, confined if possible, and its environment.

        Raises:
            GitFailed: Git is not installed.
        """
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        program = [git_program(), *options, *arguments]
        if is_confined():
            outside = [] if self.shared.is_relative_to(self.top) else [self.shared]
            program = reading_argv(
                program, readable=[self.top, *outside], writable=[self.view], folder=self.folder.resolve()
            )
        return program, {**_environment(self.author), **self._folders()}

    def at_top(self) -> "Git":
        """Return a copy whose working directory is the top of the work tree."""
        return replace(self, folder=self.top)

    def paths(self, *arguments: str) -> list[str]:
        """Run a command that prints NUL-terminated paths; bytes in them that are not UTF-8 become U+FFFD."""
        return [path for path in printable(self.run(*arguments)).split("\0") if path]

    def _folders(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.view), "GIT_WORK_TREE": str(self.top)}


def printable(text: str) -> str:
    """Return git's output with U+FFFD for each byte that is not UTF-8: file names may contain any bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@cache
def is_confined() -> bool:
    """Whether git runs in bubblewrap on this machine. Tested once, by running it."""
    if shutil.which("bwrap") is None:
        reason = "bwrap is not installed"
    else:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve()
            argv = reading_argv([git_program(), "--version"], readable=[], writable=[folder], folder=folder)
            try:
                tried = subprocess.run(
                    argv, env=_environment(""), capture_output=True, timeout=PROBE_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                reason = str(error)
            else:
                if tried.returncode == 0:
                    return True
                reason = tried.stderr.decode("utf-8", "replace").strip()[:300]
    log.info("git_not_confined", reason=reason)
    return False


def git_program() -> str:
    """Return git's full path, because git itself gets a `PATH` on which it finds no program."""
    if path := shutil.which("git"):
        return path
    raise _missing("not found")


def _missing(reason: str | None) -> GitFailed:
    return GitFailed(f"git cannot be started ({reason}); install git, and make sure that it is on PATH")


def _environment(author: str) -> dict[str, str]:
    """Git's complete environment: no variable of the worker's, such as `GIT_*`, reaches it."""
    name = f"{flat(author, TITLE)} (Holdfast)"
    return {
        "PATH": _NOWHERE,
        "GIT_EXEC_PATH": _NOWHERE,
        "HOME": _NOWHERE,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": "holdfast@localhost",
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": "holdfast@localhost",
        "LC_ALL": "C",
    }

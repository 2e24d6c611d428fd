"""Git on one repository: fixed arguments, no shell, no program that it could start, and no configuration but ours.

1. Git never opens a repository's own git folder. It works in a view of it (`views.py`), outside the workspace, so that
   it finds no configuration, hook or link that somebody has put there, and leaves nothing there by itself.
2. It cannot start programs: neither `PATH` nor its own folder of programs names one.
3. Where bubblewrap works, it runs confined: it reads the work tree and the objects, and writes to its view alone.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import structlog

from holdfast.memory.errors import MemoryRefused
from holdfast.memory.markdown import TITLE, flat
from holdfast.runtime.workspace.sandbox import PROBE_SECONDS, reading_argv

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

log = structlog.get_logger(__name__)


class GitFailed(MemoryRefused):
    """Git refused, or is missing; the text says what it said."""


class GitLocked(GitFailed):
    """Another git process has locked what is to be written."""


@dataclass(frozen=True)
class Git:
    """Runs git on a view of a repository."""

    folder: Path
    """Where it starts: the workspace."""
    top: Path
    """The work tree, without links in its path."""
    view: Path
    """The git folder that it works in: ours."""
    shared: Path
    """The repository's own one, which has the objects."""
    author: str = "Agent"
    """Name of who commits; people see that it is none of them."""
    keep: tuple[int, ...] = ()
    """Descriptors that git keeps open for as long as it runs: by them its view is known to be in use."""

    def run(self, *arguments: str, text: str = "", environment: dict[str, str] | None = None) -> str:
        """Run `git ARGUMENTS…` and return what it printed.

        Args:
            arguments: As on a command line. What comes from outside must be checked before.
            text: Its standard input.
            environment: More of it, such as dates.

        Raises:
            GitFailed: It ended with an error, took longer than `SECONDS`, or cannot be started.
        """
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        program = [_program(), *options, *arguments]
        if is_confined():
            apart = [] if self.shared.is_relative_to(self.top) else [self.shared]
            program = reading_argv(
                program, readable=[self.top, *apart], writable=[self.view], folder=self.folder.resolve()
            )
        try:
            done = subprocess.run(
                program,
                cwd=self.folder,
                env={**_environment(self.author), **self._places(), **(environment or {})},
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=SECONDS,
                pass_fds=self.keep,
                check=False,  # git's own words say more than CalledProcessError
            )
        except subprocess.TimeoutExpired:
            raise GitFailed(
                f"git {arguments[0]} took longer than {SECONDS:g} s and was stopped; try it again"
            ) from None
        except OSError as error:
            raise _missing(error.strerror) from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().replace(str(self.view), ".git")
            raise GitFailed(f"git {arguments[0]} failed: {said[:500]}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def at_top(self) -> "Git":
        """The same, started at the work tree's top."""
        return replace(self, folder=self.top)

    def says(self, *arguments: str) -> str:
        """What a command prints, without the line break at its end; empty where it ends with an error."""
        try:
            return self.run(*arguments).removesuffix("\n")
        except GitFailed:
            return ""

    def paths(self, *arguments: str) -> list[str]:
        """Run a command that prints paths, each ended by NUL; what is no UTF-8 in them shows as U+FFFD."""
        return [path for path in printable(self.run(*arguments)).split("\0") if path]

    def _places(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.view), "GIT_WORK_TREE": str(self.top)}


def printable(text: str) -> str:
    """What git printed, with U+FFFD for each byte that is no UTF-8: names of files may have any bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@cache
def is_confined() -> bool:
    """Whether git runs in bubblewrap on this machine. Found out once, by really running it so."""
    if shutil.which("bwrap") is None:
        why = "bwrap is not installed"
    else:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve()
            argv = reading_argv([_program(), "--version"], readable=[], writable=[folder], folder=folder)
            try:
                tried = subprocess.run(
                    argv, env=_environment(""), capture_output=True, timeout=PROBE_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)
            else:
                if tried.returncode == 0:
                    return True
                why = tried.stderr.decode("utf-8", "replace").strip()[:300]
    log.info("git_not_confined", reason=why)
    return False


def _program() -> str:
    """Git, by its full path: it is to find no other program by name."""
    if found := shutil.which("git"):
        return found
    raise _missing("not found")


def _missing(why: str | None) -> GitFailed:
    return GitFailed(f"git cannot be started ({why}); install git, and see that it is on PATH")


def _environment(author: str) -> dict[str, str]:
    """All that git is told by its environment: nothing of the worker's, whatever `GIT_*` it may have."""
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

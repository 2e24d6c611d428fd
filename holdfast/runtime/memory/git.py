"""Git on one repository: fixed arguments, no shell, and none of the user's or the machine's configuration.

Who may write into the workspace may write into `.git` too. So nothing that is named there is run: no hooks, no filters,
and no way to other repositories.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast.memory.markup import TITLE, flat
from holdfast.memory.refusals import MemoryRefused
from holdfast.runtime.commands import command_environment

SECONDS = 100.0
"""Time limit of one git command."""

_OPTIONS = {
    "safe.directory": "*",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "commit.status": "false",
    "log.showSignature": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    # What runs on in the background would keep our lock.
    "gc.auto": "0",
    "maintenance.auto": "false",
}

_FILTERED = ("add", "commit", "diff", "status")
"""Commands that put the files of the work tree through filters."""
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


class GitFailed(MemoryRefused):
    """Git refused, or is missing; the text says what it said."""


class GitLocked(GitFailed):
    """Another git process has locked what is to be written."""


@dataclass(frozen=True)
class Git:
    """Runs git in one folder."""

    folder: Path
    author: str = "Agent"
    """Name of who commits; people see that it is none of them."""
    ceiling: bool = False
    """A repository further up is not taken for the folder's."""
    lock: int | None = None
    """The descriptor of our lock, which git keeps open for as long as it runs."""

    def run(self, *arguments: str, text: str = "") -> str:
        """Run `git ARGUMENTS…` and return what it printed.

        Args:
            arguments: As on a command line. What comes from outside must be checked before.
            text: Its standard input.

        Raises:
            GitLocked: Another git process is writing.
            GitFailed: It ended with an error, took longer than `SECONDS`, or cannot be started.
        """
        options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
        environment = self._environment() | (self._no_filters() if arguments[0] in _FILTERED else {})
        try:
            done = subprocess.run(
                ["git", *options, *arguments],
                cwd=self.folder,
                env=environment,
                input=text.encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=SECONDS,
                pass_fds=() if self.lock is None else (self.lock,),
                check=False,  # git's own words say more than CalledProcessError
            )
        except subprocess.TimeoutExpired:
            raise GitFailed(
                f"git {arguments[0]} took longer than {SECONDS:g} s and was stopped; try it again"
            ) from None
        except OSError as error:
            raise GitFailed(
                f"git cannot be started ({error.strerror}); install git, and see that it is on PATH"
            ) from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            kind = GitLocked if ".lock': File exists" in said else GitFailed
            raise kind(f"git {arguments[0]} failed: {said[:500]}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def says(self, *arguments: str) -> str:
        """What a command prints, without the line break at its end; empty where it ends with an error."""
        try:
            return self.run(*arguments).removesuffix("\n")
        except GitFailed:
            return ""

    def paths(self, *arguments: str) -> list[str]:
        """Run a command that prints paths, each ended by NUL; what is no UTF-8 in them shows as U+FFFD."""
        return [path for path in printable(self.run(*arguments)).split("\0") if path]

    def _no_filters(self) -> dict[str, str]:
        """What turns off each filter that the repository's configuration names."""
        named = self.says("config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process)$")
        drivers = sorted({name.rpartition(".")[0] for name in named.split("\0") if name})
        off = [(f"{driver}.{key}", value) for driver in drivers for key, value in _NO_FILTER.items()]
        settings = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(off)}
        settings |= {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(off)}
        return settings | {"GIT_CONFIG_COUNT": str(len(off))}

    def _environment(self) -> dict[str, str]:
        name = f"{flat(self.author, TITLE)} (Holdfast)"
        return command_environment() | {
            "GIT_CEILING_DIRECTORIES": str(self.folder.resolve().parent) if self.ceiling else "",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": "holdfast@localhost",
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": "holdfast@localhost",
            "LC_ALL": "C",
        }


def printable(text: str) -> str:
    """What git printed, with U+FFFD for each byte that is no UTF-8: names of files may have any bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

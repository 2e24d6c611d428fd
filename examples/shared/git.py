"""Runs git on one repository: without a shell, and without the user's or the machine's configuration."""

import os
import subprocess
from pathlib import Path

from holdfast.workspace.shell import command_environment

SECONDS = 30.0
"""Time limit of one git command."""


class GitFailed(Exception):
    """Git failed; the text contains its error message."""


def run_git(repository: Path, *arguments: str, author: str, date: str | None = None) -> str:
    """Run `git ARGUMENTS…` in a repository and return its output without the final line break.

    Args:
        repository: The folder that contains `.git`; a repository in a parent folder is never used.
        arguments: Git's arguments. The caller must validate those that come from outside.
        author: The name of the author of commits and tags.
        date: Their date in git's format (`2026-01-05T10:00:00Z`); None for now.

    Raises:
        GitFailed: Git failed, or took longer than `SECONDS`.
    """
    command = ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]
    command += ["-c", "tag.gpgSign=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=repository,
            env=_environment(repository, author, date),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,  # git's own message is more useful than CalledProcessError
        )
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git {arguments[0]} took longer than {SECONDS:g} s and was stopped; try it again") from None
    if done.returncode:
        raise GitFailed(f"git {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout.removesuffix("\n")


def _environment(repository: Path, author: str, date: str | None) -> dict[str, str]:
    """Return git's environment, without our `GIT_*` variables and configuration outside the repository."""
    address = f"{author.lower().replace(' ', '.')}@example.invalid"
    environment = command_environment() | {
        "GIT_CEILING_DIRECTORIES": str(repository.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": author,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_COMMITTER_NAME": author,
        "GIT_COMMITTER_EMAIL": address,
        "LC_ALL": "C",
    }
    return environment | ({"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {})

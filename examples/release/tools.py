"""The tools of the release agent. Each says what it does to the world, and those that cannot be done twice have a
check that finds out whether they happened.

1. Nothing here takes a path or a command from the LLM: only a version number, checked by its pattern.
2. What a check looks for is the call's key, which no other call has.
"""

import asyncio
import fcntl
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from examples.release.git import commit_of, git
from holdfast import Absent, Found, ToolContext, Unknown, tool
from holdfast.runtime.workspace.shell import run_shell

TEST_SECONDS = 120.0
"""Time limit of the repository's tests."""
MOST_COMMITS = 50
"""Commits that are listed, the newest ones."""
CHANGELOG = "CHANGELOG.md"

_VERSION = r"(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})"
Version = Annotated[str, Field(pattern=f"^{_VERSION}$")]
"""`MAJOR.MINOR.PATCH`, without a `v`."""


class ReleaseRefused(Exception):
    """The release cannot go on like this; the text says what to do first."""


class Commit(BaseModel):
    """A commit as the LLM sees it."""

    commit: str
    date: str
    subject: str


class Commits(BaseModel):
    """What `commits_since_tag` returns."""

    last_tag: Annotated[str, Field(pattern=f"^v{_VERSION}$")] | None
    commits: list[Commit]
    """Newest first."""


@tool(effect="read")
def commits_since_tag(context: ToolContext) -> Commits:
    """List the commits since the last tag, newest first: hash, date and subject.

    Args:
        context: Filled in by Holdfast.
    """
    tags = git(context.workspace, "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*").splitlines()
    tag = next((tag for tag in tags if re.fullmatch(f"v{_VERSION}", tag)), None)
    since = f"{tag}..HEAD" if tag else "HEAD"
    listed = git(context.workspace, "log", f"--max-count={MOST_COMMITS}", "--format=%h%x00%cs%x00%s", since)
    fields = [line.split("\0", 2) for line in listed.splitlines()]
    return Commits(
        last_tag=tag,
        commits=[Commit(commit=commit, date=date, subject=subject) for commit, date, subject in fields],
    )


@tool(effect="idempotent", timeout=TEST_SECONDS + 30)
async def run_tests(context: ToolContext) -> str:
    """Run the repository's tests. The first line of the result says whether they passed.

    Args:
        context: Filled in by Holdfast.
    """
    await asyncio.to_thread(_only_changelog_changed, context.workspace)
    command = f"{shlex.quote(sys.executable)} -B -m unittest discover --verbose --top-level-directory . 2>&1"
    outcome = await run_shell(command, context.workspace, seconds=TEST_SECONDS)
    if outcome.exit_code is None:
        return f"Tests FAILED: stopped after {TEST_SECONDS:g} s.\n\n{outcome.output}"
    if outcome.exit_code:
        return f"Tests FAILED (exit code {outcome.exit_code}). Do not release.\n\n{outcome.output}"
    return f"Tests passed.\n\n{outcome.output}"


def _only_changelog_changed(repository: Path) -> None:
    """Refuse to run or to release what the LLM wrote: only its changelog goes in without a look at the code.

    Raises:
        ReleaseRefused: Another file differs from the last commit.
    """
    status = git(repository, "status", "--porcelain", "--untracked-files=all", "--no-renames", "-z")
    changed = sorted(entry[3:] for entry in status.split("\0") if entry and entry[3:] != CHANGELOG)
    if changed:
        raise ReleaseRefused(f"uncommitted changes besides {CHANGELOG}: {', '.join(changed)[:300]}; undo them first")


def find_tag(version: Version, context: ToolContext) -> Found | Absent:
    """Whether this very call has made the tag: its message has the call's key."""
    tag = f"v{version}"
    commit = commit_of(context.workspace, tag)
    if commit is None:
        return Absent()
    message = git(context.workspace, "for-each-ref", "--format=%(contents)", f"refs/tags/{tag}")
    return Found(_tagged(tag, commit)) if context.key in message else Absent()


@tool(effect="verifiable", check=find_tag)
def tag_release(version: Version, context: ToolContext) -> str:
    """Commit the changelog as the release's commit, and tag it `vVERSION`.

    Args:
        context: Filled in by Holdfast.
        version: The version, such as 1.4.0, without a "v".
    """
    repository, tag = context.workspace, f"v{version}"
    if taken := commit_of(repository, tag):
        raise ReleaseRefused(f"the tag {tag} is there already, at {taken[:10]}; choose the next version")
    _only_changelog_changed(repository)
    changelog = repository / CHANGELOG
    if not changelog.is_file() or version not in changelog.read_text(encoding="utf-8", errors="replace"):
        raise ReleaseRefused(f"{CHANGELOG} does not mention {version}; write its section first")
    if git(repository, "status", "--porcelain", "--", CHANGELOG):
        git(repository, "add", "--", CHANGELOG)
        git(repository, "commit", "--quiet", "-m", f"chore: release {tag}", "--", CHANGELOG)
    git(repository, "tag", "--annotate", tag, "-m", f"Release {version}\n\nEffect: {context.key}")
    return _tagged(tag, commit_of(repository, tag) or "?")


def _tagged(tag: str, commit: str) -> str:
    return f"Tagged {tag} at commit {commit[:10]}."


def registry_of(repository: Path) -> Path:
    """The registry that the example publishes to: a file beside the repository, out of the LLM's reach."""
    return repository.parent / f"{repository.name}-registry.jsonl"


def publications(repository: Path) -> list[dict[str, Any]]:
    """What was published, oldest first: version, commit and key of each.

    Raises:
        ValueError: A line of the registry cannot be read.
    """
    try:
        lines = registry_of(repository).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    read = [json.loads(line) for line in lines]
    if not all(isinstance(entry, dict) for entry in read):
        raise ValueError("a line is not an object")
    return read


def find_publication(context: ToolContext) -> Found | Absent | Unknown:
    """Whether this very call has published: the registry has a line with the call's key."""
    try:
        found = [entry for entry in publications(context.workspace) if entry.get("key") == context.key]
    except (OSError, ValueError) as error:
        return Unknown(f"{registry_of(context.workspace)} cannot be read ({error}); look whether the version is there")
    return Found(_published(found[0])) if found else Absent()


@tool(effect="verifiable", check=find_publication)
async def publish(version: Version, context: ToolContext) -> str:
    """Publish a tagged version to the package registry. A published version cannot be taken back.

    Args:
        context: Filled in by Holdfast.
        version: The version, such as 1.4.0, without a "v". Its tag must be there.
    """
    seconds = _confirm_seconds()
    entry = await asyncio.to_thread(_append, context, version)
    # From here on it is done, and nobody has been told: a kill at this point is what `find_publication` is for.
    await asyncio.sleep(seconds)
    return _published(entry)


def _confirm_seconds() -> float:
    """How long the registry takes to confirm; read before the effect, where a bad value does no harm."""
    return float(os.environ.get("HOLDFAST_EXAMPLE_CONFIRM_SECONDS") or 0.5)


def _append(context: ToolContext, version: str) -> dict[str, Any]:
    commit = commit_of(context.workspace, f"v{version}")
    if commit is None:
        raise ReleaseRefused(f"there is no tag v{version}; tag_release comes first")
    entry = {"version": version, "commit": commit, "key": context.key}
    with registry_of(context.workspace).open("a", encoding="utf-8") as registry:
        fcntl.flock(registry, fcntl.LOCK_EX)  # another run may publish the same version
        if any(entry.get("version") == version for entry in publications(context.workspace)):
            raise ReleaseRefused(f"{version} is published already; choose the next version")
        registry.write(json.dumps(entry) + "\n")
        registry.flush()  # the line reaches the file in one piece
        os.fsync(registry.fileno())
    return entry


def _published(entry: dict[str, Any]) -> str:
    return f"Published {entry.get('version')} from commit {str(entry.get('commit'))[:10]}."


RELEASE_TOOLS = (commits_since_tag, run_tests, tag_release, publish)
"""What the agent has besides the tools on files."""

"""The tools of the release agent. Each declares its effect; those that must not run twice have a check for the effect.

1. No tool accepts a path or a command from the LLM, only a version number that matches a pattern.
2. A check looks for the effect key of the call, which is unique.
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

from holdfast import Absent, Found, ToolContext, Unknown, tool
from holdfast.examples.release.git import commit_of, git
from holdfast.workspace.shell import run_shell

TEST_SECONDS = 120.0
"""Time limit of the repository's tests."""
MOST_COMMITS = 50
"""The most commits to list, newest first."""
CHANGELOG = "CHANGELOG.md"

_VERSION = r"(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})"
Version = Annotated[str, Field(pattern=f"^{_VERSION}$")]
"""`MAJOR.MINOR.PATCH`, without a `v`."""


class ReleaseRefused(Exception):
    """The release cannot continue; the message says what to do first."""


class Commit(BaseModel):
    """A commit as shown to the LLM."""

    commit: str
    date: str
    subject: str


class Commits(BaseModel):
    """The result of `commits_since_tag`."""

    last_tag: Annotated[str, Field(pattern=f"^v{_VERSION}$")] | None
    commits: list[Commit]
    """Newest first."""


GIT_SECONDS = 5.0
"""Seconds for which a git command may continue after its worker was killed."""
WRITE_SECONDS = 1.0
"""Seconds until a line written by a killed worker is certainly readable."""


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


@tool(effect="idempotent", timeout=TEST_SECONDS + 30, not_done_on=(Exception,))  # a new call does no harm
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
    """Reject unreviewed code: the LLM may change only the changelog.

    Raises:
        ReleaseRefused: Another file differs from the last commit.
    """
    status = git(repository, "status", "--porcelain", "--untracked-files=all", "--no-renames", "-z")
    changed = sorted(entry[3:] for entry in status.split("\0") if entry and entry[3:] != CHANGELOG)
    if changed:
        raise ReleaseRefused(f"uncommitted changes besides {CHANGELOG}: {', '.join(changed)[:300]}; undo them first")


def find_tag(version: Version, context: ToolContext) -> Found | Absent:
    """Check whether this call has made the tag, whose message contains the effect key."""
    tag = f"v{version}"
    commit = commit_of(context.workspace, tag)
    if commit is None:
        return Absent()
    message = git(context.workspace, "for-each-ref", "--format=%(contents)", f"refs/tags/{tag}")
    return Found(_tag_result(tag, commit)) if context.key in message else Absent()


@tool(effect="verifiable", check=find_tag, settles_within=GIT_SECONDS, not_done_on=(ReleaseRefused,))
def tag_release(version: Version, context: ToolContext) -> str:
    """Commit the changelog as the release's commit, and tag it `vVERSION`.

    Args:
        context: Filled in by Holdfast.
        version: The version, such as 1.4.0, without a "v".
    """
    repository, tag = context.workspace, f"v{version}"
    if existing := commit_of(repository, tag):
        raise ReleaseRefused(f"the tag {tag} exists already, at {existing[:10]}; choose the next version")
    _only_changelog_changed(repository)
    changelog = repository / CHANGELOG
    if not changelog.is_file() or version not in changelog.read_text(encoding="utf-8", errors="replace"):
        raise ReleaseRefused(f"{CHANGELOG} does not mention {version}; write its section first")
    if git(repository, "status", "--porcelain", "--", CHANGELOG):
        git(repository, "add", "--", CHANGELOG)
        git(repository, "commit", "--quiet", "-m", f"chore: release {tag}", "--", CHANGELOG)
    git(repository, "tag", "--annotate", tag, "-m", f"Release {version}\n\nEffect: {context.key}")
    return _tag_result(tag, commit_of(repository, tag) or "?")


def _tag_result(tag: str, commit: str) -> str:
    return f"Tagged {tag} at commit {commit[:10]}."


def registry_of(repository: Path) -> Path:
    """Return the registry to which the example publishes: a file beside the repository, which the LLM cannot reach."""
    return repository.parent / f"{repository.name}-registry.jsonl"


def publications(repository: Path) -> list[dict[str, Any]]:
    """Return the publications, oldest first: version, commit and key of each.

    Raises:
        ValueError: A line of the registry cannot be read.
    """
    try:
        lines = registry_of(repository).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    entries = [json.loads(line) for line in lines]
    if not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("a line is not an object")
    return entries


def find_publication(context: ToolContext) -> Found | Absent | Unknown:
    """Check whether this call has published: the registry has a line with its effect key."""
    try:
        entries = [entry for entry in publications(context.workspace) if entry.get("key") == context.key]
    except (OSError, ValueError) as error:
        return Unknown(f"{registry_of(context.workspace)} cannot be read ({error}); check whether it has the version")
    return Found(_publish_result(entries[0])) if entries else Absent()


@tool(effect="verifiable", check=find_publication, settles_within=WRITE_SECONDS, not_done_on=(ReleaseRefused,))
async def publish(version: Version, context: ToolContext) -> str:
    """Publish a tagged version to the package registry. A published version cannot be withdrawn.

    Args:
        context: Filled in by Holdfast.
        version: The version, such as 1.4.0, without a "v". Its tag must exist.
    """
    seconds = _confirm_seconds()
    entry = await asyncio.to_thread(_append, context, version)
    # The effect has happened, but its result is not recorded: `find_publication` covers a kill at this point.
    await asyncio.sleep(seconds)
    return _publish_result(entry)


def _confirm_seconds() -> float:
    """Return the registry's delay. It is read before the effect, so that a bad value does no harm."""
    return float(os.environ.get("HOLDFAST_EXAMPLE_CONFIRM_SECONDS") or 0.5)


def _append(context: ToolContext, version: str) -> dict[str, Any]:
    commit = commit_of(context.workspace, f"v{version}")
    if commit is None:
        raise ReleaseRefused(f"there is no tag v{version}; call tag_release first")
    entry = {"version": version, "commit": commit, "key": context.key}
    with registry_of(context.workspace).open("a", encoding="utf-8") as registry:
        fcntl.flock(registry, fcntl.LOCK_EX)  # another run may publish the same version
        if any(entry.get("version") == version for entry in publications(context.workspace)):
            raise ReleaseRefused(f"{version} is published already; choose the next version")
        registry.write(json.dumps(entry) + "\n")
        registry.flush()  # writes the line in one piece
        os.fsync(registry.fileno())
    return entry


def _publish_result(entry: dict[str, Any]) -> str:
    return f"Published {entry.get('version')} from commit {str(entry.get('commit'))[:10]}."


RELEASE_TOOLS = (commits_since_tag, run_tests, tag_release, publish)
"""The agent's tools other than file tools."""

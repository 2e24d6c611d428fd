"""Commits: builds their messages, with trailers that name the action, and finds commits again by those trailers."""

import re
from collections.abc import Mapping

from holdfast.core.base.models import Frozen
from holdfast.core.memory.markdown import TITLE, flat
from holdfast.workspace.git.git import Git, printable

KEY = "Holdfast-Key"
"""The trailer that names the action."""
NOT_RUN = "Holdfast-Not-Run"
"""The trailer that names the repository's hooks, filters and settings that Holdfast ignores."""
LISTED = 200
"""The most paths that a state or a commit lists."""
LINES = 50
"""The most lines of a commit's body."""

_KEY = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")


class Commit(Frozen):
    """A commit."""

    hash: str
    """Empty if there was nothing to commit, and there is no earlier commit."""
    subject: str = ""
    at: str = ""
    """The time, in ISO 8601."""
    author: str = ""
    trailers: Mapping[str, str] = {}
    made: bool = False
    """Whether this call made it; False if an earlier attempt made it, or there was nothing to commit."""
    paths: tuple[str, ...] = ()
    """The changed files, relative to the workspace; at most `LISTED`."""
    count: int = 0
    """The number of changed files."""
    left_out: tuple[str, ...] = ()
    """Untracked repositories inside the workspace, which are not committed: they have a history of their own."""
    filtered: tuple[str, ...] = ()
    """Files that a filter applies to, with its name: filters do not run, so these are not committed."""
    not_run: tuple[str, ...] = ()
    """The repository's hooks, filters and settings that are ignored, if this commit is the first to name them."""

    @property
    def key(self) -> str:
        """The key of the action that it belongs to; empty for a person's commit."""
        return self.trailers.get(KEY, "")


def commit_message(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    """Build a commit message. The LLM's text cannot enter the paragraph of trailers, or imitate one of Holdfast's."""
    for name, value in trailers.items():
        if not _NAME.fullmatch(name) or (name == KEY and not _KEY.fullmatch(value)):
            raise ValueError(f"{name}: {value[:100]!r} cannot be a trailer of a commit")
    lines = [flat(line) for line in body.strip().splitlines()[:LINES]]
    text = "\n".join(f"| {line}" if line.casefold().startswith("holdfast-") else line for line in lines)
    trailer_lines = "\n".join(f"{name}: {flat(value, TITLE)}" for name, value in trailers.items())
    return "\n\n".join(part for part in (flat(subject, TITLE) or "Work", text, trailer_lines) if part) + "\n"


def head_of(git: Git) -> str:
    """Return the hash of the checked-out commit; empty before the first."""
    head = (git.view / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    branch = git.view / head.removeprefix("ref: ")
    return branch.read_text().strip() if branch.exists() else ""


def find_commit(git: Git, key: str) -> Commit | None:
    """Find the commit with that key, if one is reachable from HEAD."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key[:100]!r} cannot be a key: it needs 1 to 200 letters, digits and `_.:/-`")
    if not head_of(git):
        return None
    pattern = f"^{KEY}: {key.replace('.', '[.]')}$"
    # The first match is the commit, unless a person quoted one of our messages in a later one.
    for most in (1, 10):
        commits = read_log(git, "--extended-regexp", f"--grep={pattern}", f"--max-count={most}", "HEAD")
        if commit := next((commit for commit in commits if commit.key == key), None):
            return commit
        if not commits:
            break
    return None


def has_trailer(git: Git, name: str, value: str) -> bool:
    """Whether a commit reachable from HEAD has that trailer."""
    if not head_of(git):
        return False
    commits = read_log(git, "--fixed-strings", f"--grep={name}: {flat(value, TITLE)}", "--max-count=10", "HEAD")
    return any(commit.trailers.get(name) == flat(value, TITLE) for commit in commits)


def read_log(git: Git, *arguments: str) -> list[Commit]:
    """Return the commits that `git log ARGUMENTS…` lists, without their changed files."""
    form = "%H%x00%aI%x00%an%x00%s%x00%(trailers:only,unfold)"
    fields = printable(git.run("log", "-z", f"--format={form}", *arguments)).split("\0")
    return [
        Commit(
            hash=fields[at],
            at=fields[at + 1],
            author=fields[at + 2],
            subject=fields[at + 3],
            trailers=dict(line.split(": ", 1) for line in fields[at + 4].splitlines() if ": " in line),
        )
        for at in range(0, len(fields) - 4, 5)
    ]


def with_paths(git: Git, commit: Commit) -> Commit:
    """Return a copy of the commit with its changed files."""
    paths = git.paths(
        "diff-tree", "--root", "--no-commit-id", "--name-only", "--no-renames", "--relative", "-r", "-z", commit.hash
    )
    return commit.model_copy(update={"paths": tuple(paths[:LISTED]), "count": len(paths)})

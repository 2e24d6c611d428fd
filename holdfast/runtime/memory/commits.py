"""What a commit says: its message with the trailers that name its action, and how to find it again by them."""

import re
from collections.abc import Mapping

from holdfast.base.models import Frozen
from holdfast.memory.markdown import TITLE, flat
from holdfast.runtime.memory.git import Git, printable

KEY = "Holdfast-Key"
"""The trailer that names the action."""
NOT_RUN = "Holdfast-Not-Run"
"""The trailer that names what of the repository is not run or heeded: hooks, filters, settings."""
LISTED = 200
"""Paths that a state or a commit names at most."""
LINES = 50
"""Lines of a commit's body."""

_KEY = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,60}")


class Commit(Frozen):
    """A commit, as far as it matters here."""

    hash: str
    """Empty where nothing was to commit, and nothing had been before."""
    subject: str = ""
    at: str = ""
    """When, in ISO 8601."""
    author: str = ""
    trailers: Mapping[str, str] = {}
    made: bool = False
    """It was made just now; else an earlier attempt made it, or nothing was to commit."""
    paths: tuple[str, ...] = ()
    """What it changed, from the workspace; `LISTED` at most."""
    count: int = 0
    """How many files it changed."""
    left_out: tuple[str, ...] = ()
    """Repositories inside the workspace that git does not track: they keep their own history, and are not committed."""
    filtered: tuple[str, ...] = ()
    """Files that a filter governs, with its name: filters do not run, so these are not committed."""
    not_run: tuple[str, ...] = ()
    """What of the repository is not run or heeded, where this commit is the first to say so."""

    @property
    def key(self) -> str:
        """The action that it is of; empty for a person's."""
        return self.trailers.get(KEY, "")


def message(subject: str, body: str, trailers: Mapping[str, str]) -> str:
    """A commit's message. What the LLM wrote is in none of its trailers' paragraph, and cannot look like ours."""
    for name, value in trailers.items():
        if not _NAME.fullmatch(name) or (name == KEY and not _KEY.fullmatch(value)):
            raise ValueError(f"{name}: {value[:100]!r} cannot be a trailer of a commit")
    lines = [flat(line) for line in body.strip().splitlines()[:LINES]]
    told = "\n".join(f"| {line}" if line.casefold().startswith("holdfast-") else line for line in lines)
    ours = "\n".join(f"{name}: {flat(value, TITLE)}" for name, value in trailers.items())
    return "\n\n".join(part for part in (flat(subject, TITLE) or "Work", told, ours) if part) + "\n"


def head_of(git: Git) -> str:
    """The hash of the commit that is checked out; empty before the first."""
    head = (git.view / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    branch = git.view / head.removeprefix("ref: ")
    return branch.read_text().strip() if branch.exists() else ""


def find_commit(git: Git, key: str) -> Commit | None:
    """The commit with that key, if one is reachable from HEAD."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key[:100]!r} cannot be a key: it needs 1 to 200 letters, digits and `_.:/-`")
    if not head_of(git):
        return None
    pattern = f"^{KEY}: {key.replace('.', '[.]')}$"
    # The first is it, unless a person has quoted a message of ours.
    for most in (1, 10):
        found = log_of(git, "--extended-regexp", f"--grep={pattern}", f"--max-count={most}", "HEAD")
        if commit := next((commit for commit in found if commit.key == key), None):
            return commit
        if not found:
            break
    return None


def has_trailer(git: Git, name: str, value: str) -> bool:
    """Whether a commit that is reachable from HEAD has that trailer."""
    if not head_of(git):
        return False
    found = log_of(git, "--fixed-strings", f"--grep={name}: {flat(value, TITLE)}", "--max-count=10", "HEAD")
    return any(commit.trailers.get(name) == flat(value, TITLE) for commit in found)


def log_of(git: Git, *arguments: str) -> list[Commit]:
    """The commits that `git log ARGUMENTS…` lists, without what they changed."""
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
    """The same commit, with what it changed."""
    paths = git.paths(
        "diff-tree", "--root", "--no-commit-id", "--name-only", "--no-renames", "--relative", "-r", "-z", commit.hash
    )
    return commit.model_copy(update={"paths": tuple(paths[:LISTED]), "count": len(paths)})

"""Stages the changes of a workspace for a commit, and shows them before one.

A view has an index and objects of its own (`holdfast.workspace.git.views`): what is staged in it and not published
changes nothing in the repository.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.base.models import Frozen
from holdfast.workspace.git.commits import LISTED, head_of
from holdfast.workspace.git.exclusions import changed_files, filters_of, nested_repositories, submodules
from holdfast.workspace.git.git import Git, printable

SKIP_TEMPORARY = (":(exclude,glob)**/.holdfast-*.tmp", ":(exclude,glob)**/.holdfast-*.tmp/**")
"""Pathspecs that exclude files which are being written, under temporary names."""

DIFF_LINES = 20_000
"""Changes of more lines are listed by file, without a diff."""


class Staged(Frozen):
    """The changes that a commit would have."""

    paths: tuple[str, ...]
    """The changed files, relative to the workspace."""
    left_out: tuple[str, ...] = ()
    """Untracked repositories inside the workspace; at most `LISTED`."""
    filtered: tuple[str, ...] = ()
    """Files that a filter applies to, with its name; at most `LISTED`."""


class PendingChanges(Frozen):
    """The changes since the last commit, as a commit would have them."""

    staged: Staged
    base: str
    """Names the last commit and the changes."""
    summary: str
    """Each file with its counts of added and removed lines, tab-separated."""
    diff: str
    """The changes as a unified diff; empty if they have more than `DIFF_LINES` lines."""


def stage(git: Git) -> Staged:
    """Stage all changes of the workspace that a commit may have."""
    repositories = (*nested_repositories(git, SKIP_TEMPORARY), *submodules(git))
    filtered = filters_of(git, changed_files(git, (".", *SKIP_TEMPORARY)))
    specs = (".", *SKIP_TEMPORARY, *(f":(top,exclude,literal){path}" for path in (*repositories, *filtered)))
    _add(git, specs)
    # Submodules are left out silently, since a person added them; other repositories in the workspace are reported.
    return Staged(
        paths=tuple(git.paths("diff", "--cached", "--name-only", "--no-renames", "--relative", "-z", "--", ".")),
        left_out=tuple(printable(path) for path in repositories if path.endswith("/"))[:LISTED],
        filtered=_printed(filtered),
    )


def stage_file(git: Git, path: str) -> Staged:
    """Stage one file, relative to the workspace, if it has changed and may be committed."""
    spec = file_spec(path)
    changed = changed_files(git, (spec,))  # none if the repository ignores it
    filtered = filters_of(git, changed)
    if not changed or filtered:
        return Staged(paths=(), filtered=_printed(filtered))
    _add(git, (spec,))
    return Staged(paths=tuple(git.paths("diff", "--cached", "--name-only", "--relative", "-z", "--", spec)))


def file_spec(path: str) -> str:
    """Return the pathspec of one file, relative to the workspace."""
    return f":(literal){path}"


def _add(git: Git, specs: Sequence[str]) -> None:
    git.run("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", text="".join(f"{s}\0" for s in specs))


def _printed(filtered: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{printable(path)} (filter {name})" for path, name in filtered.items())[:LISTED]


def pending_changes(git: Git) -> PendingChanges:
    """Stage all changes in a view, and return them. Nothing is published.

    Raises:
        GitFailed: The repository cannot be read.
    """
    staged = stage(git)
    options = ("--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--relative")
    summary = printable(git.run("diff", *options, "--numstat", "--", "."))
    counts = (field for line in summary.splitlines() for field in line.split("\t")[:2])
    lines = sum(int(count) for count in counts if count.isdigit())
    diff = printable(git.run("diff", *options, "--", ".")) if lines <= DIFF_LINES else ""
    base = f"{head_of(git) or 'none'}:{git.run('write-tree').strip()}"
    return PendingChanges(staged=staged, base=base, summary=summary, diff=diff)

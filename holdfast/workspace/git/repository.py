"""Commits an agent's work to git: one commit for each significant action, identified by a key, and made once.

1. A commit carries the key of its action as the trailer `Holdfast-Key`. An action whose commit is reachable from HEAD
   has happened, and is not repeated.
2. If an attempt was killed, the next one completes its changes, and commits them together with those already made.
3. Nothing is changed while the repository is in the middle of an operation that a person started, such as a merge.
4. Neither hooks nor filters run. Files that a filter would change (Git LFS) are left out, and reported.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.base.models import Frozen
from holdfast.core.memory.errors import MemoryRefused
from holdfast.workspace.git.commits import (
    KEY,
    LISTED,
    NOT_RUN,
    Commit,
    commit_message,
    find_commit,
    has_trailer,
    head_of,
    read_log,
    with_paths,
)
from holdfast.workspace.git.git import Git, GitFailed, GitLocked
from holdfast.workspace.git.locks import clear_locks, exclusive
from holdfast.workspace.git.repository_root import RepositoryRoot, create_repository, find_repository_root, problem_of
from holdfast.workspace.git.staging import SKIP_TEMPORARY, PendingChanges, file_spec, pending_changes, stage, stage_file
from holdfast.workspace.git.views import View, view_of


class RepositoryRefused(MemoryRefused):
    """The repository's state forbids commits; the message says how a person can fix it."""


class RepositoryState(Frozen):
    """The state of a repository."""

    head: str = ""
    """The checked-out commit; empty before the first."""
    branch: str = ""
    dirty: tuple[str, ...] = ()
    """The files that differ from it, relative to the workspace; at most `LISTED`."""
    dirty_count: int = 0
    problem: str = ""
    """The reason why nothing may be committed; empty if commits are possible."""


class Repository:
    """The repository that a workspace belongs to; created with the first commit if there is none.

    If the workspace is inside the work tree of a repository further up, that repository is used, unless it ignores
    the workspace. Files outside the workspace are neither read nor committed.

    Args:
        workspace: The folder.
        author: Name of the committer, shown as `NAME (Holdfast)`.
    """

    def __init__(self, workspace: Path, *, author: str = "Agent") -> None:
        self._workspace = workspace
        self._author = author or "Agent"

    def state(self) -> RepositoryState:
        """Read the state, without changing anything or waiting for a lock."""
        try:
            with self._viewed() as view:
                if view is None:
                    return RepositoryState()
                problem = problem_of(view.root, view.git)
                dirty = _dirty(view)
                return RepositoryState(
                    head=head_of(view.git),
                    branch=view.branch,
                    dirty=tuple(dirty[:LISTED]),
                    dirty_count=len(dirty),
                    problem=problem,
                )
        except GitFailed as error:
            return RepositoryState(problem=str(error))

    def pending(self) -> PendingChanges | None:
        """Return the changes that a commit would have now, without committing; None if there is no repository.

        Raises:
            RepositoryRefused: A person has to act before anything can be committed.
            GitFailed: The repository cannot be read.
        """
        with self._viewed() as view:
            if view is None:
                return None
            if problem := problem_of(view.root, view.git):
                raise RepositoryRefused(problem)
            return pending_changes(view.git)

    def commit_once(
        self,
        key: str,
        subject: str,
        *,
        body: str = "",
        trailers: Mapping[str, str] | None = None,
        change: Callable[[], object] = lambda: None,
        allow_empty: bool = False,
        only: str = "",
    ) -> Commit:
        """Run `change` and commit all changed files, unless a commit with this key exists.

        Args:
            key: Identifies the action: letters, digits and `_.:/-`.
            subject: The commit's first line.
            body: The text below it.
            trailers: Additional trailers, such as `{"Holdfast-Thread": "nightly"}`.
            change: Changes files. It may run again after a crash, and must be idempotent.
            allow_empty: Commit even if no file changed.
            only: The only file to commit, relative to the workspace; empty for all changed files.

        Returns:
            The commit with that key; if no file changed, the checked-out one, with `made` False.

        Raises:
            RepositoryRefused: A person has to act first. `change` did not run.
            RepositoryBusy: Another process uses the repository for too long.
            GitFailed: Git failed, or is not installed.
            MemoryRefused: `change` raised it. Nothing was committed.
        """
        return self._commit_once(
            key,
            lambda _: subject,
            body=body,
            trailers=trailers or {},
            change=change,
            allow_empty=allow_empty,
            only=only,
        )

    def commit_manual_changes(self, key: str, *, trailers: Mapping[str, str] | None = None) -> Commit:
        """Commit people's changes, to keep them apart from those that the agent makes next.

        Raises:
            RepositoryRefused, RepositoryBusy, GitFailed: As `commit_once`.
        """

        def subject(paths: Sequence[str]) -> str:
            more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
            return f"Commit changes made by hand: {', '.join(paths[:3])}{more}"

        return self._commit_once(key, subject, trailers=trailers or {})

    def find(self, key: str) -> Commit | None:
        """Find the commit with that key, if one is reachable from HEAD.

        Raises:
            GitFailed: The repository cannot be read.
        """
        with self._viewed() as view:
            return find_commit(view.git, key) if view else None

    def commits(self, limit: int) -> list[Commit]:
        """Return the newest commits, including people's, the newest first.

        Raises:
            GitFailed: The repository cannot be read.
        """
        with self._viewed() as view:
            return read_log(view.git, f"--max-count={limit}", "HEAD") if view and head_of(view.git) else []

    def _commit_once(
        self,
        key: str,
        subject: Callable[[Sequence[str]], str],
        *,
        trailers: Mapping[str, str],
        body: str = "",
        change: Callable[[], object] = lambda: None,
        allow_empty: bool = False,
        only: str = "",
    ) -> Commit:
        with self._locked() as view:
            if (existing := find_commit(view.git, key)) is not None:
                return with_paths(view.git, existing)
            if problem := problem_of(view.root, view.git):
                raise RepositoryRefused(problem)
            change()
            ignored = _unreported(view)
            ignored_trailer = {NOT_RUN: ", ".join(ignored)} if ignored else {}

            def text(staged: Sequence[str]) -> str:
                return commit_message(subject(staged), body, {KEY: key, **trailers, **ignored_trailer})

            made, left_out, filtered = _committed(view, text, allow_empty=allow_empty, only=only)
            if not made:
                return Commit(hash=head_of(view.git), left_out=left_out, filtered=filtered)
            commit = find_commit(view.git, key)
            assert commit is not None, "it has just been made, under our lock"
            report = {"made": True, "left_out": left_out, "filtered": filtered, "not_run": ignored}
            return with_paths(view.git, commit.model_copy(update=report))

    @contextmanager
    def _viewed(self) -> Iterator[View | None]:
        """Yield a view of the repository; None if there is no repository."""
        root = self.root() if self._workspace.is_dir() else None
        if root is None:
            yield None
        else:
            with view_of(root, author=self._author) as view:
                yield view

    @contextmanager
    def _locked(self) -> Iterator[View]:
        """Yield a view of the repository while holding our lock; create the repository if there is none."""
        try:
            self._workspace.mkdir(parents=True, exist_ok=True)
            root = self.root() or create_repository(self._workspace)
        except OSError as error:
            raise GitFailed(f"no repository can be created in {self._workspace.name}: {error.strerror}") from None
        with exclusive(root.folder) as lock, view_of(root, author=self._author, keep=(lock,)) as view:
            yield view

    def root(self) -> RepositoryRoot | None:
        """Find the existing repository, unless it is one further up that ignores the workspace.

        Raises:
            GitFailed: There is one, and it cannot be used.
        """
        root = find_repository_root(self._workspace)
        if root is None or root.is_workspace:
            return root
        with view_of(root) as view:
            return None if _is_ignored(view.git) else root


def _committed(
    view: View, text: Callable[[Sequence[str]], str], *, allow_empty: bool, only: str
) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    """Commit the changed files, and wait for a git process that commits at the same moment.

    Returns:
        Whether there was anything to commit; repositories that were left out; filtered files that were left out.
    """
    for attempt in range(5):
        clear_locks(view.root.lock_files(), view.root.top)
        try:
            with view.writing():
                return _commit(view.git, text, all_files=view.root.is_workspace, allow_empty=allow_empty, only=only)
        except GitLocked:
            if attempt == 4:
                raise
    raise AssertionError("the last attempt returns, or raises")


def _commit(
    git: Git, text: Callable[[Sequence[str]], str], *, all_files: bool, allow_empty: bool, only: str
) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    changes = stage_file(git, only) if only else stage(git)
    staged = changes.paths
    if not staged and not allow_empty:
        return False, changes.left_out, changes.filtered
    # Do not commit what a person has staged elsewhere: outside the workspace, or beside the only file.
    file = ["--only", "--", file_spec(only)] if only and staged else []
    scope = file or ([] if all_files else ["--only", "--", "."] if staged else ["--only"])
    empty = ["--allow-empty"] if allow_empty else []
    git.run("commit", "--quiet", "--cleanup=verbatim", "--file=-", *empty, *scope, text=text(staged))
    return True, changes.left_out, changes.filtered


def _unreported(view: View) -> tuple[str, ...]:
    """The repository's hooks, filters and settings that are ignored, unless an earlier commit names the same ones."""
    ignored = view.ignored_settings
    return ignored if ignored and not has_trailer(view.git, NOT_RUN, ", ".join(ignored)) else ()


def _is_ignored(git: Git) -> bool:
    try:
        git.run("check-ignore", "--quiet", ".")
    except GitFailed as error:
        if str(error).endswith("failed: "):  # no output, and exit code 1: the workspace is not ignored
            return False
        raise
    return True


def _dirty(view: View) -> list[str]:
    entries = view.git.paths(
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignore-submodules=all",
        "--",
        ".",
        *SKIP_TEMPORARY,
    )
    root = view.root
    prefix = "" if root.is_workspace else f"{root.workspace.resolve().relative_to(root.top).as_posix()}/"
    return sorted(entry[3:].removeprefix(prefix) for entry in entries if not entry.endswith("/"))

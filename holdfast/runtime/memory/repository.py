"""Git as the layer that lasts: one commit for each significant action, named by a key, made once.

1. A commit carries the key of its action as the trailer `Holdfast-Key`. An action whose commit is reachable from HEAD
   has happened: it is neither made nor committed again.
2. What a killed attempt left undone is done by the next, and committed together with what it had done already.
3. Nothing is touched while the repository is in the middle of something that a person began.
4. Neither hooks nor filters run. What a filter would change (Git LFS) is left out, and that is said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.base.models import Frozen
from holdfast.memory.errors import MemoryRefused
from holdfast.runtime.memory.commits import (
    KEY,
    LISTED,
    NOT_RUN,
    Commit,
    find_commit,
    has_trailer,
    head_of,
    log_of,
    message,
    with_paths,
)
from holdfast.runtime.memory.git import Git, GitFailed, GitLocked, printable
from holdfast.runtime.memory.locks import clear_locks, exclusive
from holdfast.runtime.memory.outside import gitlinks, governed, nested
from holdfast.runtime.memory.repository_root import Place, find_place, make_place, problem_of
from holdfast.runtime.memory.views import View, view_of

_OURS = (":(exclude,glob)**/.holdfast-*.tmp", ":(exclude,glob)**/.holdfast-*.tmp/**")
"""What is being written: of no use to anybody, and gone in a moment."""


class RepositoryRefused(MemoryRefused):
    """The repository is in a state in which nothing may be committed; the text says what a person has to do."""


class RepositoryState(Frozen):
    """How things stand in a repository."""

    head: str = ""
    """The commit; empty before the first."""
    branch: str = ""
    dirty: tuple[str, ...] = ()
    """What differs from it, from the workspace; `LISTED` at most."""
    dirty_count: int = 0
    problem: str = ""
    """Why nothing may be committed; empty if there is no reason."""


class Repository:
    """The repository that a workspace belongs to; made with the first commit where there is none.

    Where the workspace lies in the work tree of a repository further up, that one is used, and nothing outside
    the workspace is looked at or committed. One that ignores the workspace is not used.

    Args:
        workspace: The folder.
        author: Who commits; shown as `NAME (Holdfast)`.
    """

    def __init__(self, workspace: Path, *, author: str = "Agent") -> None:
        self._workspace = workspace
        self._author = author or "Agent"

    def state(self) -> RepositoryState:
        """How things stand; nothing is changed or waited for."""
        try:
            with self._viewed() as view:
                if view is None:
                    return RepositoryState()
                problem = problem_of(view.place, view.git)
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

    def commit_once(
        self,
        key: str,
        subject: str,
        *,
        body: str = "",
        trailers: Mapping[str, str] | None = None,
        change: Callable[[], object] = lambda: None,
        allow_empty: bool = False,
    ) -> Commit:
        """Run `change` and commit all that differs then, unless a commit with this key has been made.

        Args:
            key: Names the action: letters, digits and `_.:/-`.
            subject: The commit's first line.
            body: What follows it.
            trailers: More of them, such as `{"Holdfast-Thread": "nightly"}`.
            change: Changes files; may run again after a crash, and must then change nothing more.
            allow_empty: Commit where nothing differs, too.

        Returns:
            The commit with that key; where nothing differs, the one that is checked out, not `made`.

        Raises:
            RepositoryRefused: A person has to do something first. `change` did not run.
            RepositoryBusy: Others are at work for too long.
            GitFailed: Git refused, or is missing.
            MemoryRefused: `change` refused. Nothing was committed.
        """
        return self._commit_once(
            key, lambda _: subject, body=body, trailers=trailers or {}, change=change, allow_empty=allow_empty
        )

    def take_in(self, key: str, *, trailers: Mapping[str, str] | None = None) -> Commit:
        """Commit what differs already, so that what people changed by hand stays apart from what the agent does.

        Raises:
            RepositoryRefused, RepositoryBusy, GitFailed: As `commit_once`.
        """

        def subject(paths: Sequence[str]) -> str:
            more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
            return f"Take in what was changed by hand: {', '.join(paths[:3])}{more}"

        return self._commit_once(key, subject, trailers=trailers or {})

    def find(self, key: str) -> Commit | None:
        """The commit with that key, if one is reachable from HEAD.

        Raises:
            GitFailed: The repository cannot be read.
        """
        with self._viewed() as view:
            return find_commit(view.git, key) if view else None

    def commits(self, limit: int) -> list[Commit]:
        """The newest commits, people's too, the newest first.

        Raises:
            GitFailed: The repository cannot be read.
        """
        with self._viewed() as view:
            return log_of(view.git, f"--max-count={limit}", "HEAD") if view and head_of(view.git) else []

    def _commit_once(
        self,
        key: str,
        subject: Callable[[Sequence[str]], str],
        *,
        trailers: Mapping[str, str],
        body: str = "",
        change: Callable[[], object] = lambda: None,
        allow_empty: bool = False,
    ) -> Commit:
        with self._locked() as view:
            if (found := find_commit(view.git, key)) is not None:
                return with_paths(view.git, found)
            if problem := problem_of(view.place, view.git):
                raise RepositoryRefused(problem)
            change()
            unsaid = _unsaid(view)
            told = {NOT_RUN: ", ".join(unsaid)} if unsaid else {}

            def text(staged: Sequence[str]) -> str:
                return message(subject(staged), body, {KEY: key, **trailers, **told})

            made, left_out, filtered = _committed(view, text, allow_empty=allow_empty)
            if not made:
                return Commit(hash=head_of(view.git), left_out=left_out, filtered=filtered)
            commit = find_commit(view.git, key)
            assert commit is not None, "it has just been made, under our lock"
            told_of = {"made": True, "left_out": left_out, "filtered": filtered, "not_run": unsaid}
            return with_paths(view.git, commit.model_copy(update=told_of))

    @contextmanager
    def _viewed(self) -> Iterator[View | None]:
        """A view of the repository, if there is one."""
        place = self._place() if self._workspace.is_dir() else None
        if place is None:
            yield None
        else:
            with view_of(place, author=self._author) as view:
                yield view

    @contextmanager
    def _locked(self) -> Iterator[View]:
        """A view of the repository, with nobody else of ours at work in it; it is made where there is none."""
        try:
            self._workspace.mkdir(parents=True, exist_ok=True)
            place = self._place() or make_place(self._workspace)
        except OSError as error:
            raise GitFailed(f"{self._workspace.name} cannot be made a repository: {error.strerror}") from None
        with exclusive(place.folder) as lock, view_of(place, author=self._author, keep=(lock,)) as view:
            yield view

    def _place(self) -> Place | None:
        """The repository that there is, unless it is one further up that ignores the workspace."""
        place = find_place(self._workspace)
        if place is None or place.whole:
            return place
        with view_of(place) as view:
            return None if _is_ignored(view.git) else place


def _committed(
    view: View, text: Callable[[Sequence[str]], str], *, allow_empty: bool
) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    """Commit what differs: whether there was anything, and what was left out: repositories, and what is filtered.

    One that begins at the same moment is waited for.
    """
    for attempt in range(5):
        clear_locks(view.place.lock_files(), view.place.top)
        try:
            with view.writing():
                return _commit(view.git, text, whole=view.place.whole, allow_empty=allow_empty)
        except GitLocked:
            if attempt == 4:
                raise
    raise AssertionError("the last attempt returns, or raises")


def _commit(
    git: Git, text: Callable[[Sequence[str]], str], *, whole: bool, allow_empty: bool
) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    repositories = (*nested(git, _OURS), *gitlinks(git))
    filtered = governed(git, _OURS)
    # Who has a submodule knows of it; what lies in the workspace besides is said.
    left_out = tuple(printable(path) for path in repositories if path.endswith("/"))[:LISTED]
    not_filtered = tuple(f"{printable(path)} (filter {name})" for path, name in filtered.items())[:LISTED]
    specs = (".", *_OURS, *(f":(top,exclude,literal){path}" for path in (*repositories, *filtered)))
    git.run("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", text="".join(f"{s}\0" for s in specs))
    staged = git.paths("diff", "--cached", "--name-only", "--no-renames", "--relative", "-z", "--", ".")
    if not staged and not allow_empty:
        return False, left_out, not_filtered
    # What a person has staged elsewhere in a repository further up is not ours to commit.
    scope = [] if whole else ["--only", "--", "."] if staged else ["--only"]
    empty = ["--allow-empty"] if allow_empty else []
    git.run("commit", "--quiet", "--cleanup=verbatim", "--file=-", *empty, *scope, text=text(staged))
    return True, left_out, not_filtered


def _unsaid(view: View) -> tuple[str, ...]:
    """What is not run or heeded of the repository, unless an earlier commit of ours says so already."""
    found = view.not_heeded
    return found if found and not has_trailer(view.git, NOT_RUN, ", ".join(found)) else ()


def _is_ignored(git: Git) -> bool:
    try:
        git.run("check-ignore", "--quiet", ".")
    except GitFailed as error:
        if str(error).endswith("failed: "):  # it says nothing, and ends with 1, where nothing is ignored
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
        *_OURS,
    )
    place = view.place
    prefix = "" if place.whole else f"{place.workspace.resolve().relative_to(place.top).as_posix()}/"
    return sorted(entry[3:].removeprefix(prefix) for entry in entries if not entry.endswith("/"))

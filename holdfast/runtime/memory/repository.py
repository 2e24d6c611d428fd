"""Git as the layer that lasts: one commit for each significant action, named by a key, made once.

1. A commit carries the key of its action as the trailer `Holdfast-Key`. An action whose commit is reachable from HEAD
   has happened: it is neither made nor committed again.
2. What a killed attempt left undone is done by the next, and committed together with what it had done already.
3. Nothing is touched while the repository is in the middle of something that a person began.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.memory.refusals import MemoryRefused
from holdfast.model import Frozen
from holdfast.runtime.memory.commits import KEY, LISTED, Commit, find_commit, head_of, log_of, message, with_paths
from holdfast.runtime.memory.git import Git, GitFailed, GitLocked, printable
from holdfast.runtime.memory.locks import clear_locks, exclusive
from holdfast.runtime.memory.places import Place, branch_of, find_place, make_place, problem_of

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
        self._git = Git(workspace, author or "Agent")

    def state(self) -> RepositoryState:
        """How things stand; nothing is changed or waited for."""
        if not self._git.folder.is_dir():
            return RepositoryState()
        try:
            place = find_place(self._git)
            if place is None:
                return RepositoryState()
            problem = problem_of(place)
            dirty = _dirty(place)
        except GitFailed as error:
            return RepositoryState(problem=str(error))
        return RepositoryState(
            head=head_of(place),
            branch=branch_of(place),
            dirty=tuple(dirty[:LISTED]),
            dirty_count=len(dirty),
            problem=problem,
        )

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
        place = find_place(self._git) if self._git.folder.is_dir() else None
        return find_commit(place, key) if place else None

    def commits(self, limit: int) -> list[Commit]:
        """The newest commits, people's too, the newest first.

        Raises:
            GitFailed: The repository cannot be read.
        """
        place = find_place(self._git) if self._git.folder.is_dir() else None
        return log_of(place, f"--max-count={limit}", "HEAD") if place and head_of(place) else []

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
        with self._locked() as place:
            if (found := find_commit(place, key)) is not None:
                return with_paths(place, found)
            if problem := problem_of(place):
                raise RepositoryRefused(problem)
            change()
            nested = _nested(place)
            _write(place, "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", text=_all_but(nested))
            left_out = tuple(printable(path) for path in nested[:LISTED])
            staged = place.git.paths("diff", "--cached", "--name-only", "--no-renames", "--relative", "-z", "--", ".")
            if not staged and not allow_empty:
                return Commit(hash=head_of(place), left_out=left_out)
            text = message(subject(staged), body, {KEY: key, **trailers})
            # What a person has staged elsewhere in a repository further up is not ours to commit.
            scope = [] if place.whole else ["--only", "--", "."] if staged else ["--only"]
            empty = ["--allow-empty"] if allow_empty else []
            _write(place, "commit", "--quiet", "--cleanup=verbatim", "--file=-", *empty, *scope, text=text)
            made = find_commit(place, key)
            assert made is not None, "it has just been made, under our lock"
            return with_paths(place, made.model_copy(update={"made": True, "left_out": left_out}))

    @contextmanager
    def _locked(self) -> Iterator[Place]:
        """The repository, with nobody else of ours at work in it."""
        try:
            self._git.folder.mkdir(parents=True, exist_ok=True)
            place = find_place(self._git) or make_place(self._git)
        except OSError as error:
            raise GitFailed(f"{self._git.folder.name} cannot be made a repository: {error.strerror}") from None
        with exclusive(place.folder) as lock:
            yield place.locked(lock)


def _write(place: Place, *arguments: str, text: str) -> None:
    """Run git when no other git is writing; one that begins at the same moment is waited for."""
    for attempt in range(5):
        clear_locks(place.lock_files(branch_of(place)), place.top)
        try:
            place.git.run(*arguments, text=text)
            return
        except GitLocked:
            if attempt == 4:
                raise


def _dirty(place: Place) -> list[str]:
    entries = place.git.paths(
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignore-submodules=dirty",
        "--",
        ".",
        *_OURS,
    )
    prefix = "" if place.whole else f"{place.git.folder.resolve().relative_to(place.top).as_posix()}/"
    return sorted(entry[3:].removeprefix(prefix) for entry in entries if not entry.endswith("/"))


def _nested(place: Place) -> list[str]:
    """Repositories in the workspace that are no submodules: git would keep no more of them than a number."""
    others = place.git.run("ls-files", "--others", "--exclude-standard", "-z", "--", ".", *_OURS)
    return [path for path in others.split("\0") if path.endswith("/")]


def _all_but(nested: Sequence[str]) -> str:
    return "".join(f"{spec}\0" for spec in (".", *_OURS, *(f":(exclude,literal){path}" for path in nested)))

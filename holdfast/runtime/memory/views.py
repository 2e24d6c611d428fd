"""A view of a repository: a git folder of our own, outside the workspace, in which git works for us.

1. It has the repository's HEAD, branch and index as copies, its objects by reference, and a configuration of ours. So
   nothing that somebody put into the repository's git folder is run, followed or written through.
2. What git has made in the view is brought into the repository by us: new objects, then the index, then the branch,
   each beside the locks that git itself uses, and only if the branch is still where it was.
3. A view that a killed process left behind is removed by the next one.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import structlog

from holdfast.runtime.memory import git_files
from holdfast.runtime.memory.git import Git, GitFailed, GitLocked
from holdfast.runtime.memory.git_settings import HOOKS, Settings, configuration, not_heeded, parse, require_usable
from holdfast.runtime.memory.repository_root import Place

_PREFIX = "holdfast-git-"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABANDONED_SECONDS = 60.0
"""Age of a view that may be left behind."""
_RULES = ("exclude", "attributes", "sparse-checkout")
"""Files of `info`: patterns of paths, and what attributes they have."""

log = structlog.get_logger(__name__)


@dataclass
class View:
    """A repository as our git sees it."""

    place: Place
    git: Git
    settings: Settings = ()
    tags: bool = False
    """Whether it has the repository's tags, and new ones are brought into it."""
    before: str = ""
    """The commit that the branch was at; empty for none yet."""

    @property
    def branch(self) -> str:
        """The branch that a commit goes to; empty where HEAD is detached."""
        return self.place.branch()

    @cached_property
    def not_heeded(self) -> tuple[str, ...]:
        """The repository's hooks, filters and settings that count for people, and not for us."""
        hooks = self.place.shared / "hooks"
        return not_heeded(self.settings, [name for name in HOOKS if os.access(hooks / name, os.X_OK)])

    def load(self) -> None:
        """Take over where HEAD, the branch and the index stand now.

        Raises:
            GitFailed: One of them cannot be read.
        """
        folder, shared, view = self.place.folder, self.place.shared, self.git.view
        shutil.rmtree(view / "refs", ignore_errors=True)
        shutil.rmtree(view / "logs", ignore_errors=True)
        (view / "refs").mkdir()
        branch = self.branch
        if branch:
            self.before = self._commit_of(f"refs/heads/{branch}")
            (view / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
            if self.before:
                (view / "refs/heads" / branch).parent.mkdir(parents=True)
                (view / "refs/heads" / branch).write_text(f"{self.before}\n")
        else:
            self.before = (git_files.read(folder, "HEAD") or b"").decode("ascii", "replace").strip()
            if not _HASH.fullmatch(self.before):
                raise GitFailed(f"the repository of {self.place.top.name} cannot be read; repair its HEAD first")
            (view / "HEAD").write_text(f"{self.before}\n")
        if self.tags:
            git_files.copy(shared, "packed-refs", view / "packed-refs")
            for path in (shared / "refs" / "tags").rglob("*"):
                if path.is_file():
                    (view / path.relative_to(shared)).parent.mkdir(parents=True, exist_ok=True)
                    git_files.copy(shared, str(path.relative_to(shared)), view / path.relative_to(shared))
        git_files.copy(folder, "index", view / "index")
        for path in folder.glob("sharedindex.*"):
            git_files.copy(folder, path.name, view / path.name)
        git_files.copy(shared, "shallow", view / "shallow")
        (view / "info").mkdir(exist_ok=True)
        for rules in _RULES:
            of_work_tree = rules == "sparse-checkout"
            git_files.copy(folder if of_work_tree else shared, f"info/{rules}", view / "info" / rules)

    def _commit_of(self, ref: str) -> str:
        content = git_files.read(self.place.shared, ref)
        if content is None:
            packed = (git_files.read(self.place.shared, "packed-refs") or b"").decode("utf-8", "surrogateescape")
            lines = (line.split(" ", 1) for line in packed.splitlines() if " " in line and line[0] not in "#^")
            content = next((value.encode() for value, name in lines if name == ref), b"")
        commit = content.decode("ascii", "replace").strip()
        if commit and not _HASH.fullmatch(commit):
            raise GitFailed(f"the repository of {self.place.top.name} cannot be read; repair {ref} first")
        return commit

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other git processes out of the index, and bring what git does meanwhile into the repository.

        Raises:
            GitLocked: Another git process is writing.
            GitFailed: The repository cannot be written.
        """
        with _locking(self.place.folder, "index.lock") as index:
            self.load()
            yield
            try:
                self._bring(index)
            except OSError as error:
                raise GitFailed(
                    f"the repository of {self.place.top.name} cannot be written: {error.strerror}"
                ) from None

    def _bring(self, index: int) -> None:
        """Bring what git has made into the repository.

        Args:
            index: Our lock of the index, which takes its place.
        """
        folder, shared = self.place.folder, self.place.shared
        self._bring_objects()
        branch = f"refs/heads/{self.branch}"
        after = self._after(branch)
        with _locking(shared, f"{branch}.lock") as ref:
            if self._commit_of(branch) != self.before:
                raise GitLocked(f"the branch {self.branch} was changed meanwhile; try it again")
            # The index first: after a kill between the two, what was added is staged, and is committed again.
            if (self.git.view / "index").exists():  # not before anything was added
                git_files.copy(self.git.view, "index", index)
                git_files.rename(folder, "index.lock", "index")
            if after != self.before:
                os.write(ref, f"{after}\n".encode())
                os.fsync(ref)
                git_files.rename(shared, f"{branch}.lock", branch)
        for path in (self.git.view / "refs" / "tags").rglob("*"):
            if path.is_file():
                git_files.bring(path, shared, str(path.relative_to(self.git.view)))
        self._bring_log("HEAD", folder)
        self._bring_log(branch, shared)

    def _after(self, branch: str) -> str:
        with suppress(FileNotFoundError):
            return (self.git.view / branch).read_text().strip()
        return ""

    def _bring_objects(self) -> None:
        objects = self.git.view / "objects"
        # A pack's index last: with it, git takes the pack to be there.
        for path in (
            sorted(objects.glob("??/*")) + sorted(objects.glob("pack/*.[pr]*")) + sorted(objects.glob("pack/*.idx"))
        ):
            git_files.bring(path, self.place.shared, f"objects/{path.parent.name}/{path.name}")

    def _bring_log(self, name: str, folder: Path) -> None:
        """Add to git's own log of where a branch has been, for `git reflog`."""
        try:
            lines = (self.git.view / "logs" / name).read_bytes()
        except FileNotFoundError:
            return
        try:
            git_files.append(folder, f"logs/{name}", lines)
        except (OSError, GitFailed) as error:
            log.warning("reflog_not_written", name=name, reason=str(error))


@contextmanager
def view_of(place: Place, *, author: str = "Agent", keep: tuple[int, ...] = (), tags: bool = False) -> Iterator[View]:
    """A view of a repository, for the length of the block.

    Args:
        place: The repository.
        author: Name of who commits.
        keep: Descriptors that git keeps open.
        tags: Have its tags, too; new ones are brought into it.

    Raises:
        GitFailed: The repository has what git would follow or write through, or cannot be read.
    """
    with _own_folder() as (folder, handle):
        view = View(place, Git(place.workspace, place.top, folder, place.shared, author, (*keep, handle)), tags=tags)
        try:
            _require_own(place)
            _make(view)
            view.load()
        except OSError as error:
            raise GitFailed(f"the repository of {place.top.name} cannot be read: {error.strerror}") from None
        yield view


def _require_own(place: Place) -> None:
    """Refuse a repository that leads to other places.

    Raises:
        GitFailed: The text says by what.
    """
    for folder in dict.fromkeys((place.shared, place.folder)):
        git_files.require_plain(folder)
    if git_files.read(place.shared, "objects/info/alternates"):
        raise GitFailed(
            f"the repository of {place.top.name} borrows objects from another (objects/info/alternates); "
            "make it whole with `git repack -a -d`, and remove that file"
        )


def _make(view: View) -> None:
    place, folder = view.place, view.git.view
    (folder / "objects" / "info").mkdir(parents=True)
    alternates = os.fsencode(place.shared / "objects")
    quoted = b"".join(b"\\%03o" % byte if byte < 32 or byte in b'"\\' else bytes([byte]) for byte in alternates)
    (folder / "objects" / "info" / "alternates").write_bytes(b'"' + quoted + b'"\n')
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(configuration(()))
    view.settings = _settings(view, "config", place.shared)
    if dict(view.settings).get("extensions.worktreeconfig", "false") == "true":
        view.settings = [*view.settings, *_settings(view, "config.worktree", place.folder)]
    require_usable(view.settings, name=place.top.name, linked=place.folder != place.shared)
    (folder / "config").write_text(configuration(view.settings))


def _settings(view: View, name: str, folder: Path) -> Settings:
    """What a file of settings says; it is only read, and what it includes is not."""
    copied = view.git.view / "settings"
    git_files.copy(folder, name, copied)
    if not copied.exists():
        return ()
    try:
        return parse(view.git.run("config", "--file", str(copied), "--no-includes", "--null", "--list"))
    except GitFailed as error:
        name = view.place.top.name
        raise GitFailed(f"the repository of {name} cannot be read; repair its configuration first ({error})") from None


@contextmanager
def _locking(folder: Path, name: str) -> Iterator[int]:
    """Hold one of git's locks; gives its file, open for writing, which may be put in another's place."""
    try:
        handle = git_files.create(folder, name)
    except FileExistsError:
        raise GitLocked(f"another git process holds {folder.name}/{name}; try it again when it has ended") from None
    identity = os.fstat(handle)
    try:
        yield handle
    finally:
        os.close(handle)
        with suppress(FileNotFoundError), git_files.parent_of(folder, name) as (parent, last):
            if os.path.samestat(identity, os.stat(last, dir_fd=parent, follow_symlinks=False)):
                os.unlink(last, dir_fd=parent)


@contextmanager
def _own_folder() -> Iterator[tuple[Path, int]]:
    """A folder of our own, known to be in use for as long as its descriptor is open; here, or in a git."""
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-")).resolve()
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder, handle
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(f"{_PREFIX}{os.getuid()}-")]
    for path in found:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(handle)
                if status.st_uid != os.getuid() or time.time() - status.st_ctime < _ABANDONED_SECONDS:
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)

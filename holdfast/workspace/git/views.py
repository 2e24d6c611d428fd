"""A view of a repository: our own git folder, outside the workspace, in which git works.

1. It has copies of the repository's HEAD, branch and index, its objects by reference, and our configuration. So git
   ignores hooks, links and configuration placed in the repository's own git folder.
2. We publish git's changes from the view to the repository: new objects, then the index, then the branch, holding
   git's own locks, and only if the branch has not moved.
3. The next process removes views that killed processes left behind.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast.config.logs import EventLogger
from holdfast.workspace.git import git_files
from holdfast.workspace.git.git import Git, GitFailed, GitLocked
from holdfast.workspace.git.git_refs import HASH, locking, read_ref
from holdfast.workspace.git.git_settings import HOOKS, Settings, configuration, ignored_settings, parse, require_usable
from holdfast.workspace.git.repository_root import RepositoryRoot

_PREFIX = "holdfast-git-"
_ABANDONED_SECONDS = 60.0
"""Age from which a view may be abandoned."""
_RULES = ("exclude", "attributes", "sparse-checkout")
"""Files in `info` with patterns of paths and their attributes."""

log = EventLogger(__name__)


@dataclass
class View:
    """A repository as our git process sees it."""

    root: RepositoryRoot
    git: Git
    settings: Settings = ()
    tags: bool = False
    """Whether the view has the repository's tags, and new tags are published."""
    before: str = ""
    """The commit of the branch when it was loaded; empty for none yet."""

    @property
    def branch(self) -> str:
        """The checked-out branch; empty if HEAD is detached."""
        return self.root.branch()

    @cached_property
    def ignored_settings(self) -> tuple[str, ...]:
        """The repository's hooks, filters and settings that apply to people's commits but not to ours."""
        hooks = self.root.shared / "hooks"
        return ignored_settings(self.settings, [name for name in HOOKS if os.access(hooks / name, os.X_OK)])

    def load(self) -> None:
        """Copy the current HEAD, branch and index from the repository.

        Raises:
            GitFailed: One of them cannot be read.
        """
        folder, shared, view = self.root.folder, self.root.shared, self.git.view
        shutil.rmtree(view / "refs", ignore_errors=True)
        shutil.rmtree(view / "logs", ignore_errors=True)
        (view / "refs").mkdir()
        branch = self.branch
        if branch:
            self.before = read_ref(self.root.shared, f"refs/heads/{branch}")
            (view / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
            if self.before:
                (view / "refs/heads" / branch).parent.mkdir(parents=True)
                (view / "refs/heads" / branch).write_text(f"{self.before}\n")
        else:
            self.before = (git_files.read(folder, "HEAD") or b"").decode("ascii", "replace").strip()
            if not HASH.fullmatch(self.before):
                raise GitFailed(f"the repository of {self.root.top.name} cannot be read; repair its HEAD first")
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

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the index against other git processes, and publish git's changes at the end of the block.

        Raises:
            GitLocked: Another git process is writing.
            GitFailed: The repository cannot be written.
        """
        with locking(self.root.folder, "index.lock") as index:
            self.load()
            yield
            try:
                self._publish(index)
            except OSError as error:
                raise GitFailed(f"the repository of {self.root.top.name} cannot be written: {error.strerror}") from None

    def _publish(self, index: int) -> None:
        """Publish git's changes to the repository.

        Args:
            index: The descriptor of our lock on the index, which becomes the new index.
        """
        folder, shared = self.root.folder, self.root.shared
        self._publish_objects()
        branch = f"refs/heads/{self.branch}"
        after = self._after(branch)
        with locking(shared, f"{branch}.lock") as ref:
            if read_ref(self.root.shared, branch) != self.before:
                raise GitLocked(f"the branch {self.branch} was changed meanwhile; try again")
            # The index first: after a kill between the two, the changes are staged, and are committed again.
            if (self.git.view / "index").exists():  # there is none before the first file is added
                git_files.copy(self.git.view, "index", index)
                git_files.rename(folder, "index.lock", "index")
            if after != self.before:
                os.write(ref, f"{after}\n".encode())
                os.fsync(ref)
                git_files.rename(shared, f"{branch}.lock", branch)
        for path in (self.git.view / "refs" / "tags").rglob("*"):
            if path.is_file():
                git_files.publish(path, shared, str(path.relative_to(self.git.view)))
        self._publish_log("HEAD", folder)
        self._publish_log(branch, shared)

    def _after(self, branch: str) -> str:
        with suppress(FileNotFoundError):
            return (self.git.view / branch).read_text().strip()
        return ""

    def _publish_objects(self) -> None:
        objects = self.git.view / "objects"
        # A pack's index last: git considers the pack complete once its index exists.
        for path in (
            sorted(objects.glob("??/*")) + sorted(objects.glob("pack/*.[pr]*")) + sorted(objects.glob("pack/*.idx"))
        ):
            git_files.publish(path, self.root.shared, f"objects/{path.parent.name}/{path.name}")

    def _publish_log(self, name: str, folder: Path) -> None:
        """Append to git's reflog."""
        try:
            lines = (self.git.view / "logs" / name).read_bytes()
        except FileNotFoundError:
            return
        try:
            git_files.append(folder, f"logs/{name}", lines)
        except (OSError, GitFailed) as error:
            log.warning("reflog_not_written", name=name, reason=str(error))


@contextmanager
def view_of(
    root: RepositoryRoot, *, author: str = "Agent", keep: tuple[int, ...] = (), tags: bool = False
) -> Iterator[View]:
    """Yield a view of a repository during the block.

    Args:
        root: The repository.
        author: Name of the committer.
        keep: Descriptors that git keeps open.
        tags: Load the repository's tags, too, and publish new ones.

    Raises:
        GitFailed: The repository has links or the like that git would follow, or cannot be read.
    """
    with _own_folder() as (folder, handle):
        view = View(root, Git(root.workspace, root.top, folder, root.shared, author, (*keep, handle)), tags=tags)
        try:
            _require_own(root)
            _make(view)
            view.load()
        except OSError as error:
            raise GitFailed(f"the repository of {root.top.name} cannot be read: {error.strerror}") from None
        yield view


def _require_own(root: RepositoryRoot) -> None:
    """Refuse a repository that leads outside its git folder.

    Raises:
        GitFailed: The message gives the link or the borrowed objects.
    """
    for folder in dict.fromkeys((root.shared, root.folder)):
        git_files.require_plain(folder)
    if git_files.read(root.shared, "objects/info/alternates"):
        raise GitFailed(
            f"the repository of {root.top.name} borrows objects from another (objects/info/alternates); "
            "copy them with `git repack -a -d`, and remove that file"
        )


def _make(view: View) -> None:
    root, folder = view.root, view.git.view
    borrow_objects(folder, root.shared)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(configuration(()))
    view.settings = _settings(view, "config", root.shared)
    if dict(view.settings).get("extensions.worktreeconfig", "false") == "true":
        view.settings = [*view.settings, *_settings(view, "config.worktree", root.folder)]
    require_usable(view.settings, name=root.top.name, linked=root.folder != root.shared)
    (folder / "config").write_text(configuration(view.settings))


def borrow_objects(folder: Path, shared: Path) -> None:
    """Make one of our git folders read the objects of a repository."""
    (folder / "objects" / "info").mkdir(parents=True)
    alternates = os.fsencode(shared / "objects")
    quoted = b"".join(b"\\%03o" % byte if byte < 32 or byte in b'"\\' else bytes([byte]) for byte in alternates)
    (folder / "objects" / "info" / "alternates").write_bytes(b'"' + quoted + b'"\n')


def _settings(view: View, name: str, folder: Path) -> Settings:
    """Read a settings file; files that it includes are not read."""
    copied = view.git.view / "settings"
    git_files.copy(folder, name, copied)
    if not copied.exists():
        return ()
    try:
        return parse(view.git.run("config", "--file", str(copied), "--no-includes", "--null", "--list"))
    except GitFailed as error:
        name = view.root.top.name
        raise GitFailed(f"the repository of {name} cannot be read; repair its configuration first ({error})") from None


@contextmanager
def _own_folder() -> Iterator[tuple[Path, int]]:
    """Create a temporary folder, which counts as in use while this process or git holds its descriptor open."""
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
        paths = [entry.path for entry in entries if entry.name.startswith(f"{_PREFIX}{os.getuid()}-")]
    for path in paths:
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

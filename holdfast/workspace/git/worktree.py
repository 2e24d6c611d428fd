"""The folder of a fork: a linked work tree of the original's repository, at the commit of the fork's time.

1. Git only reads, in a view of the repository (`views.py`): no hook, filter or setting of the repository applies.
2. We write the records of `git worktree add` ourselves, without following links: the work tree's entry in the git
   folder, and its own branch. The original's files, index and branch do not change.
3. The files appear at once, under the folder's final name, after everything else. So the next attempt never mistakes
   the remains of a killed one for the fork's folder.
"""

import os
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from holdfast.workspace.git import git_files
from holdfast.workspace.git.git import Git, GitFailed
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.git.repository_root import RepositoryRoot
from holdfast.workspace.git.views import view_of


def make_forked_folder(source: Path, folder: Path, *, at: datetime) -> Path:
    """Make the folder of a fork, and return the workspace in it. May be repeated. Blocks on the file system.

    Without a repository, or without a commit of that time, the folder is empty.

    Args:
        source: The workspace of the thread that was forked: the top of a work tree, or a folder below it.
        folder: Where to make it; its parent exists, and its name is from `digested_name`.
        at: The time of the fork; later commits do not count, to the second.

    Raises:
        GitFailed: There is a repository, and it cannot be used.
    """
    root = Repository(source).root() if source.is_dir() else None
    inside = source.resolve().relative_to(root.top) if root else Path()
    if not folder.exists() and (root is None or not _check_out(root, folder, at=at)):
        folder.mkdir(exist_ok=True)
    workspace = folder / inside
    # The commit may have a link instead of a folder: the fork would then work outside its own folder.
    if not workspace.resolve().is_relative_to(folder.resolve()):
        raise GitFailed(f"{inside} was a link to another place at that time; fork with a workspace of your own")
    workspace.mkdir(parents=True, exist_ok=True)
    return workspace.resolve()


def _check_out(root: RepositoryRoot, folder: Path, *, at: datetime) -> bool:
    """Check the commit of that time out; return False if there is none."""
    with view_of(root) as view:
        git = view.git
        if not view.before:
            return False
        commit = git.run("rev-list", "-1", f"--before={int(at.timestamp())} +0000", view.before).strip()
        if not commit:
            return False
        try:
            _write_files(git, commit, folder, root)
        except OSError as error:
            raise GitFailed(f"the work tree {folder.name} cannot be made: {error.strerror}") from None
    return True


def _write_files(git: Git, commit: str, folder: Path, root: RepositoryRoot) -> None:
    index, files = git.view / "fork-index", git.view / "fork"
    files.mkdir()
    own = {"GIT_INDEX_FILE": str(index)}
    git.at_top().run("read-tree", commit, environment=own)
    git.at_top().run("checkout-index", "--all", f"--prefix={files}/", environment=own)
    name, entry = folder.name, f"worktrees/{folder.name}"
    _write(root.shared, f"refs/heads/{name}", f"{commit}\n".encode())
    _write(root.shared, f"{entry}/commondir", b"../..\n")
    _write(root.shared, f"{entry}/gitdir", os.fsencode(folder.resolve() / ".git") + b"\n")
    _write(root.shared, f"{entry}/HEAD", f"ref: refs/heads/{name}\n".encode())
    _write(root.shared, f"{entry}/index", index.read_bytes())
    (files / ".git").write_bytes(b"gitdir: " + os.fsencode(root.shared / entry) + b"\n")
    unfinished = folder.with_name(f".{name}-{os.urandom(4).hex()}")
    try:
        shutil.copytree(files, unfinished, symlinks=True)
        with suppress(FileExistsError):  # another attempt was faster
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a git folder anew."""
    git_files.remove(folder, name)
    with os.fdopen(git_files.create(folder, name), "wb") as file:
        file.write(content)

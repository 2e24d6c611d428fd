"""Finds the repository that a workspace belongs to, creates one, and checks that it may be committed to."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.workspace.files import write_lock
from holdfast.workspace.git import git_files
from holdfast.workspace.git.git import Git, GitFailed

_UNDER_WAY = {
    "MERGE_HEAD": ("a merge", "`git commit`", "`git merge --abort`"),
    "rebase-merge": ("a rebase", "`git rebase --continue`", "`git rebase --abort`"),
    "rebase-apply": ("a rebase", "`git rebase --continue`", "`git rebase --abort`"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "`git cherry-pick --continue`", "`git cherry-pick --abort`"),
    "REVERT_HEAD": ("a revert", "`git revert --continue`", "`git revert --abort`"),
    "sequencer": ("a series of picks or reverts", "`git cherry-pick --continue`", "`git cherry-pick --quit`"),
    "BISECT_LOG": ("a bisect", "more of it", "`git bisect reset`"),
}
"""A file or folder that git creates during an operation → the operation, how to finish it, and how to abort it."""

_BRANCH = "ref: refs/heads/"
"""The prefix of a branch's name in HEAD."""
_NOT_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|@\{|\.\.")
_CONFIG = "[core]\n\trepositoryFormatVersion = 0\n\tfileMode = true\n\tbare = false\n\tlogAllRefUpdates = true\n"
"""The configuration of a new repository."""


@dataclass(frozen=True)
class RepositoryRoot:
    """A repository that a workspace belongs to."""

    workspace: Path
    top: Path
    """Its work tree: the workspace, or a folder further up; without links in its path."""
    folder: Path
    """The git folder: `.git`, or that of a linked work tree."""
    shared: Path
    """The git folder that all its work trees share."""

    @property
    def is_workspace(self) -> bool:
        """Whether the workspace is the top of the work tree."""
        return self.workspace.resolve() == self.top

    def branch(self) -> str:
        """The checked-out branch; empty if HEAD is detached.

        Raises:
            GitFailed: HEAD cannot be read, or names no branch.
        """
        head = (git_files.read(self.folder, "HEAD") or b"").decode("utf-8", "surrogateescape").strip()
        if not head.startswith("ref:"):
            return ""
        name = head.removeprefix("ref:").strip().removeprefix("refs/heads/")
        if not head.endswith(f"refs/heads/{name}") or not _is_branch(name):
            raise GitFailed(f"HEAD of {self.top.name} names no branch; switch to one with `git switch`")
        return name

    def lock_files(self) -> list[Path]:
        """The lock files that git uses while it commits."""
        names = [self.folder / "index.lock", self.folder / "HEAD.lock", self.shared / "packed-refs.lock"]
        return [*names, self.shared / f"refs/heads/{self.branch()}.lock"]


def find_repository_root(workspace: Path) -> RepositoryRoot | None:
    """Find the repository whose work tree contains the workspace; None if there is none.

    A repository is recognised by its `.git`; a bare repository, which has none, is refused.

    Raises:
        GitFailed: There is one, and it cannot be used.
    """
    here = workspace.resolve()
    for top in (here, *here.parents):
        git = top / ".git"
        if top == here and os.path.lexists(git):
            return _read_root(workspace, top, git)  # even if broken: no repository further up may replace it
        # Anyone could create one in /tmp, to receive what is committed below it.
        own = os.path.lexists(git) and git.lstat().st_uid in (os.geteuid(), here.stat().st_uid)
        if own and (git.is_file() or _is_git_folder(git)):
            return _read_root(workspace, top, git)
        if _is_git_folder(top):
            raise GitFailed(f"{workspace.name} is a bare repository, or git's own folder; give the agent a work tree")
    return None


def _read_root(workspace: Path, top: Path, git: Path) -> RepositoryRoot:
    if git.is_symlink():
        raise GitFailed(f"{top.name}/.git is a link to a repository elsewhere; give the agent a clone")
    if git.is_file():
        folder = _linked(top)
        return RepositoryRoot(workspace, top, folder, folder.parents[1])
    if not _is_git_folder(git):
        raise GitFailed(f"the repository of {workspace.name} cannot be read; repair it first (.git is incomplete)")
    if os.path.lexists(git / "commondir"):
        raise GitFailed(f"{top.name}/.git has its contents elsewhere (commondir); give the agent a clone")
    return RepositoryRoot(workspace, top, git, git)


def _linked(top: Path) -> Path:
    """The git folder of a linked work tree, if its repository lists this as one of its work trees.

    Raises:
        GitFailed: The repository does not list it; `.git` may name anyone's repository.
    """
    named = (git_files.read(top, ".git") or b"").decode("utf-8", "surrogateescape")
    folder = Path(os.path.realpath(top / named.removeprefix("gitdir:").strip()))
    with suppress(OSError, GitFailed, ValueError):
        back = (git_files.read(folder, "gitdir") or b"").decode("utf-8", "surrogateescape").strip()
        common = (git_files.read(folder, "commondir") or b"").strip()
        own = os.path.realpath(folder / back) == str(top / ".git") and common == b"../.."
        if own and named.startswith("gitdir:") and folder.parent.name == "worktrees":
            return folder
    raise GitFailed(
        f"{top.name}/.git is a file that names a repository elsewhere, which does not list this as its work tree; "
        "give the agent a clone, or a work tree created by `git worktree add`"
    )


def _is_git_folder(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and all((folder / name).is_dir() for name in ("objects", "refs"))


def _is_branch(name: str) -> bool:
    """Whether git accepts a branch name, and it stays within `refs/heads`."""
    bad = _NOT_IN_BRANCH.search(name) or not name or name.endswith(".")
    return not bad and not any(
        part in ("", ".", "..") or part.startswith(".") or part.endswith(".lock") for part in name.split("/")
    )


def create_repository(workspace: Path) -> RepositoryRoot:
    """Atomically create a repository in the workspace, unless another attempt has done so.

    Raises:
        GitFailed: There is one, and it cannot be used.
        OSError: The folder cannot be written.
    """
    with write_lock(workspace):
        if not os.path.lexists(workspace / ".git"):
            # A temporary folder for this attempt alone: a killed attempt's process may still be writing to its own.
            with TemporaryDirectory(prefix=".holdfast-", suffix=".tmp", dir=workspace) as unfinished:
                git = Path(unfinished, ".git")
                for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
                    (git / folder).mkdir(parents=True)
                (git / "HEAD").write_text(f"{_BRANCH}main\n")
                (git / "config").write_text(_CONFIG)
                git.rename(workspace / ".git")
    return _read_root(workspace, workspace.resolve(), workspace.resolve() / ".git")


def problem_of(root: RepositoryRoot, git: Git) -> str:
    """Return the reason why nothing may be committed; empty if commits are possible.

    Raises:
        GitFailed: The repository cannot be read.
    """
    name = root.top.name
    for mark, (operation, finish, abort) in _UNDER_WAY.items():
        if os.path.lexists(root.folder / mark):
            return (
                f"{operation} is under way in {name}; a person has to finish it with {finish}, or abort it with {abort}"
            )
    if not root.branch():
        return f"HEAD is detached in {name}: no branch would keep a commit; switch to one with `git switch`"
    unmerged = git.paths("ls-files", "--unmerged", "--full-name", "-z", ":/")
    if conflicts := sorted({entry.partition("\t")[2] for entry in unmerged}):
        return f"{name} has unresolved conflicts: {', '.join(conflicts)[:300]}; a person has to resolve them"
    return ""

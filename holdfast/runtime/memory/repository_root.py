"""Which repository a workspace belongs to, and whether it is in a state that nobody but a person should change."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.runtime.memory import git_files
from holdfast.runtime.memory.git import Git, GitFailed
from holdfast.runtime.workspace.files import write_lock

_UNDER_WAY = {
    "MERGE_HEAD": ("a merge", "`git commit`", "`git merge --abort`"),
    "rebase-merge": ("a rebase", "`git rebase --continue`", "`git rebase --abort`"),
    "rebase-apply": ("a rebase", "`git rebase --continue`", "`git rebase --abort`"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "`git cherry-pick --continue`", "`git cherry-pick --abort`"),
    "REVERT_HEAD": ("a revert", "`git revert --continue`", "`git revert --abort`"),
    "sequencer": ("a series of picks or reverts", "`git cherry-pick --continue`", "`git cherry-pick --quit`"),
    "BISECT_LOG": ("a bisect", "more of it", "`git bisect reset`"),
}
"""What git leaves in its folder while it waits for a person; how to end it, and how to drop it."""

_BRANCH = "ref: refs/heads/"
"""What HEAD says before a branch's name."""
_NOT_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|@\{|\.\.")
_CONFIG = "[core]\n\trepositoryFormatVersion = 0\n\tfileMode = true\n\tbare = false\n\tlogAllRefUpdates = true\n"
"""Of a repository that is made here."""


@dataclass(frozen=True)
class Place:
    """A repository that a workspace belongs to."""

    workspace: Path
    top: Path
    """Its work tree: the workspace, or a folder further up; without links in its path."""
    folder: Path
    """`.git`, or that of a linked work tree."""
    shared: Path
    """What all its work trees have in common."""

    @property
    def whole(self) -> bool:
        """Whether the workspace is all of it."""
        return self.workspace.resolve() == self.top

    def branch(self) -> str:
        """The branch that a commit goes to; empty where HEAD is detached.

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
        """The files by which git keeps other git processes out while it commits."""
        names = [self.folder / "index.lock", self.folder / "HEAD.lock", self.shared / "packed-refs.lock"]
        return [*names, self.shared / f"refs/heads/{self.branch()}.lock"]


def find_place(workspace: Path) -> Place | None:
    """The repository whose work tree has the workspace; None if there is none.

    It is found by its `.git` folder: what only looks like one from within is none.

    Raises:
        GitFailed: There is one, and it cannot be used.
    """
    here = workspace.resolve()
    for top in (here, *here.parents):
        git = top / ".git"
        if top == here and os.path.lexists(git):
            return _place(workspace, top, git)  # broken or not: none further up is taken for it
        # Anybody may have put one into /tmp, to be given what is committed below it.
        own = os.path.lexists(git) and git.lstat().st_uid in (os.geteuid(), here.stat().st_uid)
        if own and (git.is_file() or _is_git_folder(git)):
            return _place(workspace, top, git)
        if _is_git_folder(top):
            raise GitFailed(f"{workspace.name} is a bare repository, or git's own folder; give the agent a work tree")
    return None


def _place(workspace: Path, top: Path, git: Path) -> Place:
    if git.is_symlink():
        raise GitFailed(f"{top.name}/.git is a link to a repository elsewhere; give the agent a clone")
    if git.is_file():
        folder = _linked(top, git)
        return Place(workspace, top, folder, folder.parents[1])
    if not _is_git_folder(git):
        raise GitFailed(f"the repository of {workspace.name} cannot be read; repair it first (.git is incomplete)")
    if os.path.lexists(git / "commondir"):
        raise GitFailed(f"{top.name}/.git has its contents elsewhere (commondir); give the agent a clone")
    return Place(workspace, top, git, git)


def _linked(top: Path, git: Path) -> Path:
    """The git folder of a linked work tree, if its repository says that this is one of its work trees.

    Raises:
        GitFailed: It does not: `.git` may name anybody's repository.
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
        f"{top.name}/.git is a file that names a repository elsewhere, which does not have this as its work tree; "
        "give the agent a clone, or a work tree made by `git worktree add`"
    )


def _is_git_folder(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and all((folder / name).is_dir() for name in ("objects", "refs"))


def _is_branch(name: str) -> bool:
    """Whether git takes it for a branch's name; what leads out of `refs/heads` is none."""
    bad = _NOT_IN_BRANCH.search(name) or not name or name.endswith(".")
    return not bad and not any(
        part in ("", ".", "..") or part.startswith(".") or part.endswith(".lock") for part in name.split("/")
    )


def make_place(workspace: Path) -> Place:
    """Make the workspace a repository of its own, unless another attempt has; whole or not at all.

    Raises:
        GitFailed: There is one that cannot be used.
        OSError: The folder cannot be written.
    """
    with write_lock(workspace):
        if not os.path.lexists(workspace / ".git"):
            # A folder of this attempt's own: one that was killed may still be writing to another.
            with TemporaryDirectory(prefix=".holdfast-", suffix=".tmp", dir=workspace) as unfinished:
                git = Path(unfinished, ".git")
                for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
                    (git / folder).mkdir(parents=True)
                (git / "HEAD").write_text(f"{_BRANCH}main\n")
                (git / "config").write_text(_CONFIG)
                git.rename(workspace / ".git")
    return _place(workspace, workspace.resolve(), workspace.resolve() / ".git")


def problem_of(place: Place, git: Git) -> str:
    """Why nothing should be committed, in words; empty if there is no reason.

    Raises:
        GitFailed: The repository cannot be read.
    """
    name = place.top.name
    for mark, (what, finish, drop) in _UNDER_WAY.items():
        if os.path.lexists(place.folder / mark):
            return f"{what} is under way in {name}; a person has to end it with {finish}, or drop it with {drop}"
    if not place.branch():
        return f"HEAD is detached in {name}: no branch would keep a commit; switch to one with `git switch`"
    unmerged = git.paths("ls-files", "--unmerged", "--full-name", "-z", ":/")
    if conflicts := sorted({entry.partition("\t")[2] for entry in unmerged}):
        return f"{name} has conflicts that are not resolved: {', '.join(conflicts)[:300]}; a person has to resolve them"
    return ""

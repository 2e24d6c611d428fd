"""Which repository a workspace belongs to, and whether it is in a state that nobody but a person should change."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.runtime.files import alone
from holdfast.runtime.memory.git import Git, GitFailed

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


@dataclass(frozen=True)
class Place:
    """A repository that a workspace belongs to."""

    git: Git
    top: Path
    """Its work tree: the workspace, or a folder further up."""
    folder: Path
    """`.git`, or that of a linked work tree."""
    shared: Path
    """What all its work trees have in common."""

    @property
    def whole(self) -> bool:
        """Whether the workspace is all of it."""
        return self.git.folder.resolve() == self.top

    def locked(self, lock: int) -> "Place":
        """The same, with git under our lock."""
        return replace(self, git=replace(self.git, lock=lock))

    def lock_files(self, branch: str) -> list[Path]:
        """The files by which git keeps other git processes out while it commits."""
        names = [self.folder / "index.lock", self.folder / "HEAD.lock", self.shared / "packed-refs.lock"]
        return [*names, self.shared / f"refs/heads/{branch}.lock"]


def find_place(git: Git) -> Place | None:
    """The repository that a workspace belongs to; None if it is to have one of its own.

    A repository further up is taken where it has the workspace in its work tree, and does not ignore it.

    Raises:
        GitFailed: There is one, and it cannot be used.
    """
    workspace = git.folder
    if os.path.lexists(workspace / ".git"):
        # With a broken `.git`, git would go on to look further up.
        git = replace(git, ceiling=True)
    try:
        folder, shared, top = git.run(
            "rev-parse", "--absolute-git-dir", "--git-common-dir", "--show-toplevel"
        ).splitlines()
    except GitFailed as error:
        if not git.ceiling and "not a git repository" in str(error):
            return None
        if "must be run in a work tree" in str(error):
            name = workspace.name
            raise GitFailed(f"{name} is a bare repository, or git's own folder; give the agent a work tree") from None
        raise GitFailed(f"the repository of {workspace.name} cannot be read; repair it first ({error})") from None
    if not git.ceiling and _ignored(git):
        return None
    return Place(git, Path(top).resolve(), Path(folder), (workspace / shared).resolve())


def _ignored(git: Git) -> bool:
    try:
        git.run("check-ignore", "--quiet", ".")
    except GitFailed as error:
        if str(error).endswith("failed: "):  # it says nothing, and ends with 1, where nothing is ignored
            return False
        raise
    return True


def make_place(git: Git) -> Place:
    """Make the workspace a repository of its own, unless another attempt has; whole or not at all.

    Raises:
        GitFailed: It cannot be made, or there is one that cannot be used.
        OSError: The folder cannot be written.
    """
    with alone(git.folder):
        place = find_place(git)
        if place is None:
            # A folder of this attempt's own: the git of one that was killed may still be writing to another.
            with TemporaryDirectory(prefix=".holdfast-", suffix=".tmp", dir=git.folder) as unfinished:
                git.run("init", "--quiet", "--template=", "--initial-branch=main", unfinished)
                Path(unfinished, ".git").rename(git.folder / ".git")
            place = find_place(git)
    assert place is not None, "it has just been made"
    return place


def problem_of(place: Place) -> str:
    """Why nothing should be committed, in words; empty if there is no reason.

    Raises:
        GitFailed: The repository cannot be read.
    """
    name = place.top.name
    for mark, (what, finish, drop) in _UNDER_WAY.items():
        if (place.folder / mark).exists():
            return f"{what} is under way in {name}; a person has to end it with {finish}, or drop it with {drop}"
    if not branch_of(place):
        return f"HEAD is detached in {name}: no branch would keep a commit; switch to one with `git switch`"
    unmerged = place.git.paths("ls-files", "--unmerged", "--full-name", "-z", ":/")
    if conflicts := sorted({entry.partition("\t")[2] for entry in unmerged}):
        return f"{name} has conflicts that are not resolved: {', '.join(conflicts)[:300]}; a person has to resolve them"
    return ""


def branch_of(place: Place) -> str:
    """The branch that a commit goes to; empty where HEAD is detached.

    Raises:
        GitFailed: The repository cannot be read.
    """
    try:
        head = (place.folder / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise GitFailed(f"the repository of {place.top.name} cannot be read: {error.strerror}") from None
    return head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else ""

"""Runs git on the repository to release.

The repository belongs to the user: git works in a view of it, and executes nothing that the repository configures
(`holdfast.workspace.memory`).
"""

from pathlib import Path

from holdfast.examples.shared.git import GitFailed, run_git
from holdfast.workspace.git import git as runtime_git
from holdfast.workspace.git.repository_root import find_repository_root
from holdfast.workspace.git.views import view_of

_WRITING = ("add", "commit", "tag")


class NotARepository(GitFailed):
    """The workspace is not a git repository."""


def git(repository: Path, *arguments: str, author: str = "Release Agent", date: str | None = None) -> str:
    """Run `git ARGUMENTS…` in a repository and return its output without the final line break.

    Args:
        repository: The folder that contains `.git`; a repository in a parent folder is never used.
        arguments: Git's arguments. The caller must validate those that come from outside.
        author: The name of the author of commits and tags.
        date: Their date in git's format (`2026-01-05T10:00:00Z`); None for now.

    Raises:
        NotARepository: There is no `.git` in the folder.
        GitFailed: Git failed, or took too long.
    """
    if arguments[:1] == ("init",):
        return run_git(repository, *arguments, author=author, date=date)
    if not (repository / ".git").exists():
        raise NotARepository(
            f"{repository.name} is not a git repository: start the run with --workspace and the folder of one "
            "(`python -m holdfast.examples.release.repository FOLDER` makes one to try)"
        )
    address = f"{author.lower().replace(' ', '.')}@example.invalid"
    who = {"NAME": author, "EMAIL": address} | ({"DATE": date} if date else {})
    environment = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in who.items()}
    try:
        root = find_repository_root(repository)
        assert root is not None, ".git exists"
        with view_of(root, tags=True) as view:
            if arguments[0] not in _WRITING or "--list" in arguments:
                return view.git.run(*arguments, environment=environment).removesuffix("\n")
            with view.writing():
                return view.git.run(*arguments, environment=environment).removesuffix("\n")
    except runtime_git.GitFailed as error:
        raise GitFailed(str(error)) from None


def commit_of(repository: Path, tag: str) -> str | None:
    """Return the commit that a tag points to; None if there is no such tag."""
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    except NotARepository:
        raise
    except GitFailed:
        return None

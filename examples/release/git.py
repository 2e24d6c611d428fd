"""Git on the repository that is released."""

from pathlib import Path

from examples.stage.git import GitFailed, run_git


class NotARepository(GitFailed):
    """The workspace is not a git repository."""


def git(repository: Path, *arguments: str, author: str = "Release Agent", date: str | None = None) -> str:
    """Run `git ARGUMENTS…` in a repository and return what it printed, as `run_git` does.

    Raises:
        NotARepository: There is no `.git` in the folder.
        GitFailed: Git ended with an error, or took too long.
    """
    if not (repository / ".git").exists() and arguments[:1] != ("init",):
        raise NotARepository(
            f"{repository.name} is no git repository: start the run with --workspace and the folder of one "
            "(`python -m examples.release.repository FOLDER` makes one to try)"
        )
    return run_git(repository, *arguments, author=author, date=date)


def commit_of(repository: Path, tag: str) -> str | None:
    """The commit that a tag points at; None where there is no such tag."""
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    except NotARepository:
        raise
    except GitFailed:
        return None

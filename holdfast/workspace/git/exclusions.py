"""Finds what a commit leaves out: nested repositories, submodules, and files that a filter would change."""

from collections.abc import Sequence

from holdfast.workspace.git.git import Git

_NO_FILTER = ("unspecified", "unset", "set")
"""Values of the attribute `filter` that name no filter."""


def nested_repositories(git: Git, skip: Sequence[str]) -> list[str]:
    """List repositories in the workspace that are not submodules. Paths are relative to the top, and end in `/`.

    Args:
        git: On the repository.
        skip: Pathspecs to exclude.
    """
    listed = _list_files(git, "--others", "--exclude-standard", skip=skip)
    return [path for path in listed if path.endswith("/")]


def submodules(git: Git) -> list[str]:
    """List submodules, relative to the top. To look into one, git would apply that submodule's configuration."""
    entries = git.run("ls-files", "--stage", "--full-name", "-z", "--", ".").split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def filtered_files(git: Git, skip: Sequence[str]) -> dict[str, str]:
    """List changed files to which a filter applies, relative to the top, with the filter's name.

    Without the filter, git would commit their content instead of the filter's output (a pointer of Git LFS, an
    encrypted file), so they are not committed.
    """
    changed = git.run(
        *("diff-files", "--name-only", "--diff-filter=d", "--ignore-submodules=all", "-z", "--", ".", *skip)
    )
    new = [path for path in _list_files(git, "--others", "--exclude-standard", skip=skip) if not path.endswith("/")]
    paths = dict.fromkeys([*(path for path in changed.split("\0") if path), *new])
    if not paths:
        return {}
    # check-attr reads paths relative to its working directory, and these are relative to the top.
    output = git.at_top().run("check-attr", "-z", "--stdin", "filter", text="".join(f"{path}\0" for path in paths))
    fields = output.split("\0")
    attributes = zip(fields[0::3], fields[2::3], strict=False)
    return {path: value for path, value in attributes if value not in _NO_FILTER}


def _list_files(git: Git, *arguments: str, skip: Sequence[str]) -> list[str]:
    output = git.run("ls-files", "--full-name", *arguments, "-z", "--", ".", *skip)
    return [path for path in output.split("\0") if path]

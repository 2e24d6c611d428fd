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
    listed = git.run("ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", ".", *skip)
    return [path for path in listed.split("\0") if path.endswith("/")]


def submodules(git: Git) -> list[str]:
    """List submodules, relative to the top. To look into one, git would apply that submodule's configuration."""
    entries = git.run("ls-files", "--stage", "--full-name", "-z", "--", ".").split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def changed_files(git: Git, specs: Sequence[str]) -> list[str]:
    """List the files that are new or have changed, relative to the top.

    Args:
        git: On the repository.
        specs: Pathspecs that select them.
    """
    changed = git.run("diff-files", "--name-only", "--diff-filter=d", "--ignore-submodules=all", "-z", "--", *specs)
    new = git.run("ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", *specs)
    listed = (path for path in f"{changed}{new}".split("\0") if path and not path.endswith("/"))
    return list(dict.fromkeys(listed))


def filters_of(git: Git, paths: Sequence[str]) -> dict[str, str]:
    """Return those of some files, relative to the top, to which a filter applies, with the filter's name.

    Without the filter, git would commit their content instead of the filter's output (a pointer of Git LFS, an
    encrypted file), so they are not committed.
    """
    if not paths:
        return {}
    # check-attr reads paths relative to its working directory, and these are relative to the top.
    output = git.at_top().run("check-attr", "-z", "--stdin", "filter", text="".join(f"{path}\0" for path in paths))
    fields = output.split("\0")
    attributes = zip(fields[0::3], fields[2::3], strict=False)
    return {path: value for path, value in attributes if value not in _NO_FILTER}

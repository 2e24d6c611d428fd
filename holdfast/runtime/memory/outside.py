"""What of a workspace is not ours to commit: repositories in it, and files that a filter governs."""

from collections.abc import Sequence

from holdfast.runtime.memory.git import Git

_PLAIN = ("unspecified", "unset", "set")
"""What the attribute `filter` says where it names none."""


def nested(git: Git, but: Sequence[str]) -> list[str]:
    """Repositories in the workspace that are no submodules, from the top; each ends in `/`.

    Args:
        git: On the repository.
        but: Pathspecs of what is not looked at.
    """
    listed = _listed(git, "--others", "--exclude-standard", but=but)
    return [path for path in listed if path.endswith("/")]


def gitlinks(git: Git) -> list[str]:
    """Submodules, from the top: to look into one, git would heed what its own configuration says."""
    entries = git.run("ls-files", "--stage", "--full-name", "-z", "--", ".").split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def governed(git: Git, but: Sequence[str]) -> dict[str, str]:
    """Files that differ, and that a filter would change on their way in, from the top; with the filter's name.

    Without the filter, their content would be committed in place of what people's git stores (a pointer of Git LFS,
    an encrypted file), so they are not committed.
    """
    changed = git.run(
        *("diff-files", "--name-only", "--diff-filter=d", "--ignore-submodules=all", "-z", "--", ".", *but)
    )
    new = [path for path in _listed(git, "--others", "--exclude-standard", but=but) if not path.endswith("/")]
    paths = dict.fromkeys([*(path for path in changed.split("\0") if path), *new])
    if not paths:
        return {}
    # check-attr takes paths from where it is started, and these are from the top.
    said = git.at_top().run("check-attr", "-z", "--stdin", "filter", text="".join(f"{path}\0" for path in paths))
    fields = said.split("\0")
    found = zip(fields[0::3], fields[2::3], strict=False)
    return {path: value for path, value in found if value not in _PLAIN}


def _listed(git: Git, *arguments: str, but: Sequence[str]) -> list[str]:
    return [path for path in git.run("ls-files", "--full-name", *arguments, "-z", "--", ".", *but).split("\0") if path]

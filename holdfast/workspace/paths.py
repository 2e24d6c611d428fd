"""Paths within a workspace: resolving links, and matching globs."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path


class OutsideWorkspace(Exception):
    """The path leads outside the workspace, or to files that the tools must not write."""


def inside(workspace: Path, path: str) -> Path:
    """Resolve every link in `path`; the file need not exist yet.

    Open the result with `holdfast.workspace.beneath`: a link may be created in the path in the meantime.

    Raises:
        OutsideWorkspace: The path leads outside the workspace.
        ValueError: The text cannot be a path.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{path!r} has a character that file names cannot have") from None
    if b"\0" in encoded or len(encoded) > 4096:
        raise ValueError(f"{path[:100]!r} cannot be a path: it has a NUL character or over 4,096 bytes")
    base = os.path.realpath(workspace)
    real = os.path.realpath(Path(base, path))
    # In a loop of links, realpath leaves links unresolved: a path has none only if realpath returns it unchanged.
    if os.path.realpath(real) != real or not (real == base or real.startswith(base.rstrip("/") + "/")):
        raise OutsideWorkspace(f"{path!r} leads outside the workspace; give a path relative to it")
    return Path(real)


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a relative path matches a pattern: `*` and `?` stay within a name, `**` is any number of folders.

    A pattern without `/` is matched against the last name alone. No pattern takes exponential time.
    """
    names, parts = path.split("/"), pattern.removeprefix("./").split("/")
    if "/" not in pattern:
        return fnmatchcase(names[-1], pattern)
    reached = _past_stars(parts, {0})
    for name in names:
        matched = set()
        for at in reached - {len(parts)}:
            if parts[at] == "**":
                matched.add(at)
            elif fnmatchcase(name, parts[at]):
                matched.add(at + 1)
        reached = _past_stars(parts, matched)
    return len(parts) in reached


def _past_stars(parts: Sequence[str], reached: set[int]) -> set[int]:
    """Add the positions reached if each `**` stands for no folder."""
    every = set(reached)
    for at in reached:
        while at < len(parts) and parts[at] == "**":
            at += 1
            every.add(at)
    return every

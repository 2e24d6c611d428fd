"""Paths within a workspace: where they really lead, and which names fit a glob."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path


class OutsideWorkspace(Exception):
    """The path leads outside the workspace, or to what only git may write."""


def inside(workspace: Path, path: str) -> Path:
    """The real place that `path` names, with every link resolved; nothing needs to be there yet.

    Open it with `holdfast.runtime.workspace.beneath`: by the time it is used, a link may lie on the way.

    Raises:
        OutsideWorkspace: It is not in the workspace.
        ValueError: It cannot be a path at all.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{path!r} has a character that no file name can have") from None
    if b"\0" in encoded or len(encoded) > 4096:
        raise ValueError(f"{path[:100]!r} cannot be a path: it has a NUL character, or more than 4,096 bytes")
    base = os.path.realpath(workspace)
    real = os.path.realpath(Path(base, path))
    # Behind a loop of links, realpath leaves links unresolved: only a path that stays as it is has none.
    if os.path.realpath(real) != real or not (real == base or real.startswith(base.rstrip("/") + "/")):
        raise OutsideWorkspace(f"{path!r} leads outside the workspace; give a path relative to it")
    return Path(real)


def matches_glob(path: str, pattern: str) -> bool:
    """Whether a relative path fits a pattern: `*` and `?` stay within a name, `**` is any number of folders.

    A pattern without `/` is matched against the last name alone. No pattern makes it slow.
    """
    names, parts = path.split("/"), pattern.removeprefix("./").split("/")
    if "/" not in pattern:
        return fnmatchcase(names[-1], pattern)
    reached = _past_stars(parts, {0})
    for name in names:
        taken = set()
        for at in reached - {len(parts)}:
            if parts[at] == "**":
                taken.add(at)
            elif fnmatchcase(name, parts[at]):
                taken.add(at + 1)
        reached = _past_stars(parts, taken)
    return len(parts) in reached


def _past_stars(parts: Sequence[str], reached: set[int]) -> set[int]:
    """The positions in a pattern that are reached when each `**` may also stand for no folder."""
    every = set(reached)
    for at in reached:
        while at < len(parts) and parts[at] == "**":
            at += 1
            every.add(at)
    return every

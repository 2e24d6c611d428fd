"""Lexical normalisation of paths for comparison: `docs/../src/app.py` becomes `src/app.py`.

A tool with a `WorkspacePath` parameter receives the normalised path, and the policy judges that path. For other tools,
the variable `paths` of a condition holds the normalised form of each argument.
"""

from typing import Annotated, Any

from pydantic import AfterValidator

LONGEST = 4_096
"""Maximum length of a path in characters; Linux allows no longer one."""

MOST = 300
"""Maximum number of paths in one list."""


def normalised(path: str) -> str:
    """Remove `.`, `..` and empty names from a path, lexically; an empty result becomes `.`.

    A relative path that leaves its starting folder begins with `..`.
    """
    absolute = path.startswith("/")
    names: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name != "..":
            names.append(name)
        elif names and names[-1] != "..":
            names.pop()
        elif not absolute:  # the root's parent is the root
            names.append(name)
    return "/" * absolute + "/".join(names) or "."


def in_workspace(path: str, workspace: str) -> str:
    """Return the normalised path relative to a folder; absolute, or beginning with `..`, if it lies outside."""
    base = normalised(workspace)
    whole = normalised(path if path.startswith("/") else f"{base}/{path}")
    if whole == base:
        return "."
    folder = base.rstrip("/") + "/"
    return whole.removeprefix(folder) if whole.startswith(folder) else normalised(path)


def is_outside(path: str) -> bool:
    """Whether a path returned by `in_workspace` lies outside the workspace."""
    return path.startswith(("/", "../")) or path == ".."


def paths_in(arguments: Any, workspace: str) -> dict[str, Any]:
    """Return the arguments of a call that could be paths, normalised: strings and lists of strings.

    Oversized values are omitted. A condition that names an omitted one cannot be evaluated, so it fails closed.
    """
    if not isinstance(arguments, dict):
        return {}
    paths: dict[str, Any] = {}
    for name, value in arguments.items():
        if _may_be_path(value):
            paths[name] = in_workspace(value, workspace)
        elif isinstance(value, list) and len(value) <= MOST and all(map(_may_be_path, value)):
            paths[name] = [in_workspace(each, workspace) for each in value]
    return paths


def _may_be_path(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _checked(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path cannot contain a NUL character")
    return normalised(path)


WorkspacePath = Annotated[str, AfterValidator(_checked)]
"""Type of a parameter that holds a path in the workspace; normalised before the policy judges the call."""

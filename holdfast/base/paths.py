"""Paths as they are compared: normalised by their text alone, so that `docs/../src/app.py` is `src/app.py`.

A tool that takes a `WorkspacePath` is given the normalised path, and a policy judges it. For other tools, a condition
has the variable `paths`, which holds the same of each argument.
"""

from typing import Annotated, Any

from pydantic import AfterValidator

LONGEST = 4_096
"""Bytes of a path: what is longer names no file."""

MOST = 300
"""Paths in one list."""


def normalised(path: str) -> str:
    """The path without `.`, `..` and empty names, as far as its text says it; `.` for none at all.

    A relative path that leaves the folder it starts in begins with `..`.
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
    """The normalised path relative to a folder; absolute, or beginning with `..`, where it names a place outside."""
    base = normalised(workspace)
    whole = normalised(path if path.startswith("/") else f"{base}/{path}")
    if whole == base:
        return "."
    folder = base.rstrip("/") + "/"
    return whole.removeprefix(folder) if whole.startswith(folder) else normalised(path)


def is_outside(path: str) -> bool:
    """Whether a path of `in_workspace` is outside."""
    return path.startswith(("/", "../")) or path == ".."


def paths_in(arguments: Any, workspace: str) -> dict[str, Any]:
    """A call's arguments that could be paths, as such: texts, and lists of texts; too long ones are left out.

    A condition that names one that is left out has no answer, and so fails closed.
    """
    if not isinstance(arguments, dict):
        return {}
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if _may_be_path(value):
            found[name] = in_workspace(value, workspace)
        elif isinstance(value, list) and len(value) <= MOST and all(map(_may_be_path, value)):
            found[name] = [in_workspace(each, workspace) for each in value]
    return found


def _may_be_path(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _checked(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path has no NUL character")
    return normalised(path)


WorkspacePath = Annotated[str, AfterValidator(_checked)]
"""A parameter's type for paths in the workspace: text, normalised before the policy judges the call."""

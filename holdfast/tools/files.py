"""Which files of the workspace a tool reads and writes, as `@tool(files=…)` declares them."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import ToolSignatureError


def files_of(files: Sequence[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that a call with these arguments reads and writes.

    Args:
        files: Paths, or `{parameter}` for the path, or the paths, that an argument names.
        arguments: By parameter name.
    """
    found: list[str] = []
    for each in files:
        value = arguments.get(each[1:-1]) if each.startswith("{") else each
        values = value if isinstance(value, list | tuple) else (value,)
        found += [str(path) for path in values if path is not None]
    return tuple(found)


def check_files(name: str, files: Sequence[str] | None, *, parameters: Sequence[str]) -> None:
    """Refuse a declaration that names no files, or none of the tool's parameters.

    Raises:
        ToolSignatureError: It does; the message says what to write.
    """
    if isinstance(files, str):
        raise ToolSignatureError(f"tool {name!r}: files={files!r} is one text; write a tuple: files=({files!r},)")
    for each in files or ():
        if "{" in each and each not in (f"{{{parameter}}}" for parameter in parameters):
            raise ToolSignatureError(
                f"tool {name!r}: files={each!r} is neither a path nor a parameter in braces; "
                f"it has the parameters: {', '.join(parameters) or 'none'}"
            )

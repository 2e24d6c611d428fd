"""A tool's declarations beyond its arguments: the resources that it needs and the workspace files that it touches.

    @tool(effect="read")
    async def open_tickets(customer: str, pool: Resource[Pool]) -> list[str]: ...

1. A tool requests a resource, such as a database pool, by the type of a parameter. A provider of the catalog opens one
   for each worker process. The parameter is not part of the schema that the LLM sees, of the log, or of the agent's
   hash, so a test may substitute another object.
2. `@tool(files=…)` declares the files that a tool reads and writes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from holdfast.core.tools.signatures import hints_of
from holdfast.errors import ToolSignatureError

T = TypeVar("T")


class _Marker:
    """Marks the type of a parameter that Holdfast, not the LLM, supplies."""


_MARKER = _Marker()

Resource = Annotated[T, _MARKER]
"""`pool: Resource[Pool]` is a parameter that gets the catalog's resource of type `Pool`. Type checkers see a `Pool`."""


def resource_type(hint: Any) -> Any:
    """Return the type of the resource that an annotation requests; None if it requests none."""
    return get_args(hint)[0] if get_origin(hint) is Annotated and _MARKER in get_args(hint)[1:] else None


def resources_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each resource that a function requests, by parameter name.

    Raises:
        ToolSignatureError: A resource is part of a larger type, which the LLM would have to write.
    """
    resources: dict[str, Any] = {}
    for name, hint in hints_of(function).items():
        if (kind := resource_type(hint)) is not None:
            resources[name] = kind
        elif _holds_marker(hint):
            raise ToolSignatureError(
                f"parameter {name!r}: Resource[…] must be the whole annotation, not part of {hint}"
            )
    return resources


def _holds_marker(hint: Any) -> bool:
    return resource_type(hint) is not None or any(map(_holds_marker, get_args(hint)))


def files_of(files: Sequence[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that a call with these arguments reads and writes.

    Args:
        files: Paths, or `{parameter}` for the path, or list of paths, in an argument.
        arguments: By parameter name.
    """
    paths: list[str] = []
    for each in files:
        value = arguments.get(each[1:-1]) if each.startswith("{") else each
        values = value if isinstance(value, list | tuple) else (value,)
        paths += [str(path) for path in values if path is not None]
    return tuple(paths)


def check_files(name: str, files: Sequence[str] | None, *, parameters: Sequence[str]) -> None:
    """Reject a declaration of files that is not a sequence of paths and of the tool's parameters.

    Raises:
        ToolSignatureError: The declaration is invalid; the message describes the correct form.
    """
    if isinstance(files, str):
        raise ToolSignatureError(f"tool {name!r}: files={files!r} is one text; write a tuple: files=({files!r},)")
    for each in files or ():
        if "{" in each and each not in (f"{{{parameter}}}" for parameter in parameters):
            raise ToolSignatureError(
                f"tool {name!r}: files={each!r} is neither a path nor a parameter in braces; "
                f"it has the parameters: {', '.join(parameters) or 'none'}"
            )

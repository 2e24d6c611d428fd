"""Signatures and source locations of functions that users supply: plain ones, methods, `functools.partial` objects."""

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partial objects, which has a name, a docstring and annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations of a function by parameter name, including `return`.

    Raises:
        NameError: An annotation does not resolve in the module of the function.
    """
    return get_type_hints(plain(function), include_extras=True)


def annotated_text(hint: Any) -> str:
    """Return the description in an annotated type, `Annotated[int, "the first summand"]`; empty if it has none.

    A union, such as one with None, may have it in one of its types. `Doc("…")` counts like a bare string, and
    pydantic's `Field(description=…)` takes precedence over both.
    """
    if get_origin(hint) in (Union, UnionType):
        return next((text for each in get_args(hint) if (text := annotated_text(each))), "")
    if get_origin(hint) is not Annotated:
        return ""
    inner, *marks = get_args(hint)
    if any(getattr(mark, "description", None) for mark in marks):
        return ""
    texts = [mark if isinstance(mark, str) else getattr(mark, "documentation", "") for mark in marks]
    return next((text for text in texts if isinstance(text, str) and text), "") or annotated_text(inner)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that a caller must still pass: without `self` and those that a partial object binds."""
    bound: set[str] = set()
    for each in _partials(function):
        bound |= each.keywords.keys()
    return [each for each in inspect.signature(function).parameters.values() if each.name not in bound]


def _partials(function: Callable[..., Any]) -> list[functools.partial[Any]]:
    partials = []
    while isinstance(function, functools.partial):
        partials.append(function)
        function = function.func
    return partials


def source_location(function: Callable[..., Any]) -> str:
    """Return the file and line of a function, as `app/tools.py:12`; empty if it is not written in Python."""
    code = getattr(inspect.unwrap(plain(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def with_location(function: Callable[..., Any], message: str) -> str:
    """Put the file and line of a function before a message about it."""
    location = source_location(function)
    return f"{location}: {message}" if location else message

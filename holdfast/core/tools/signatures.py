"""Functions that users supply (plain ones, bound methods, `functools.partial` objects): their signatures, and their
location in the source.
"""

import functools
import inspect
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that partial objects wrap: the one with a name, a docstring and annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, resolved, by parameter name; `return` included.

    Raises:
        NameError: One does not resolve where the function is defined.
    """
    return get_type_hints(plain(function), include_extras=True)


def annotated_text(hint: Any) -> str:
    """Return the text that describes an annotated type, `Annotated[int, "the first summand"]`; empty if none does.

    A union, such as that with None, may have it in one of its types. `Doc("…")` counts like a bare text, and pydantic's
    `Field(description=…)` takes precedence over both.
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
    """Return the parameters that a caller still has to give: without `self`, and without what a partial object has."""
    given: set[str] = set()
    for each in _partials(function):
        given |= each.keywords.keys()
    return [each for each in inspect.signature(function).parameters.values() if each.name not in given]


def _partials(function: Callable[..., Any]) -> list[functools.partial[Any]]:
    found = []
    while isinstance(function, functools.partial):
        found.append(function)
        function = function.func
    return found


def place(function: Callable[..., Any]) -> str:
    """Return file and line of a function, as `app/tools.py:12`; empty for one that is not written in Python."""
    code = getattr(inspect.unwrap(plain(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def placed(function: Callable[..., Any], message: str) -> str:
    """Return a message that begins with file and line of the function that it is about."""
    where = place(function)
    return f"{where}: {message}" if where else message

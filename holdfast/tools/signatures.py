"""The signatures of functions that users supply: plain ones, bound methods, and `functools.partial` objects."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


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

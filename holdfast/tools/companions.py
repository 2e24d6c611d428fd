"""The functions beside a tool's own: `check` and `undo`. What they take is checked when the tool is defined.

Both run only after something went wrong: a mistake in their signature would show when it is needed least.
"""

import inspect
from collections.abc import Callable, Collection
from typing import Any, get_type_hints

from holdfast.errors import ToolSignatureError
from holdfast.tools.places import place


def check_companion(
    tool: str, role: str, function: Callable[..., Any] | None, *, parameters: Collection[str], context: type
) -> None:
    """Refuse a check or an undo that cannot be called with the context and the tool's arguments.

    Args:
        tool: The tool's name.
        role: `check` or `undo`.
        function: The function; None for a tool without one.
        parameters: The names of the tool's parameters.
        context: The class of the context.

    Raises:
        ToolSignatureError: The message has the function's file and line, and the parameter.
    """
    if function is None:
        return
    if not inspect.isroutine(function):
        raise ToolSignatureError(f"tool {tool!r}: {role}={function!r} is not a function")
    who = f"tool {tool!r}: {role}={function.__name__}" + (f" ({where})" if (where := place(function)) else "")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolSignatureError(f"{who} is a generator; it returns one result")
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise ToolSignatureError(f"{who}: {error}; its annotations must resolve where it is defined") from None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        where = f"{who}, parameter {parameter.name!r}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolSignatureError(f"{where} cannot be passed by name")
        known = parameter.name in parameters or hints.get(parameter.name) is context
        if not known and parameter.default is parameter.empty:
            raise ToolSignatureError(
                f"{where} is not a parameter of the tool ({', '.join(parameters) or 'it has none'}); "
                f"the context is recognised by its annotation: `context: {context.__name__}`"
            )

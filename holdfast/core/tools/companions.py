"""The functions beside a tool's own: `check` and `undo`. What they take is checked when the tool is defined.

Both run only after something went wrong: a mistake in their signature would show when it is needed least.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast.core.tools.resources import resources_of
from holdfast.core.tools.secrets import is_secret_name
from holdfast.core.tools.signatures import hints_of, parameters_of, place, plain
from holdfast.errors import ToolSignatureError


def check_companion(
    tool: str, role: str, function: Callable[..., Any] | None, *, parameters: Collection[str], context: type
) -> None:
    """Refuse a check or an undo that cannot be called with the context, resources and the tool's arguments.

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
    if not inspect.isroutine(plain(function)):
        raise ToolSignatureError(f"tool {tool!r}: {role}={function!r} is not a function")
    who = f"tool {tool!r}: {role}={plain(function).__name__}" + (f" ({where})" if (where := place(function)) else "")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolSignatureError(f"{who} is a generator; it returns one result")
    try:
        hints, resources = hints_of(function), resources_of(function)
    except NameError as error:
        raise ToolSignatureError(f"{who}: {error}; its annotations must resolve where it is defined") from None
    except ToolSignatureError as error:
        raise ToolSignatureError(f"{who}, {error}") from None
    for parameter in parameters_of(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        where = f"{who}, parameter {parameter.name!r}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolSignatureError(f"{where} cannot be passed by name")
        filled = hints.get(parameter.name) is context or parameter.name in resources
        known = filled or parameter.name in parameters
        if not known and parameter.default is parameter.empty:
            raise ToolSignatureError(
                f"{where} is not a parameter of the tool ({', '.join(parameters) or 'it has none'}); "
                f"the context is recognised by its annotation: `context: {context.__name__}`"
            )


def check_secrets(
    name: str, secrets: Sequence[str], functions: Sequence[Callable[..., Any] | None], *, context: type
) -> None:
    """Refuse secrets that are no environment variables, or that no function of the tool can read.

    Args:
        name: The tool's name.
        secrets: What it declares.
        functions: The tool's function, check and undo.
        context: The class of the context.

    Raises:
        ToolSignatureError: The message says what to write.
    """
    if isinstance(secrets, str) or not all(is_secret_name(secret) for secret in secrets):
        raise ToolSignatureError(
            f"tool {name!r}: secrets={secrets!r} does not name environment variables; "
            'write a tuple of names: secrets=("STRIPE_KEY",)'
        )
    if secrets and not any(context in hints_of(each).values() for each in functions if each):
        raise ToolSignatureError(
            f"tool {name!r} declares secrets, but none of its functions can read them; add `context: ToolContext`"
        )

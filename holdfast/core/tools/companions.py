"""The companion functions of a tool, `check`, `undo` and `preview`, and its secrets: their declarations are checked at
definition.

A check and an undo run only after something went wrong, which is the worst time to discover a mistake in a signature.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast.core.tools.definition import read_hints
from holdfast.core.tools.secrets import is_secret_name
from holdfast.core.tools.signatures import hints_of, parameters_of, plain, source_location
from holdfast.errors import ToolSignatureError


def check_companion(
    tool: str, role: str, function: Callable[..., Any] | None, *, parameters: Collection[str], context: type
) -> None:
    """Reject a companion that cannot be called with the context, resources and the tool's arguments.

    Args:
        tool: The tool's name.
        role: `check`, `undo` or `preview`.
        function: The function, if the tool has one.
        parameters: The names of the tool's parameters.
        context: The class of the context.

    Raises:
        ToolSignatureError: The message has the function's file and line, and the parameter.
    """
    if function is None:
        return
    if not inspect.isroutine(plain(function)):
        raise ToolSignatureError(f"tool {tool!r}: {role}={function!r} is not a function")
    location = source_location(function)
    subject = f"tool {tool!r}: {role}={plain(function).__name__}" + (f" ({location})" if location else "")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolSignatureError(f"{subject} is a generator; it returns one result")
    hints, given = read_hints(subject, function)
    for parameter in parameters_of(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        prefix = f"{subject}, parameter {parameter.name!r}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolSignatureError(f"{prefix} cannot be passed by name")
        filled = hints.get(parameter.name) is context or parameter.name in given
        known = filled or parameter.name in parameters
        if not known and parameter.default is parameter.empty:
            raise ToolSignatureError(
                f"{prefix} is not a parameter of the tool ({', '.join(parameters) or 'it has none'}); "
                f"the context is recognised by its annotation: `context: {context.__name__}`"
            )


def check_secrets(
    name: str, secrets: Sequence[str], functions: Sequence[Callable[..., Any] | None], *, context: type
) -> None:
    """Reject secrets that are not names of environment variables, or that no function of the tool can read.

    Args:
        name: The tool's name.
        secrets: The names that it declares.
        functions: The tool's function and its companions.
        context: The class of the context.

    Raises:
        ToolSignatureError: The declaration is invalid; the message describes the correct form.
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

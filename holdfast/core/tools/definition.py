"""Reads a function that becomes a tool, and checks what `@tool` declares about it, at definition."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import docstring_parser
from pydantic import BaseModel, Field
from pydantic_core import PydanticUndefined

from holdfast.core.tools.effects import Effect
from holdfast.core.tools.not_done import Exceptions
from holdfast.core.tools.resources import resources_of
from holdfast.core.tools.schemas import Fields
from holdfast.core.tools.signatures import annotated_text, hints_of, parameters_of, plain
from holdfast.core.tools.spec import LONGEST_SETTLING
from holdfast.core.tools.typed_context import contexts_of
from holdfast.errors import ToolSignatureError


def check_callable(function: Callable[..., Any]) -> None:
    """Reject what is neither a function, a method of an instance nor a partial object."""
    if isinstance(function, staticmethod | classmethod):
        raise ToolSignatureError(f"{function!r} is no method yet; make a tool of it outside of its class")
    if not inspect.isroutine(plain(function)):
        raise ToolSignatureError(
            f"{function!r} is not a function; make a tool of a function, an instance's method or a functools.partial"
        )


def read_effect(name: str, effect: Effect | str, check: Callable[..., Any] | None) -> Effect:
    """Return the effect class that a tool declares; `verifiable` and a check belong together."""
    try:
        kind = Effect(effect)
    except ValueError:
        known = ", ".join(Effect)
        raise ToolSignatureError(f"tool {name!r}: effect {effect!r} is not one of {known}") from None
    if (kind is Effect.VERIFIABLE) != (check is not None):
        raise ToolSignatureError(
            f"tool {name!r}: effect 'verifiable' and check=… belong together; "
            f"here the effect is {kind.value!r} and check is {'missing' if check is None else 'given'}"
        )
    return kind


def check_doubts(name: str, effect: Effect, settles_within: float | None, not_done_on: Exceptions) -> None:
    """Reject a settling time or exceptions that a tool of this effect class cannot have."""
    if effect is Effect.READ and (settles_within is not None or not_done_on):
        raise ToolSignatureError(f"tool {name!r}: a read has no effect, so leave out settles_within and not_done_on")
    number = isinstance(settles_within, int | float) and not isinstance(settles_within, bool)
    if settles_within is not None and not (number and 0 <= settles_within <= LONGEST_SETTLING):
        raise ToolSignatureError(
            f"tool {name!r}: settles_within={settles_within!r} is not a number of seconds from 0 to "
            f"{LONGEST_SETTLING:,} (a week)"
        )
    if not isinstance(not_done_on, tuple | list) or not all(
        isinstance(each, type) and issubclass(each, BaseException) for each in not_done_on
    ):
        raise ToolSignatureError(
            f"tool {name!r}: not_done_on={not_done_on!r} is not a tuple of exception types; "
            "write not_done_on=(ValueError,)"
        )


def checked_writes(name: str, writes: Sequence[str], models: Sequence[type[BaseModel]]) -> tuple[str, ...]:
    """Return the fields of the context that a tool changes; reject those that no model of its context has."""
    known = {each for model in models for each in model.model_fields}
    if isinstance(writes, str) or not all(isinstance(each, str) for each in writes):
        raise ToolSignatureError(f'tool {name!r}: writes={writes!r} is no tuple of fields: writes=("verified",)')
    if unknown := [each for each in writes if each not in known]:
        hint = f"its fields are {', '.join(sorted(known))}" if known else "add a parameter `customer: Context[MODEL]`"
        raise ToolSignatureError(
            f"tool {name!r}: writes={tuple(writes)!r} names {unknown[0]!r}, which is no field of its context; {hint}"
        )
    return tuple(dict.fromkeys(writes))


_SECTION = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Attributes):[ \t]*(?:\n|\Z)")
"""Matches the beginning of a docstring without a summary."""


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a function's description, and those of its parameters by name."""
    text = inspect.getdoc(function) or ""
    if bare := _SECTION.match(text):
        # The parser would mistake the section for the summary; on the first line, the section would lose its indent.
        text = "\n".join([function.__name__, "", inspect.cleandoc(f"\n{function.__doc__}")])
    docstring = docstring_parser.parse(text)
    parts = (None if bare else docstring.short_description, docstring.long_description)
    params = {p.arg_name: p.description or "" for p in docstring.params}
    return "\n\n".join(part for part in parts if part), params


def read_hints(subject: str, function: Callable[..., Any]) -> tuple[dict[str, Any], set[str]]:
    """Return a function's annotations by parameter, and the parameters that get a resource or the context of the run.

    Args:
        subject: The function, for messages.
        function: A function of a tool.

    Raises:
        ToolSignatureError: An annotation does not resolve, or a resource or a context is part of a larger type.
    """
    try:
        return hints_of(function), {*resources_of(function), *contexts_of(function)}
    except NameError as error:
        raise ToolSignatureError(f"{subject}: {error}; its annotations must resolve where it is defined") from None
    except ToolSignatureError as error:
        raise ToolSignatureError(f"{subject}, {error}") from None


def fields_of(name: str, function: Callable[..., Any], descriptions: dict[str, str], *, context: type) -> Fields:
    """Read the parameters of a function that the LLM fills in.

    Args:
        name: The tool's name.
        function: The function.
        descriptions: The parameters' descriptions by name.
        context: The class of the context.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolSignatureError(f"tool {name!r} is a generator; a tool returns one result")
    hints, filled = read_hints(f"tool {name!r}", function)
    fields: Fields = {}
    for parameter in parameters_of(function):
        prefix = f"tool {name!r}, parameter {parameter.name!r}"
        if parameter.name == "self" and "self" not in hints:
            raise ToolSignatureError(
                f"{prefix}: this is a method of a class; make a tool of an instance's: tool(effect=…)(service.{name})"
            )
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolSignatureError(f"{prefix}: a tool can have only named parameters, no *args, **kwargs or '/'")
        if parameter.name not in hints:
            raise ToolSignatureError(f"{prefix} has no type annotation, which its schema requires")
        if hints[parameter.name] is context or parameter.name in filled:
            continue
        default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
        # An explicit None would override the description of an Annotated type.
        text = descriptions.get(parameter.name) or annotated_text(hints[parameter.name])
        described = {"description": text} if text else {}
        field: Any = Field(default, alias=parameter.name, **described)  # type: ignore[call-overload]
        fields[f"p{len(fields)}"] = (hints[parameter.name], field)
    return fields

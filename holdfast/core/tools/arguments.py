"""Arguments of tool calls: parsed once into the canonical JSON that is judged, shown, signed, recorded and run.

1. The tool's own pydantic model parses the LLM's text, leniently (`"5"` for an integer) and with defaults. If it
   rejects the text, it parses a corrected one, if only one is possible (`holdfast.core.tools.loose_arguments`).
2. The values are written as canonical JSON, which replaces the LLM's text as the arguments of the call. Integers of any
   size are written in full: digests of calls cover this text, so two ids beyond 2^53 must not become the same number.
3. Parsing that JSON again must return the same values and the same JSON; otherwise the call never runs. RFC 8785 writes
   5.0 as 5, so a parameter of a type that accepts both gets an integer.
"""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from holdfast.core.base.canonical import MAX_DEPTH, exact_json, too_deep
from holdfast.core.tools.loose_arguments import parse_loosely
from holdfast.errors import NotPortable

_NOT_FAITHFUL = (
    "{place} changes when it is written as JSON and read again, so the call would run with other arguments than the "
    "policy judged. Other arguments will not help: the developer of the tool must give this parameter a plain type"
)

REASON_CHARS = 1_000
"""Maximum length of a validator's error message that is shown."""


class ArgumentsInvalid(Exception):
    """The LLM's arguments do not fit the tool; the message explains that to the LLM."""


@dataclass(frozen=True)
class Arguments:
    """The parsed arguments of a call."""

    values: dict[str, Any]
    """The values by parameter name, in the annotated types."""
    text: str
    """The same values as canonical JSON: all parameters, defaults included."""


def canonical_arguments(text: str) -> str:
    """Return arguments in canonical form, without using the tool's model; verbatim if they are not JSON.

    Text with lone surrogates, NaN, numbers beyond the range of a double, integers with thousands of digits or deep
    nesting does not count as JSON here.
    """
    try:
        value = from_json(text.strip() or "{}", allow_inf_nan=False)
        if too_deep(value):
            return text
        return exact_json(value)
    except ValueError:
        return text


def read_arguments(model: type[BaseModel], text: str) -> Arguments:
    """Parse the arguments of a call.

    Args:
        model: The tool's parameters, with their names as aliases.
        text: JSON; empty for no arguments.

    Raises:
        ArgumentsInvalid: They are not JSON, do not fit, or change in a JSON round trip; the message has the path of
            each problem.
    """
    parsed = _parse(model, text.strip() or "{}")
    canonical_text = _canonical_text(parsed)
    if canonical_text != text:
        parsed = _parse_again(parsed, canonical_text)
    # These values were parsed from the text that is recorded, so the call gets exactly what the log has.
    return Arguments(
        {field.alias or name: getattr(parsed, name) for name, field in type(parsed).model_fields.items()},
        canonical_text,
    )


def _parse(model: type[BaseModel], text: str) -> BaseModel:
    """Parse the LLM's text or, if the tool's model rejects it, its only possible correction.

    Raises:
        ArgumentsInvalid: The model rejects both; the message is about the LLM's text.
    """
    try:
        return _validated(model, text)
    except ValidationError as error:
        corrected = parse_loosely(text, lambda candidate: _validated(model, candidate))
        if corrected is None:
            raise ArgumentsInvalid(_explain(error, model)) from None
        return corrected


def _parse_again(parsed: BaseModel, text: str) -> BaseModel:
    """Parse the canonical JSON of parsed arguments.

    Raises:
        ArgumentsInvalid: The result has other values, or other JSON.
    """
    try:
        again = _validated(type(parsed), text)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"]) or "a value"
        raise ArgumentsInvalid(_NOT_FAITHFUL.format(place=place)) from None
    for name, field in type(parsed).model_fields.items():
        if not _same(getattr(parsed, name), getattr(again, name)):
            raise ArgumentsInvalid(_NOT_FAITHFUL.format(place=field.alias or name))
    if _canonical_text(again) != text:
        raise ArgumentsInvalid(_NOT_FAITHFUL.format(place="a value"))
    return again


def _validated(model: type[BaseModel], text: str) -> BaseModel:
    """Validate JSON. A validator of a user's type may raise anything; an uncaught exception would repeat the LLM call
    that wrote the arguments, and its cost, again and again.
    """
    try:
        return model.model_validate_json(text)
    except (ValidationError, MemoryError):  # running out of memory says nothing about the arguments
        raise
    except RecursionError:
        raise ArgumentsInvalid("they are nested too deeply") from None
    except Exception as error:
        raise ArgumentsInvalid(f"a validator of their type does not accept them ({_reason(error)})") from None


def _canonical_text(parsed: BaseModel) -> str:
    try:
        # `round_trip` omits computed fields, which cannot be parsed again.
        dumped = parsed.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
        dumped = _sets_in_order(parsed, dumped)
        if too_deep(dumped):
            raise ArgumentsInvalid(f"they are nested more than {MAX_DEPTH} levels deep")
        return exact_json(dumped)
    except NotPortable as error:
        raise ArgumentsInvalid(f"they hold {error}") from None
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ArgumentsInvalid(f"{_NOT_FAITHFUL.format(place='a value')} ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Describe an error by its message, or only by its type if the message is long. If it were cut or put on one line,
    a secret in it could escape redaction.
    """
    message = f"{type(error).__name__}: {error}"
    return message if len(message) <= REASON_CHARS else type(error).__name__


def _sets_in_order(value: Any, dumped: Any) -> Any:
    """Sort the items of sets in a dumped value, because their order differs between processes."""
    match value, dumped:
        case ((set() | frozenset()), list()):
            return sorted(map(_sets_in_order, value, dumped), key=exact_json)
        case ((list() | tuple()), list()):
            return list(map(_sets_in_order, value, dumped))
        case dict(), dict():
            return dict(zip(dumped, map(_sets_in_order, value.values(), dumped.values()), strict=True))
        case BaseModel(), dict():
            keys = {name: f.serialization_alias or f.alias or name for name, f in type(value).model_fields.items()}
            inner = {keys[name]: getattr(value, name) for name in keys if keys[name] in dumped}
            return dumped | {key: _sets_in_order(inner[key], dumped[key]) for key in inner}
        case _, dict() if dataclasses.is_dataclass(value):
            return {name: _sets_in_order(getattr(value, name, None), each) for name, each in dumped.items()}
    return dumped


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, types included: `1` and `True` differ; `1` and `1.0`, the same in JSON, do not."""
    if _kind(one) is not _kind(other):
        return False
    match one:
        case BaseModel():
            return _same(one.__dict__, other.__dict__) and _same(one.__pydantic_extra__, other.__pydantic_extra__)
        case dict():
            return {(_kind(key), key) for key in one} == {(_kind(key), key) for key in other} and all(
                _same(value, other[key]) for key, value in one.items()
            )
        case list() | tuple():
            return len(one) == len(other) and all(map(_same, one, other))
        case set() | frozenset():
            return bool(one == other) and Counter(map(_kind, one)) == Counter(map(_kind, other))
        case float():
            return one == _as_float(other)
    if hasattr(one, "__dict__") and not any("__eq__" in vars(each) for each in type(one).__mro__[:-1]):
        return _same(vars(one), vars(other))  # `==` would compare identity
    return bool(one == other)


def _kind(value: Any) -> type:
    """Return the type of a value; integers count as floats."""
    return float if type(value) is int else type(value)


def _as_float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    names = {name: field.alias or name for name, field in model.model_fields.items()}
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        first, *rest = item["loc"] or ("",)
        if first not in names.values():
            first = names.get(str(first), first)  # for a default, pydantic gives the field's name
        place = ".".join(str(part) for part in (first, *rest))
        problems.append(f"{place}: {item['msg']}" if place else item["msg"])
    return "; ".join(problems)

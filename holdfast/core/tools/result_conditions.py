"""What a poll waits for in a tool's result: a small closed form, without expressions to parse or to match against.

The LLM writes a condition, or a person who changes it: what is wrong with it is a sentence for the LLM.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from holdfast.core.base.canonical import canonical, exact_json
from holdfast.core.base.models import Frozen
from holdfast.errors import NotPortable

MATCH_FIELDS = 20
"""Fields that a wait may compare."""

MATCH_BYTES = 2_000
"""Bytes of them with their values, as JSON."""

TEXT_CHARS = 500
"""Characters of a text that a result is searched for."""

Matched = str | int | float | bool | None
"""A value that a field can be compared with."""

_FORMS = '{"contains": "text"}, {"lacks": "text"}, {"equals": {"field": value}} or {"changes": true}'


class ResultCondition(Frozen):
    """What the result of a tool has to be like: exactly one field is set."""

    contains: str = ""
    """It contains this text."""
    lacks: str = ""
    """It does not contain this text."""
    equals: dict[str, Matched] = {}
    """It is a JSON object that has these fields, with these values."""
    changes: bool = False
    """It differs from the first result."""

    @property
    def words(self) -> str:
        """The condition in a few words."""
        if self.changes:
            return "changes"
        if self.equals:
            return f"has {exact_json(self.equals)}"
        return f"contains {exact_json(self.contains)}" if self.contains else f"lacks {exact_json(self.lacks)}"

    @property
    def needs_all(self) -> bool:
        """Whether it can be evaluated on a complete result only."""
        return bool(self.lacks or self.equals)

    def fulfilled_by(self, text: str, *, changed: bool) -> bool:
        """Return whether a result fulfils the condition.

        Args:
            text: The result.
            changed: Whether it differs from the first result.
        """
        if self.changes:
            return changed
        if self.equals:
            try:
                given = from_json(text)
            except ValueError:
                return False
            return isinstance(given, dict) and matches(self.equals, given)
        return self.contains in text if self.contains else self.lacks not in text


def read_condition(given: Any) -> ResultCondition:
    """Read a condition.

    Raises:
        ValueError: It is none; the message says what it should be.
    """
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(f"condition: give exactly one of {_FORMS}")
    ((form, value),) = given.items()
    match form:
        case "contains" | "lacks":
            if not isinstance(value, str) or not 0 < len(value) <= TEXT_CHARS:
                raise ValueError(f"condition.{form}: give a text of 1 to {TEXT_CHARS} characters")
            return ResultCondition(contains=value) if form == "contains" else ResultCondition(lacks=value)
        case "equals":
            if not value:
                raise ValueError("condition.equals: give at least one field with its value")
            return ResultCondition(equals=read_match(value, name="condition.equals"))
        case "changes":
            if value is not True:
                raise ValueError('condition.changes: write {"changes": true}')
            return ResultCondition(changes=True)
        case _:
            raise ValueError(f"condition: there is no {str(form)[:40]!r}; give exactly one of {_FORMS}")


def read_match(given: Any, *, name: str) -> dict[str, Matched]:
    """Read the fields that an object has to have, with their values; None for no field.

    Args:
        given: What was written.
        name: The parameter's name, for messages.

    Raises:
        ValueError: They are no such fields, or too many.
    """
    if given is None:
        return {}
    if not isinstance(given, dict) or any(isinstance(each, dict | list) for each in given.values()):
        raise ValueError(f"{name}: give an object of field → value; a value is text, a number, true, false or null")
    if len(given) > MATCH_FIELDS:
        raise ValueError(f"{name}: it has {len(given)} fields; {MATCH_FIELDS} are the most")
    try:
        text = canonical(given)
    except NotPortable as error:
        raise ValueError(f"{name}: it holds {error}") from None
    if len(text) > MATCH_BYTES:
        raise ValueError(f"{name}: it has {len(text):,} bytes as JSON; {MATCH_BYTES:,} are the most")
    read: dict[str, Matched] = from_json(text)  # as a later Temporal run will read it
    return read


def matches(fields: Mapping[str, Matched], given: Mapping[str, Any]) -> bool:
    """Return whether an object has these fields with these values; it may have others."""
    return all(name in given and _equal(given[name], value) for name, value in fields.items())


def _equal(one: Any, other: Matched) -> bool:
    """Whether two values are the same JSON: `true` is not 1, but 1.0 is."""
    try:
        return exact_json(one) == exact_json(other)
    except (NotPortable, RecursionError):
        return False

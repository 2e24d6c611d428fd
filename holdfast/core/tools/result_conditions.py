"""Conditions on a tool's result, for polls: a small closed form, without expressions to parse or patterns to match.

The LLM, or a person who edits its call, writes a condition. So its errors are sentences for the LLM.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from holdfast.core.base.canonical import canonical, exact_json
from holdfast.core.base.models import Frozen
from holdfast.errors import NotPortable

MATCH_FIELDS = 20
"""Maximum number of fields that a wait may compare."""

MATCH_BYTES = 2_000
"""Maximum size of these fields and their values, as JSON."""

TEXT_CHARS = 500
"""Maximum length of a text to search a result for."""

Matched = str | int | float | bool | None
"""A value that a field can be compared with."""

_FORMS = '{"contains": "text"}, {"lacks": "text"}, {"equals": {"field": value}} or {"changes": true}'


class ResultCondition(Frozen):
    """A condition on the result of a tool; exactly one field is set."""

    contains: str = ""
    """The result contains this text."""
    lacks: str = ""
    """The result does not contain this text."""
    equals: dict[str, Matched] = {}
    """The result is a JSON object that has these fields, with these values."""
    changes: bool = False
    """The result differs from the first one."""

    @property
    def words(self) -> str:
        """A short description of the condition."""
        if self.changes:
            return "changes"
        if self.equals:
            return f"has {exact_json(self.equals)}"
        return f"contains {exact_json(self.contains)}" if self.contains else f"lacks {exact_json(self.lacks)}"

    @property
    def needs_all(self) -> bool:
        """Whether it can be evaluated only on a complete result."""
        return bool(self.lacks or self.equals)

    def fulfilled_by(self, text: str, *, changed: bool) -> bool:
        """Whether a result fulfils the condition.

        Args:
            text: The result.
            changed: Whether it differs from the first result.
        """
        if self.changes:
            return changed
        if self.equals:
            try:
                value = from_json(text)
            except ValueError:
                return False
            return isinstance(value, dict) and matches(self.equals, value)
        return self.contains in text if self.contains else self.lacks not in text


def read_condition(condition: Any) -> ResultCondition:
    """Parse a condition.

    Raises:
        ValueError: It is malformed; the message describes the valid forms.
    """
    if not isinstance(condition, dict) or len(condition) != 1:
        raise ValueError(f"condition: give exactly one of {_FORMS}")
    ((form, value),) = condition.items()
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


def read_match(fields: Any, *, name: str) -> dict[str, Matched]:
    """Parse the fields, with their values, that an object must have.

    Args:
        fields: The argument; None for no fields.
        name: The parameter's name, for messages.

    Raises:
        ValueError: The argument is malformed, or has too many fields.
    """
    if fields is None:
        return {}
    if not isinstance(fields, dict) or any(isinstance(each, dict | list) for each in fields.values()):
        raise ValueError(f"{name}: give an object of field → value; a value is text, a number, true, false or null")
    if len(fields) > MATCH_FIELDS:
        raise ValueError(f"{name}: it has {len(fields)} fields; {MATCH_FIELDS} are the most")
    try:
        text = canonical(fields)
    except NotPortable as error:
        raise ValueError(f"{name}: it holds {error}") from None
    if len(text) > MATCH_BYTES:
        raise ValueError(f"{name}: it has {len(text):,} bytes as JSON; {MATCH_BYTES:,} are the most")
    parsed: dict[str, Matched] = from_json(text)  # as a later Temporal run will read it
    return parsed


def matches(fields: Mapping[str, Matched], value: Mapping[str, Any]) -> bool:
    """Whether an object has these fields with these values; it may have others."""
    return all(name in value and _equal(value[name], expected) for name, expected in fields.items())


def _equal(one: Any, other: Matched) -> bool:
    """Whether two values are the same JSON: `true` is not 1, but 1.0 is."""
    try:
        return exact_json(one) == exact_json(other)
    except (NotPortable, RecursionError):
        return False

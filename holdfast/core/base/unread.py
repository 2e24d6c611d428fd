"""What stands in for a message that nobody can read: a payload that does not decode.

Anybody who reaches Temporal can send a payload of any form: encrypted with a key that nobody has, in an encoding that
does not exist, with bytes that are no JSON. An exception would fail the workflow task, and each of its retries. So what
only claims something decodes as `Unread`, which a run refuses like any other malformed message.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard


@dataclass(frozen=True)
class Unread:
    """Stands in for a value that could not be decoded."""

    UNREAD: ClassVar[bool] = True
    """Identifies the class: in Temporal's sandbox, workflow code has another copy of it."""

    why: str
    sent: bytes
    """The payload's data."""

    def __str__(self) -> str:
        return f"it cannot be read: {self.why}"


def is_unread(value: Any) -> TypeGuard[Unread]:
    """Whether `value` stands in for one that could not be decoded."""
    return getattr(type(value), "UNREAD", False) is True


def argument_of(values: Iterable[Any]) -> Any:
    """Return the argument that a message's handler uses: the first one, or None; `Unread` where any cannot be read."""
    values = list(values)
    return next(filter(is_unread, values), values[0] if values else None)

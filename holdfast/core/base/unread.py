"""A placeholder for a message whose payload does not decode.

Anybody with access to Temporal can send any payload: encrypted with an unknown key, in an encoding that does not exist,
or invalid JSON. An exception would fail the workflow task and each of its retries. So the payload of an untrusted
message decodes as `Unread` instead, and the run rejects it like any other malformed message.
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
    """Whether `value` is the placeholder for one that could not be decoded."""
    return getattr(type(value), "UNREAD", False) is True


def argument_of(values: Iterable[Any]) -> Any:
    """Return the argument that a message's handler uses: the first one, or None; `Unread` if any cannot be decoded."""
    values = list(values)
    return next(filter(is_unread, values), values[0] if values else None)

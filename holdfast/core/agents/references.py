"""An agent's references to tools and to other agents: objects, or names of what is in the same catalog."""

from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.core.tools.signatures import with_location

_T = TypeVar("_T")


def references(given: Any, kind: type[_T], *, field: str, otherwise: str) -> tuple[_T | str, ...]:
    """Check the references that a field of an agent gives.

    Args:
        given: The value of the field.
        kind: The type of the objects.
        field: The field's name, for the message.
        otherwise: What a value is that is neither an object of that type nor a name, and what to write.

    Raises:
        ValueError: It is not a list of objects and names; the message says what to write.
    """
    if given is None:
        raise ValueError(f"{field}=None is not a list; leave {field} out for none, or list them: {field}=[…]")
    if isinstance(given, str | kind) or not isinstance(given, Iterable):
        raise ValueError(f"{given!r} is not a list; write {field}=[…]")
    listed = tuple(given)
    for each in listed:
        if not isinstance(each, str | kind):
            raise ValueError(with_location(each, f"{each!r} is {otherwise}"))
    return listed

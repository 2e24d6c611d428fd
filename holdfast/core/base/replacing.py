"""Change some fields of a frozen dataclass: `dataclasses.replace`, as mypy checks it, at a fifth of its cost."""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:
    ValueT = TypeVar("ValueT")

    def replace(value: ValueT, /, **changes: Any) -> ValueT:
        """Return a copy of a frozen dataclass without slots, with these fields changed.

        Skips `__init__`, which a fold over thousands of events would call for every field of every event. `|` copies
        a dict of thirty fields in one piece.
        """
        changed = object.__new__(type(value))
        object.__setattr__(changed, "__dict__", value.__dict__ | changes)
        return changed

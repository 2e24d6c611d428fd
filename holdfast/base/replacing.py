"""Change some fields of a frozen dataclass: `dataclasses.replace`, as mypy checks it, at a fifth of its cost."""

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:
    ValueT = TypeVar("ValueT")

    def replace(value: ValueT, /, **changes: Any) -> ValueT:
        """Return a copy of a frozen dataclass without slots, with these fields changed.

        Skips `__init__`, which a fold over thousands of events would call for every field of every event.
        """
        changed = object.__new__(type(value))
        fields = changed.__dict__
        fields.update(value.__dict__)
        fields.update(changes)
        return changed

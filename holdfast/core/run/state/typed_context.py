"""The typed context in a run's state: values that a program gave with the start, and the changes by tools.

All calls of a step are judged, shown to people and made with the same values: a change takes effect with the next step.
So an approval covers the values that its call runs with, and the order in which results arrive makes no difference.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.core.base.models import Frozen, replace


class ContextChange(Frozen):
    """A change of the context by a tool call of the current step."""

    number: int
    """The call's number."""
    changes: dict[str, Any]
    """The new values of some fields."""


@dataclass(frozen=True)
class TypedContext:
    """The context of a run."""

    values: dict[str, Any] | None = None
    """The values that the calls of the current step see, by field name; None if the run has no context."""
    changes: tuple[ContextChange, ...] = ()
    """The changes by calls of the current step."""

    def change(self, number: int, changes: dict[str, Any]) -> "TypedContext":
        """Add a change, which takes effect with the next step."""
        return replace(self, changes=(*self.changes, ContextChange(number=number, changes=changes)))

    def end_step(self) -> "TypedContext":
        """Apply the changes of the step, in the order of its calls: every call of it has its result."""
        return TypedContext(self.latest)

    @property
    def latest(self) -> dict[str, Any] | None:
        """The values with all changes so far."""
        values = self.values
        for each in sorted(self.changes, key=lambda change: change.number):
            values = {**(values or {}), **each.changes}
        return values

"""What the agent's tools said cannot be done: the run refuses such calls without making them.

Where the list has to be bounded, a constraint is dropped: then the tool is called again, and can say it again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.core.base.constraint_names import FIRST_PROPAGATED, MAX_PROPAGATED, constraint_name, constraint_origin
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import one_line, visible
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.cannot import HandedConstraint, Scope

CONSTRAINTS = 100
"""Constraints of a thread at the same time. The oldest that has an end makes room; else the oldest."""

CONSTRAINTS_BYTES = 100_000
"""Bytes of them, as JSON."""

REASON_CHARS = 500
"""Characters of a constraint's reason; the tool's result has all of it."""

HANDED_BYTES = 20_000
"""Bytes of them, as JSON."""

ARGUMENT_CHARS = 200
"""Characters of the arguments that a constraint shows."""


class Constraint(Frozen):
    """Calls that cannot be made, because a tool said so."""

    number: int
    """Of the call whose tool said so: it names the constraint."""
    tool: str
    call_digest: str = ""
    """Digest of tool and arguments; empty for every call of the tool."""
    arguments: str = ""
    """The beginning of the arguments; empty for every call of the tool."""
    reason: str
    until: datetime | None = None
    """When it ends; None for when a person lifts it."""

    @property
    def name(self) -> str:
        """What people call it, and lift it by."""
        return constraint_name(self.number)

    @property
    def what(self) -> str:
        """The calls that it refuses, in a few words."""
        return f"{self.tool}({self.arguments})" if self.call_digest else f"every call of {self.tool}"

    @property
    def end(self) -> str:
        """When it ends, in a few words."""
        return "until a person lifts it" if self.until is None else f"until {_clock(self.until)}"

    @property
    def line(self) -> str:
        """The constraint on one line, as the LLM reads it."""
        origin = constraint_origin(self.number)
        name = f"constraint {self.name}" + (f" {origin}" if origin else "")
        return f"{self.what}, {self.end} ({name}): {self.reason}"

    @property
    def came_down(self) -> bool:
        """Whether the run above handed it down."""
        return FIRST_PROPAGATED <= self.number < FIRST_PROPAGATED + MAX_PROPAGATED

    def stands(self, at: datetime) -> bool:
        """Whether it has not ended by itself."""
        return self.until is None or self.until > at

    def view(self) -> dict[str, Any]:
        """Return the constraint as `show` presents it."""
        scope: Scope = "here" if self.call_digest else "everywhere"
        until = self.until.isoformat() if self.until else None
        return {
            "constraint": self.number,
            "tool": self.tool,
            "scope": scope,
            "arguments": self.arguments,
            "reason": self.reason,
            "until": until,
        }


@dataclass(frozen=True)
class Constraints:
    """The constraints of a thread, oldest first."""

    kept: tuple[Constraint, ...] = ()
    """Some may have ended by themselves: they refuse nothing."""

    def refusing(self, call: ToolCall, *, at: datetime) -> Constraint | None:
        """Return the constraint that refuses this call at this time, the one that ends last; None if none does."""
        of_tool = [each for each in self.kept if each.tool == call.name and each.stands(at)]
        digests = ("", call.digest) if of_tool else ()
        refusing = (each for each in of_tool if each.call_digest in digests)
        return max(refusing, key=lambda each: each.until or datetime.max.replace(tzinfo=UTC), default=None)

    def find(self, number: int) -> Constraint | None:
        """Return the constraint of that number; None if there is none."""
        return next((each for each in self.kept if each.number == number), None)

    def add(
        self, number: int, call: ToolCall, *, scope: Scope, reason: str, until: datetime | None, at: datetime
    ) -> "Constraints":
        """Add what a tool said. It replaces what the tool said before about the same; what has ended is dropped."""
        here = scope == "here"
        added = Constraint(
            number=number,
            tool=call.name,
            call_digest=call.digest if here else "",
            arguments=_kept(call.arguments, ARGUMENT_CHARS) if here else "",
            reason=_kept(reason, REASON_CHARS),
            until=until,
        )
        same = (added.tool, added.call_digest)
        kept = [each for each in self.unended(at).kept if (each.tool, each.call_digest) != same]
        kept.append(added)
        while len(kept) > CONSTRAINTS or sum(map(_size, kept)) > CONSTRAINTS_BYTES:
            kept.remove(next((each for each in kept if each.until), kept[0]))
        return Constraints(tuple(kept))

    def lift(self, number: int) -> "Constraints":
        """Remove the constraint of that number."""
        return Constraints(tuple(each for each in self.kept if each.number != number))

    def to_hand_over(self, at: datetime, *, up: bool = False) -> tuple[HandedConstraint, ...]:
        """Return the newest that stand, within limits.

        Args:
            at: Now.
            up: To the parent, without what came from there: people may have lifted it there since.
        """
        handed: list[HandedConstraint] = []
        size = 0
        own = [each for each in self.unended(at).kept if not (up and each.came_down)]
        for each in reversed(own[-MAX_PROPAGATED:]):
            copy = HandedConstraint.model_validate(each.model_dump(exclude={"number"}))
            size += len(copy.model_dump_json().encode())
            if size > HANDED_BYTES:
                break
            handed.insert(0, copy)
        return tuple(handed)

    def take_over(self, handed: tuple[HandedConstraint, ...], *, number: int, at: datetime) -> "Constraints":
        """Add what another run has handed over, except where this run has heard of the same itself.

        Args:
            handed: From the other run.
            number: The number of the call that started the sub-agent; 0 for those of the parent.
            at: Now.
        """
        kept = list(self.unended(at).kept)
        same = {(each.tool, each.call_digest) for each in kept}
        for index, each in enumerate(handed[:MAX_PROPAGATED]):
            if (each.tool, each.call_digest) not in same:
                kept.append(Constraint(number=FIRST_PROPAGATED + number * MAX_PROPAGATED + index, **each.model_dump()))
        while len(kept) > CONSTRAINTS or sum(map(_size, kept)) > CONSTRAINTS_BYTES:
            kept.remove(next((each for each in kept if each.until), kept[0]))
        return Constraints(tuple(kept)) if handed else self

    def unended(self, at: datetime) -> "Constraints":
        """Return them without those that have ended by themselves."""
        if all(each.stands(at) for each in self.kept):
            return self
        return Constraints(tuple(each for each in self.kept if each.stands(at)))


def _kept(text: str, limit: int) -> str:
    """What is kept of a text: on one line, so that it forms no heading where the LLM or people read it."""
    return one_line(visible(text), limit)


def _clock(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _size(constraint: Constraint) -> int:
    return len(constraint.model_dump_json().encode())

"""Constraints: calls that a tool has reported as impossible. The run refuses them without making them.

The list is bounded. If a constraint has to be dropped, the tool is called again, and can report it again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.core.base.constraint_names import FIRST_PROPAGATED, MAX_PROPAGATED, constraint_name, constraint_origin
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import one_line, visible
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.nodes import Unfit
from holdfast.core.tools.cannot import InheritedConstraint, Scope

CONSTRAINTS = 100
"""Constraints of a thread at the same time. The oldest with an end makes room, or else the oldest."""

CONSTRAINTS_BYTES = 100_000
"""Bytes of a thread's constraints, as JSON."""

REASON_CHARS = 500
"""Characters of a constraint's reason; the tool's result has the full text."""

HANDED_BYTES = 20_000
"""Bytes of the constraints that one run propagates to another, as JSON."""

ARGUMENT_CHARS = 200
"""Characters of the arguments that are kept in a constraint."""


class Constraint(Frozen):
    """Calls that a tool has reported as impossible."""

    number: int
    """The number of the call whose tool reported it, which is the constraint's id."""
    tool: str
    call_digest: str = ""
    """Digest of tool and arguments; empty if every call of the tool is impossible."""
    arguments: str = ""
    """The beginning of the arguments; empty if every call of the tool is impossible."""
    reason: str
    until: datetime | None = None
    """When the constraint ends; None if only a person can remove it."""
    nodes: str = ""
    """A selector of the nodes that cannot make such calls, while others may; empty if they are impossible on all."""

    @property
    def name(self) -> str:
        """The name by which people lift the constraint."""
        return constraint_name(self.number)

    @property
    def subject(self) -> tuple[str, str, str]:
        """The calls and the nodes that it is about: of two constraints on the same, the later one counts."""
        return self.tool, self.call_digest, self.nodes

    @property
    def target(self) -> str:
        """A short description of the calls that it refuses."""
        target = f"{self.tool}({self.arguments})" if self.call_digest else f"every call of {self.tool}"
        return f"{target} on {self.nodes}" if self.nodes else target

    @property
    def end_text(self) -> str:
        """A short description of when it ends."""
        return "until a person lifts it" if self.until is None else f"until {_clock(self.until)}"

    @property
    def line(self) -> str:
        """The constraint on one line, as the LLM reads it."""
        origin = constraint_origin(self.number)
        name = f"constraint {self.name}" + (f" {origin}" if origin else "")
        return f"{self.target}, {self.end_text} ({name}): {self.reason}"

    @property
    def from_parent(self) -> bool:
        """Whether the parent run propagated it to this run."""
        return FIRST_PROPAGATED <= self.number < FIRST_PROPAGATED + MAX_PROPAGATED

    def is_active(self, at: datetime) -> bool:
        """Return whether the constraint is still in force at this time."""
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
            **({"nodes": self.nodes} if self.nodes else {}),
        }


@dataclass(frozen=True)
class Constraints:
    """The constraints of a thread, oldest first."""

    kept: tuple[Constraint, ...] = ()
    """Includes constraints that have expired, which refuse nothing."""

    def find_for(self, call: ToolCall, *, at: datetime) -> Constraint | None:
        """Return the constraint that refuses this call at this time, the last to end of several; None for none.

        A constraint on nodes refuses no call: others may make it.
        """
        of_tool = [each for each in self.kept if each.tool == call.name and not each.nodes and each.is_active(at)]
        digests = ("", call.digest) if of_tool else ()
        refusing = (each for each in of_tool if each.call_digest in digests)
        return max(refusing, key=lambda each: each.until or datetime.max.replace(tzinfo=UTC), default=None)

    def unfit_for(self, call: ToolCall, *, at: datetime) -> tuple[Unfit, ...]:
        """Return the nodes that cannot make this call at this time."""
        return tuple(
            Unfit(nodes=each.nodes, reason=f"constraint {each.name}: {each.reason}")
            for each in self.kept
            if each.nodes and each.tool == call.name and each.is_active(at)
        )

    def without_nodes(self) -> "Constraints":
        """Drop the constraints on nodes: those of another cluster are not these."""
        if not any(each.nodes for each in self.kept):
            return self
        return Constraints(tuple(each for each in self.kept if not each.nodes))

    def find(self, number: int) -> Constraint | None:
        """Return the constraint with this number; None if there is none."""
        return next((each for each in self.kept if each.number == number), None)

    def add(
        self,
        number: int,
        call: ToolCall,
        *,
        scope: Scope,
        reason: str,
        until: datetime | None,
        at: datetime,
        nodes: str = "",
    ) -> "Constraints":
        """Add a constraint that a tool reported; it replaces one on the same calls. Drop expired ones."""
        here = scope == "here"
        added = Constraint(
            number=number,
            tool=call.name,
            call_digest=call.digest if here else "",
            arguments=_shorten(call.arguments, ARGUMENT_CHARS) if here else "",
            reason=_shorten(reason, REASON_CHARS),
            until=until,
            nodes=nodes,
        )
        kept = [each for each in self.active(at).kept if each.subject != added.subject]
        kept.append(added)
        while len(kept) > CONSTRAINTS or sum(map(_size, kept)) > CONSTRAINTS_BYTES:
            kept.remove(next((each for each in kept if each.until), kept[0]))
        return Constraints(tuple(kept))

    def remove(self, number: int) -> "Constraints":
        """Remove the constraint with this number."""
        return Constraints(tuple(each for each in self.kept if each.number != number))

    def to_propagate(self, at: datetime, *, to_parent: bool = False) -> tuple[InheritedConstraint, ...]:
        """Return the constraints to propagate to another run: the newest in force, within limits.

        Args:
            at: Now.
            to_parent: For the parent run. Leave out those that it propagated: people may have lifted them there since.
        """
        propagated: list[InheritedConstraint] = []
        size = 0
        own = [each for each in self.active(at).kept if not (to_parent and each.from_parent)]
        for each in reversed(own[-MAX_PROPAGATED:]):
            copy = InheritedConstraint.model_validate(each.model_dump(exclude={"number"}))
            size += len(copy.model_dump_json().encode())
            if size > HANDED_BYTES:
                break
            propagated.insert(0, copy)
        return tuple(propagated)

    def adopt(self, propagated: tuple[InheritedConstraint, ...], *, number: int, at: datetime) -> "Constraints":
        """Add the constraints that another run propagated, except on calls for which this run has its own.

        Args:
            propagated: The constraints of the other run.
            number: The number of the call that started the sub-agent; 0 if they come from the parent.
            at: Now.
        """
        kept = list(self.active(at).kept)
        same = {each.subject for each in kept}
        for index, each in enumerate(propagated[:MAX_PROPAGATED]):
            if (each.tool, each.call_digest, each.nodes) not in same:
                kept.append(Constraint(number=FIRST_PROPAGATED + number * MAX_PROPAGATED + index, **each.model_dump()))
        while len(kept) > CONSTRAINTS or sum(map(_size, kept)) > CONSTRAINTS_BYTES:
            kept.remove(next((each for each in kept if each.until), kept[0]))
        return Constraints(tuple(kept)) if propagated else self

    def active(self, at: datetime) -> "Constraints":
        """Return the constraints that are in force at this time."""
        if all(each.is_active(at) for each in self.kept):
            return self
        return Constraints(tuple(each for each in self.kept if each.is_active(at)))


def _shorten(text: str, limit: int) -> str:
    """Shorten a text to one line, so that it forms no heading in front of the LLM or people."""
    return one_line(visible(text), limit)


def _clock(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _size(constraint: Constraint) -> int:
    return len(constraint.model_dump_json().encode())

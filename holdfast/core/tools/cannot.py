"""`Cannot`: a tool's result for a call that cannot be made now, with the time and the calls that this applies to."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from holdfast.core.base.models import Frozen
from holdfast.core.nodes import Node, check_name

Scope = Literal["here", "everywhere"]
"""The calls that cannot be made: the same call, with the same arguments · every call of the tool."""

_NAMES: Mapping[str, Scope] = {"call": "here", "tool": "everywhere", "here": "here", "everywhere": "everywhere"}
"""The names of scopes, and how the log records them."""

LABEL = "label:"
"""Prefix of a scope that names a label of nodes."""

LONGEST = timedelta(days=3_650)
"""The longest time for `until`; None means no end."""


class InheritedConstraint(Frozen):
    """A constraint that a tool reported, in the form in which a parent run and its sub-agents pass it to each other."""

    tool: str
    call_digest: str = ""
    """Digest of tool and arguments; empty for every call of the tool."""
    arguments: str = ""
    reason: str
    until: datetime | None = None
    nodes: str = ""
    """A selector of the nodes that cannot make such calls; empty if they are impossible on all."""


@dataclass(frozen=True)
class Cannot:
    """A tool's result: it has done nothing, because the call cannot be made.

    The LLM reads the reason. From then on, the run rejects such calls with that reason, without making them, until the
    time is over or a person removes the constraint (`holdfast lift`).

    If it is about nodes, the run makes the call on another node instead, and the LLM reads the reason only if no other
    node takes it.
    """

    reason: str
    """The reason, for the LLM and for people; `holdfast.core.run.state.constraints` defines its maximum length."""
    scope: str = "call"
    """`call`: the same call, with the same arguments; `tool`: every call of the tool; `node`: every call of the tool on
    this node; `label:region`: every call of the tool on the nodes with this node's value of that label. `here` and
    `everywhere` are other names of `call` and `tool`."""
    until: datetime | timedelta | None = None
    """The time at which it may work again, or the time until then; None until a person removes the constraint."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: A field is invalid; the message names it.
        """
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise ValueError(f"Cannot(reason={self.reason!r}): say why, in a sentence that the LLM reads")
        if not isinstance(self.scope, str) or not (self.scope in _NAMES or self.on_nodes):
            raise ValueError(f"Cannot(scope={self.scope!r}) is not one of call, tool, node, and label:NAME")
        if self.scope.startswith(LABEL):
            check_name(self.scope.removeprefix(LABEL))
        if isinstance(self.until, datetime):
            if self.until.utcoffset() is None:
                raise ValueError(f"Cannot(until={self.until!r}) has no time zone; write datetime(…, tzinfo=UTC)")
            try:
                self.until.astimezone(UTC)
            except OverflowError:
                raise ValueError(f"Cannot(until={self.until!r}) is no time in UTC; None has no end") from None
        if isinstance(self.until, timedelta) and abs(self.until) > LONGEST:
            raise ValueError(f"Cannot(until={self.until!r}) is longer than {LONGEST.days:,} days; None has no end")
        if self.until is not None and not isinstance(self.until, datetime | timedelta):
            raise ValueError(f"Cannot(until={self.until!r}) is neither a datetime nor a timedelta")

    @property
    def on_nodes(self) -> bool:
        """Whether other nodes may make the call."""
        return self.scope == "node" or self.scope.startswith(LABEL)

    @property
    def recorded_scope(self) -> Scope:
        """The scope as the log records it; the call itself for one about nodes, if no other node can make it."""
        return _NAMES.get(self.scope, "here")

    def unfit(self, node: Node) -> str:
        """Return a selector of the nodes that cannot make such calls; empty if it is not about nodes.

        Args:
            node: The node that returned it. One without that label speaks for itself alone.
        """
        if not self.on_nodes:
            return ""
        label = self.scope.removeprefix(LABEL)
        value = node.labels.get(label) if self.scope.startswith(LABEL) else None
        return f"{label}={value}" if value is not None else node.name

    def ends_at(self, now: datetime) -> datetime | None:
        """Return the time at which it may work again, in UTC, for a result returned at `now`; None for no end."""
        if self.until is None:
            return None
        return (now + self.until if isinstance(self.until, timedelta) else self.until).astimezone(UTC)

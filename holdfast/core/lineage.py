"""Lineage: the run that started a sub-agent, and the call that did. Only a sealed start can carry one."""

from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget


class Lineage(Frozen):
    """The ancestors of a sub-agent's run."""

    path: tuple[str, ...]
    """The ids of the threads above it: the root first, the parent last."""
    number: int
    """The number of the parent's call that started it."""
    key: str
    """The effect key of that call, by which the parent recognises its own sub-agent."""
    deepest: int
    """Maximum depth of a run in this tree."""
    requesters: tuple[str, ...] = ()
    """The people who had asked the parent for something at the start; they count as the sub-agent's requesters, too."""
    requesters_unproven: bool = False
    """Whether the parent's requesters are not known for certain."""
    revoked_keys: tuple[str, ...] = ()
    """Keys that had been revoked in the parent's thread at the start."""
    allowance: Budget | None = None
    """The share of the parent's budget for this run and all runs below it; None if the parent has no budget."""

    @property
    def parent(self) -> str:
        """The id of the parent's thread."""
        return self.path[-1]

    @property
    def root(self) -> str:
        """The id of the thread at the top of the tree."""
        return self.path[0]

    def view(self) -> dict[str, object]:
        """Return the lineage as JSON, for `show`."""
        return {"parent": self.parent, "root": self.root, "path": list(self.path), "call": self.number}

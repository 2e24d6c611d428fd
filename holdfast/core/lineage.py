"""Lineage: which run started a run, and through which call. Only a sealed start can claim one."""

from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget


class Lineage(Frozen):
    """Where a sub-agent's run comes from."""

    path: tuple[str, ...]
    """The ids of the threads above it: the root first, the parent last."""
    number: int
    """The number of the parent's call that started it."""
    key: str
    """The effect key of that call, by which the parent recognises its own child."""
    deepest: int
    """The greatest depth that a run of this tree may have."""
    requesters: tuple[str, ...] = ()
    """Who had asked the parent for something by then: they ask for what the child does, too."""
    requesters_unproven: bool = False
    """It is not known who had asked the parent."""
    revoked_keys: tuple[str, ...] = ()
    """Keys that had been revoked in the parent's thread by then."""
    allowance: Budget | None = None
    """What the parent's budget gives to it and to all runs below it; None where the parent has none."""

    @property
    def parent(self) -> str:
        """The thread of the run that started it."""
        return self.path[-1]

    @property
    def root(self) -> str:
        """The thread at the top of the tree."""
        return self.path[0]

    def view(self) -> dict[str, object]:
        """Return the lineage as `show` presents it."""
        return {"parent": self.parent, "root": self.root, "path": list(self.path), "call": self.number}

"""How people have refined the task of a thread. The task itself stays as it was given."""

from datetime import datetime
from typing import Any

from holdfast.authority.refinements import RefinementKind
from holdfast.authority.statements import Proof
from holdfast.base.models import Frozen

REFINEMENTS = 50
"""Refinements of a thread. Each survives context compaction word for word, so none makes room; more are refused."""

REFINEMENTS_BYTES = 64_000
"""Bytes of their texts, as JSON."""


class TaskRefinement(Frozen):
    """One refinement, as the LLM reads it."""

    number: int
    """Counted from 1 throughout the thread."""
    message: int
    """The position of its event."""
    kind: RefinementKind
    text: str
    by: str
    at: datetime
    id: str = ""
    """The sender's id of it, which counts once."""
    proof: Proof = ""
    """How it is known who made it."""
    own: bool = False
    """The agent made it by a call, which people have approved."""

    def view(self) -> dict[str, Any]:
        """Return the refinement as `show` presents it."""
        return {
            "refinement": self.number,
            "kind": self.kind,
            "text": self.text,
            "by": self.by,
            "proof": self.proof,
            "own": self.own,
            "at": self.at.isoformat(),
        }

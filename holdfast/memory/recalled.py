"""A memory tier as it was recalled for a run."""

from typing import Literal

from holdfast.base.models import Frozen


class RecalledTier(Frozen):
    """What an agent's memory holds for the run, of one tier."""

    tier: Literal["standing", "files"]
    text: str
    """What the LLM reads of it."""
    left_out: int = 0
    """Characters that its budget had no room for."""

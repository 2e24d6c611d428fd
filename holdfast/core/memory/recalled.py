"""A memory tier that was recalled at the start of a run."""

from typing import Literal

from holdfast.core.base.models import Frozen
from holdfast.core.trust import Trust


class RecalledTier(Frozen):
    """One tier of an agent's memory, as recalled for the run."""

    tier: Literal["standing", "files"]
    text: str
    """The text that the LLM reads."""
    left_out: int = 0
    """Number of characters omitted to fit the budget."""
    trust: Trust = "tool"
    """The trust level of text from files. Each item of standing memory has its own level."""

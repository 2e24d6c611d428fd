"""How many steps the run has made, and how many it may make."""

from dataclasses import dataclass

from holdfast.base.replacing import replace


@dataclass(frozen=True)
class Steps:
    """The steps of the whole thread, and their limit."""

    count: int = 0
    """LLM replies so far."""
    limit: int = 0
    """After this step, a person has to send `retry`; that raises the limit."""
    rejected_replies: int = 0
    """Unusable replies in a row."""

    @property
    def used_up(self) -> bool:
        """Whether the limit is reached."""
        return self.count >= self.limit

    def reject_reply(self) -> "Steps":
        """Count an unusable reply."""
        return replace(self, rejected_replies=self.rejected_replies + 1)

    def use_reply(self) -> "Steps":
        """Count unusable replies from zero again: a reply could be used, or a person asked for a retry."""
        return replace(self, rejected_replies=0) if self.rejected_replies else self

"""The LLM's context, as far as decisions depend on it: how full it is, which parts survive a context compaction word
for word, and how far the LLM's words can be trusted after all that it has read.

The messages themselves are `holdfast.core.transcript`.
"""

from dataclasses import dataclass

from holdfast.core.base.models import replace
from holdfast.core.run.state.inbox import WaitingMessage
from holdfast.core.trust import Trust

FOLLOW_UPS_CHARS = 64_000
"""Characters of follow-up messages that survive a compaction word for word; the oldest make room."""

UNRESOLVED_CALLS = 50
"""Calls that were denied, or whose outcome is unknown, that survive a compaction; the oldest make room."""

UNRESOLVED_CALL_CHARS = 1_000
"""Characters of each."""


@dataclass(frozen=True)
class Context:
    """The LLM's context."""

    tokens: int = 0
    """Tokens of the last request and its reply, as the provider counted them; 0 after a compaction."""
    floor: int = 0
    """Tokens of the first request since the last compaction, or of the first one at all: no compaction leaves much
    less. Kept from feature level 1 on, where it is over half of `Limits.compaction_tokens`; else 0."""
    requested: bool = False
    """A person asked for a compaction, which has not been made yet."""
    overflows: int = 0
    """How often in a row a request did not fit the LLM's context window."""
    oversized: bool = False
    """The last request did not fit, and there was no compaction since."""
    compacted_at: int = 0
    """The step after which the context was last compacted."""
    summary: str = ""
    """The LLM's own words at the last compaction."""
    standing_memory: str = ""
    """The agent's standing memory; it survives a compaction word for word."""
    follow_ups: tuple[WaitingMessage, ...] = ()
    """Follow-up messages that the LLM was shown; they survive a compaction word for word."""
    follow_ups_left_out: int = 0
    """How many older ones do not, because there are too many."""
    unresolved_calls: tuple[str, ...] = ()
    """Calls that were denied, or whose outcome is unknown, in a line each: the LLM must not lose them."""
    trust: Trust = "agent"
    """How far the LLM's words can be trusted; kept only where the agent's tools or rules depend on it."""

    def answered(self, tokens: int) -> "Context":
        """Note how full the context is, and that the request fitted."""
        return replace(self, tokens=tokens, overflows=0, oversized=False)

    def with_floor(self, tokens: int, limit: int) -> "Context":
        """Note the tokens of the first request since the last compaction, if they bear on the next one."""
        return replace(self, floor=tokens if 2 * tokens > limit else 0)

    def is_full(self, limit: int) -> bool:
        """Whether the context is to be compacted by size.

        It has reached the limit, and is twice as long as what the last compaction left. Without the second condition, a
        task that is itself as long as the limit would be compacted over and over, and each summary would replace one.

        Args:
            limit: `Limits.compaction_tokens`.
        """
        return self.tokens >= max(limit, 2 * self.floor)

    def exceeded(self) -> "Context":
        """Note that a request did not fit. A compaction that somebody asked for follows from that anyway."""
        return replace(self, overflows=self.overflows + 1, oversized=True, requested=False)

    def compacted(self, summary: str, *, step: int) -> "Context":
        """Note that the context was compacted after this step."""
        return replace(self, summary=summary, tokens=0, floor=0, requested=False, oversized=False, compacted_at=step)

    def retried(self, *, step: int) -> "Context":
        """Prepare for a retry: if nothing was left to compact, the same request is made once more."""
        oversized = self.oversized and self.overflows <= 2 and step > 0
        return replace(self, overflows=min(self.overflows, 2), oversized=oversized)

    def add_follow_up(self, message: WaitingMessage) -> "Context":
        """Keep a follow-up message that the LLM is shown; the oldest make room."""
        kept = [*self.follow_ups, message]
        while len(kept) > 1 and sum(len(each.text) for each in kept) > FOLLOW_UPS_CHARS:
            del kept[0]
        left_out = self.follow_ups_left_out + len(self.follow_ups) + 1 - len(kept)
        return replace(self, follow_ups=tuple(kept), follow_ups_left_out=left_out)

    def add_unresolved_call(self, line: str) -> "Context":
        """Keep a call that was denied, or whose outcome is unknown; the oldest make room."""
        lines = (*self.unresolved_calls, line[:UNRESOLVED_CALL_CHARS])
        return replace(self, unresolved_calls=lines[-UNRESOLVED_CALLS:])

"""The time when the agent last acted, and the last findings of its `verify` tools, which may have to run again."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen
from holdfast.core.log.events import Finding

HEAD_CHARS = 120
"""Characters of a finding that are kept, to show people differences."""


class FindingDigest(Frozen):
    """The finding of one `verify` tool, as far as a comparison needs it."""

    tool: str
    ok: bool
    digest: str
    """Digest of the content."""
    head: str
    """The beginning of the content."""

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """Return the digest of a finding."""
        content = finding.content
        return cls(
            tool=finding.tool,
            ok=finding.status == "ok",
            digest=digest(["finding/1", content]),
            head=content if len(content) <= HEAD_CHARS else f"{content[:HEAD_CHARS]}…",
        )


@dataclass(frozen=True)
class Freshness:
    """Whether the run's picture of the world is still fresh."""

    acted_at: datetime | None = None
    """When the agent last acted, in any run of the thread; None if it has not yet."""
    stale_seconds: int = 0
    """How long the agent has paused, if its `verify` tools have to run before anything else; else 0."""
    baseline: tuple[FindingDigest, ...] = ()
    """The last findings of the `verify` tools in this step: the state of the world for which its approvals hold."""

    def stale_for(self, spec: AgentSpec, at: datetime) -> int:
        """Return the seconds since an agent with `verify` tools acted, if they have to run first; else 0.

        Once stale, the picture stays stale until the tools have run: an LLM that replies after a day replies to the
        request of the day before.
        """
        waited = (at - self.acted_at).total_seconds() if self.acted_at else 0
        return max(self.stale_seconds, int(waited), 1) if waited > spec.limits.stale_after else self.stale_seconds

"""When the agent last acted, and the findings of its `verify` tools: whether they have to run before it acts again."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen
from holdfast.core.log.events import Finding

HEAD_CHARS = 120
"""Characters of a finding that are kept, to show people the difference."""


class FindingDigest(Frozen):
    """What one `verify` tool found, as far as a comparison needs it."""

    tool: str
    ok: bool
    digest: str
    """Of the content."""
    head: str
    """How the content begins."""

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
    """When the agent last did something, in any run of the thread; None before it has."""
    stale_seconds: int = 0
    """How long the agent has paused, where its `verify` tools have to run before anything else; 0 where not."""
    baseline: tuple[FindingDigest, ...] = ()
    """What the `verify` tools found last since the step began: the world that approvals of this step are good for."""

    def stale_for(self, spec: AgentSpec, at: datetime) -> int:
        """Return the seconds since an agent with `verify` tools acted, if they have to run first; else 0.

        Once stale, the picture stays stale until the tools have run: an LLM that replies after a day replies to what
        it was sent the day before.
        """
        waited = (at - self.acted_at).total_seconds() if self.acted_at else 0
        return max(self.stale_seconds, int(waited), 1) if waited > spec.limits.stale_after else self.stale_seconds

"""Where a run comes from: who started it, the thread that it was forked from, the file that it was imported from; and
whether it is being moved away.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.core.authority.policy import Policy
from holdfast.core.base.models import replace
from holdfast.core.budget.budget import Budget
from holdfast.core.lineage import Lineage
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint


@dataclass(frozen=True)
class RunOrigin:
    """Where a run comes from."""

    first_run_id: str = ""
    """Temporal's first execution run id, which names effects."""
    sealed: bool = True
    """One of our own processes started the run."""
    depth: int = 0
    """How many agents stand between the run and a person."""
    user: str = ""
    """Who gave the task; empty if no name was given. Later messages do not change it."""
    user_proven: bool = True
    """It is known that this person gave the task, and no other person has started a run or sent a message since."""
    starts: dict[str, datetime] = field(default_factory=dict)
    """Sealed starts that have begun a run lately, and when: each counts once."""
    schedule: str = ""
    """The schedule that started the thread; empty for none. Later runs of the thread do not change it."""

    lineage: Lineage | None = None
    """Which run started the thread as a sub-agent; None for none. Later runs of the thread do not change it."""
    policies: tuple[Policy, ...] = ()
    """The policies of the runs above, which judge its calls beside its own."""
    allowance: Budget | None = None
    """What a loop gives to this run, its iteration; None for none."""
    deepest: int | None = None
    """Of the fork of a sub-agent's thread: the greatest depth in the original's tree, which is its own limit, too."""

    @property
    def handed(self) -> Budget | None:
        """What the run or the loop above gives to this run of its own budget; None for none."""
        return self.lineage.allowance if self.lineage else self.allowance

    def heard(self, by: str) -> "RunOrigin":
        """Note who said something: one person's memory must not be recalled for another person."""
        return replace(self, user_proven=self.user_proven and by == self.user)

    @property
    def proven_user(self) -> str:
        """The person whose memory the run may reach; empty for none."""
        return self.user if self.user_proven else ""


FORK = 0
"""What `lift` names to let effects after a fork run as the policy says: constraints are numbered from 1."""


@dataclass(frozen=True)
class Fork:
    """The last fork in a thread's log: a fork can be forked again."""

    point: ForkPoint
    by: str
    """Who forked it; a claim, unless the start was sealed with the person's proof."""
    at: datetime
    """When the event was recorded after which it was forked: the files belong to that time."""
    workspace: str = ""
    """The folder of the thread that it was forked from."""
    lifted_by: str | None = None
    """The approver who let effects run as the policy says; None as long as they ask first."""
    llm: str = ""
    """The LLM of its agents; empty for their own."""
    policies: tuple[str, ...] = ()
    """Digests of the policies that were given with this fork or with one that it is a fork of."""

    def view(self) -> dict[str, Any]:
        """Return the fork as `show` presents it."""
        point = self.point
        return {
            "thread": point.thread,
            "position": point.position,
            "head": point.head,
            "by": self.by,
            "effects_ask": self.lifted_by is None,
            "lifted_by": self.lifted_by,
            **({"llm": self.llm} if self.llm else {}),
            **({"policies": list(self.policies)} if self.policies else {}),
        }


@dataclass(frozen=True)
class Move:
    """A person has asked for the run to be moved."""

    by: str
    """Who asked; only a claim."""
    reason: str = ""
    to: str = ""
    """The id of the only cluster that may import it; empty for any."""


@dataclass(frozen=True)
class Import:
    """The last import in a thread's log: a thread can be moved again."""

    point: ImportPoint
    by: str
    """Who imported it; a claim, unless the start was sealed with the person's proof."""
    at: datetime
    spec_hash: str
    """Digest of the agent that the thread had before."""
    entered: bool = False
    """The agent of this cluster is loaded."""

    def view(self) -> dict[str, Any]:
        """Return the import as `show` presents it."""
        return {
            "position": self.point.position,
            "head": self.point.head,
            "signer": self.point.signer or None,
            "by": self.by,
            "at": self.at.isoformat(),
        }

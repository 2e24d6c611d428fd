"""Who started the run, and how that is known."""

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.authority.policy import Policy
from holdfast.base.replacing import replace
from holdfast.budget.budget import Budget
from holdfast.lineage import Lineage


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
    """Who gave the task; empty where no name was given. Later messages do not change it."""
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

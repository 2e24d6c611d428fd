"""The origin of a run: its starter, the thread that it was forked from, the file that it was imported from; and
its destination if it is being moved to another cluster.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.authority.policy import Policy
from holdfast.core.base.models import replace
from holdfast.core.budget.budget import Budget
from holdfast.core.lineage import Lineage
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint


@dataclass(frozen=True)
class RunOrigin:
    """The origin of a run: its starter, parent and schedule."""

    first_run_id: str = ""
    """Temporal's first execution run id, which names effects."""
    trace_run: str = ""
    """The first run id of the chain whose trace a later import keeps, if an import began another trace; empty for that
    of `first_run_id`."""
    sealed: bool = True
    """One of our own processes started the run."""
    depth: int = 0
    """How many agents stand between the run and a person."""
    user: str = ""
    """The person who gave the task; empty if unnamed. Later messages do not change it."""
    user_proven: bool = True
    """This person verifiably gave the task, and no other person has started a run or sent a message since."""
    starts: dict[str, datetime] = field(default_factory=dict)
    """Authenticated starts that have recently begun a run, and when: each is valid once."""
    schedule: str = ""
    """The schedule that started the thread; empty for none. Later runs of the thread do not change it."""
    caller: str = ""
    """The id of the program's workflow that started the run; empty for none."""
    lineage: Lineage | None = None
    """The run that started the thread as a sub-agent; None for none. Later runs of the thread do not change it."""
    policies: tuple[Policy, ...] = ()
    """The policies of the runs above, which judge its calls in addition to its own."""
    allowance: Budget | None = None
    """The budget that a loop gives to this run, its iteration; None for none."""
    when_blocked: WhenBlocked | None = None
    """Whether the start lets the run wait for a person or makes it fail; None if it says nothing, and then the agent
    decides."""
    deepest: int | None = None
    """For a fork of a sub-agent's thread: the greatest depth in the original's tree, which limits the fork, too."""

    @property
    def inherited_budget(self) -> Budget | None:
        """The part of its own budget that the parent run or loop gives to this run; None for none."""
        return self.lineage.allowance if self.lineage else self.allowance

    def note_sender(self, by: str) -> "RunOrigin":
        """Record who sent a message: one person's memory must not be recalled for another person."""
        return replace(self, user_proven=self.user_proven and by == self.user)

    @property
    def proven_user(self) -> str:
        """The person whose memory the run may read; empty for none."""
        return self.user if self.user_proven else ""


FORK = 0
"""The number by which `lift` lets a fork's effects run as the policy says: constraints are numbered from 1."""


@dataclass(frozen=True)
class Fork:
    """The last fork in a thread's log: a fork can be forked again."""

    point: ForkPoint
    by: str
    """The person who forked it; unauthenticated unless the start's MAC covers proof of the person."""
    at: datetime
    """When the last event before the fork was recorded: the files belong to that time."""
    workspace: str = ""
    """The folder of the thread that it was forked from."""
    lifted_by: str | None = None
    """The approver who let effects run as the policy says; None while they require approval first."""
    llm: str = ""
    """The LLM that replaces its agents' own; empty for none."""
    policies: tuple[str, ...] = ()
    """Digests of the policies that were given with this fork or with a fork that it stems from."""

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
class Loss:
    """The last gap in a thread's log: events that a restored backup lacks."""

    position: int
    """The position of its `events_lost`; the events from there on are lost."""
    events: int
    """How many events the thread had before, as far as anything shows it."""
    head: str
    """The digest of the last of them."""
    at: datetime
    """When the gap was recorded. Every statement in the lost events was sent before that."""

    def view(self) -> dict[str, Any]:
        """Return the gap as `show` presents it."""
        return {"position": self.position, "events": self.events - self.position, "head": self.head}


@dataclass(frozen=True)
class Move:
    """A person has asked for the run to be moved."""

    by: str
    """The person who asked; a claim."""
    reason: str = ""
    to: str = ""
    """The id of the only cluster that may import it; empty for any."""


@dataclass(frozen=True)
class Import:
    """The last import in a thread's log: a thread can be moved again."""

    point: ImportPoint
    by: str
    """The person who imported it; unauthenticated unless the start's MAC covers proof of the person."""
    at: datetime
    spec_hash: str
    """Digest of the agent that the thread had before the import."""
    entered: bool = False
    """The agent of this cluster is loaded."""
    keeps_trace: bool = False
    """The run keeps the trace that it had before the import."""

    def view(self) -> dict[str, Any]:
        """Return the import as `show` presents it."""
        return {
            "position": self.point.position,
            "head": self.point.head,
            "signer": self.point.signer or None,
            "by": self.by,
            "at": self.at.isoformat(),
        }

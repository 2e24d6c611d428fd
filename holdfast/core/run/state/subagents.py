"""The sub-agents of a run, and how they ended.

A run has at most `Limits.max_subagents` at a time, so the list is bounded. The result of a sub-agent is not kept here:
it is read from the sub-agent's run when a call waits for it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.base.models import Frozen, replace
from holdfast.core.log.events import SubagentEnded, SubagentStarted
from holdfast.core.trust import Trust
from holdfast.errors import EventOutOfPlace


class Child(Frozen):
    """A sub-agent."""

    number: int
    """The number of the call that started it."""
    thread: str
    agent: str
    run_id: str
    """Temporal's first run id of the sub-agent: another chain of runs under the same thread id is another run."""
    background: bool = False
    since: datetime
    status: str = ""
    """How it ended; empty while it is open."""
    said: str = ""
    """Digest of its result, with which a call that reads the result later compares it."""
    trust: Trust = "web"
    """The trust level of its result."""
    steps: int = 0
    """How many steps it made."""
    short: str = ""
    """The limit of its allowance that ended it; empty for none."""

    @property
    def open(self) -> bool:
        """Whether it is not recorded as ended."""
        return not self.status

    def view(self) -> dict[str, Any]:
        """Return the sub-agent as `show` presents it."""
        return {
            "call": self.number,
            "thread": self.thread,
            "agent": self.agent,
            "status": self.status or "open",
            "background": self.background,
            "since": self.since.isoformat(),
        }


@dataclass(frozen=True)
class Subagents:
    """The sub-agents of a run, in the order of the calls that started them."""

    children: tuple[Child, ...] = ()

    @property
    def open(self) -> tuple[Child, ...]:
        """The sub-agents that are not recorded as ended."""
        return tuple(child for child in self.children if child.open)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the calls that started the sub-agents."""
        return frozenset(child.number for child in self.children)

    def find(self, number: int) -> Child | None:
        """Return the sub-agent that the call with this number started; None if it started none."""
        return next((child for child in self.children if child.number == number), None)

    def of_thread(self, thread: str) -> Child | None:
        """Return the sub-agent with this thread id; None if there is none."""
        return next((child for child in self.children if child.thread == thread), None)

    def start(self, event: SubagentStarted) -> "Subagents":
        """Add a sub-agent.

        Raises:
            EventOutOfPlace: The call has already started one.
        """
        if self.find(event.number):
            raise EventOutOfPlace(f"call {event.number} has started a sub-agent already")
        child = Child(
            number=event.number,
            thread=event.thread,
            agent=event.agent,
            run_id=event.run_id,
            background=event.background,
            since=event.at,
        )
        return replace(self, children=(*self.children, child))

    def end(self, event: SubagentEnded) -> "Subagents":
        """Record how a sub-agent ended.

        Raises:
            EventOutOfPlace: The call has started none, or its sub-agent has already ended.
        """
        child = self.find(event.number)
        if child is None or not child.open or child.thread != event.thread:
            raise EventOutOfPlace(f"call {event.number} has no open sub-agent {event.thread}")
        end = {"status": event.status, "said": event.said, "trust": event.trust, "steps": event.steps}
        changed = child.model_copy(update={**end, "short": event.cost.short if event.cost else ""})
        return replace(self, children=tuple(changed if each is child else each for each in self.children))

    def keep_open(self) -> "Subagents":
        """Return the open sub-agents, which the next run of the thread takes over."""
        return Subagents(self.open)

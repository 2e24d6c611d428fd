"""The events of waits: a call puts the agent to sleep, polls, and is woken."""

from datetime import datetime
from typing import Literal

from holdfast.core.log.events.base import Event
from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.tools.triggers import WakeTrigger


class DormancyBegan(Event):
    """The agent has put itself to sleep: this call waits for its wake trigger. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` when the wait ends; at once where a buffered event ends it.
    Correlate: `number` is the call's; `wake` is the position of the `wake_received` whose event had been buffered.
    """

    type: Literal["dormancy_began"] = "dormancy_began"
    number: int
    trigger: WakeTrigger
    wake: int = 0
    """The `wake_received` that ends the wait at once; 0 where none does."""


PollKind = Literal["news", "same", "partial", "timeout", "no_response"]
"""What a poll brought: another result than the one before · the same one, or one that changes too often to count as
news · a part · nothing in time · no result."""


class WaitPolled(Event):
    """The run has called the tool that a sleeping call polls, and has its result. The LLM reads the last one only, with
    `tool_call_finished`. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` where the poll ends the wait, else another poll.
    Correlate: `number` is the call's that sleeps; `poll` counts its polls from 1.
    """

    type: Literal["wait_polled"] = "wait_polled"
    number: int
    poll: int
    status: ToolStatus
    """How the tool's call ended."""
    result: PollKind
    """What sets the time of the next poll."""
    seen: str
    """Digest of the result."""
    duration_ms: int = 0
    again: datetime | None = None
    """When the next poll is due; None where this one ends the wait."""


class WakeReceived(Event):
    """An event arrived from outside, or somebody woke the run. What was sent is a claim. Recorded from feature level 1
    on.

    Followed by: where it was `delivered`, `tool_call_finished` for each wait that it ends; where it was `buffered`,
    nothing until a call waits for such an event.
    Correlate: its `position` is the `wake` of the `dormancy_began` that a buffered event ends.
    """

    type: Literal["wake_received"] = "wake_received"
    outcome: Literal["delivered", "buffered"]
    event: str = ""
    """The event's name; empty where somebody woke the run without one."""
    id: str = ""
    """The sender's id of the event, which counts once."""
    data: str = ""
    """The event's data: an object, as canonical JSON."""
    by: str = ""
    """Who sent it, by their own claim."""
    reason: str = ""
    call: int | None = None
    """The number of the one call that it was sent to; None for all that wait."""

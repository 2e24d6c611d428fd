"""Events of a dormant agent: a call puts it to sleep, polls, and is woken."""

from datetime import datetime
from typing import Literal

from holdfast.core.log.events.base import Event
from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.tools.triggers import WakeTrigger


class DormancyBegan(Event):
    """The agent went to sleep: this call waits for its wake trigger. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` when the wait ends; immediately if a buffered event ends it.
    Correlate: `number` is the call's; `wake` is the position of the `wake_received` with the buffered event.
    """

    type: Literal["dormancy_began"] = "dormancy_began"
    number: int
    trigger: WakeTrigger
    wake: int = 0
    """The `wake_received` that ends the wait immediately; 0 if none does."""


PollKind = Literal["news", "same", "partial", "timeout", "no_response", "error"]
"""How a poll ended: a new result · the same result, or one that changes too often to count as new · a partial result ·
a timeout · no response · an error as the answer (recorded from feature level 2 on; below it, `no_response`)."""


class WaitPolled(Event):
    """The run called the tool that a dormant call polls. The LLM reads only the last poll's result, with
    `tool_call_finished`. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` if the poll ends the wait, otherwise another poll.
    Correlate: `number` is that of the dormant call; `poll` counts its polls from 1.
    """

    type: Literal["wait_polled"] = "wait_polled"
    number: int
    poll: int
    status: ToolStatus
    """How the polling tool call ended."""
    result: PollKind
    """How the poll ended, which determines the time of the next one."""
    seen: str
    """Digest of the result."""
    duration_ms: int = 0
    again: datetime | None = None
    """When the next poll is due; None if this one ends the wait."""
    interval: float = 0
    """If a foreign task is polled and continues: the seconds between two polls for which its server asks. Recorded from
    feature level 2 on."""
    signed: str = ""
    """The signature of the node that made the poll; empty if it has no key. Recorded from feature level 2 on."""


class WakeReceived(Event):
    """An external event arrived, or somebody woke the run. Its content is unauthenticated. Recorded from feature level
    1 on.

    Followed by: if `delivered`, `tool_call_finished` for each wait that it ends; if `counted` (recorded from feature
    level 2 on), nothing until enough such events have arrived; if `buffered`, no particular event
    until a call waits for such an event.
    Correlate: its `position` is the `wake` of the `dormancy_began` that a buffered event ends.
    """

    type: Literal["wake_received"] = "wake_received"
    outcome: Literal["delivered", "buffered", "counted"]
    event: str = ""
    """The event's name; empty if somebody woke the run without one."""
    id: str = ""
    """The sender's id of the event, for deduplication."""
    data: str = ""
    """The event's data: a JSON object, as canonical JSON."""
    by: str = ""
    """The sender's name, unauthenticated."""
    reason: str = ""
    call: int | None = None
    """The number of the call that it was sent to; None for all waiting calls."""
    hops: int = 0
    """How many agents in a row led to it, as the sender says; 0 for an event from outside. Recorded from feature level
    2 on."""

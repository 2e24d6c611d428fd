"""Data that a run writes outside of Temporal: events for the permanent record, and notices for people."""

from typing import Literal

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.base.canonical import GENESIS
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.mac.seals import ActivityRequest, ActivityResult


class ArchiveRequest(ActivityRequest):
    """The input of `archive`: the range of the calling workflow's events to write into the permanent record."""

    start: int
    stop: int
    """One more than the last position to write."""
    base: str = GENESIS
    """The digest of the event before `start`, on which the written events have to build."""
    head: str
    """The digest of the last event to write."""
    pausing: bool = False
    """The run waits after this: a worker may drop it from its caches."""
    fork: ForkPoint | None = None
    """`start` is the first event after this fork: the original thread's events are written with it, all or none."""


class Archived(ActivityResult):
    """The result of `archive`: the length of the permanent record."""

    length: int
    """How many events of the thread the permanent record has."""
    features: int = 0
    """The feature level of the worker's release."""


Occasion = Literal[
    "request_opened",
    "request_reminded",
    "request_escalated",
    "request_expired",
    "run_blocked",
    "run_finished",
    "budget_low",
    "budget_spent",
    "message_awaited",
]
"""`message_awaited`, from feature level 2 on: the LLM has answered, and the run stays open for messages."""


FEEDBACK_INPUT = "holdfast_say"
"""The id of the text field beside the buttons of a Slack message, by which the gateway finds its text."""


class Notice(ActivityRequest):
    """The input of `notify`: a notice to people about an event of a run or a loop."""

    occasion: Occasion
    position: int
    """The event's position: with the thread's id it names the notice, so that a receiver recognises a duplicate."""
    agent: str = ""
    request: ApprovalRequest | None = None
    claim: str = ""
    """What the agent said when it made the call that the request is about (`holdfast.core.authority.claims`)."""
    feedback: bool = False
    """The run reads what an approver says to the agent (`Decision.say`)."""
    status: str = ""
    text: str = ""
    """The run's result, or why it is blocked."""


class Notified(ActivityResult):
    """The result of `notify`: the number of receivers that accepted the notice."""

    receivers: int = 0

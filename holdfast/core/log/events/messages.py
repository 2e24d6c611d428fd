"""Events of people's messages to the agent, and of when the LLM is shown them."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.interventions import Message, Reclassification, Refinement, RefinementKind, WhenBusy
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import Content
from holdfast.core.log.events.base import Event, Stated
from holdfast.core.trust import Trust


class UserMessageReceived(Stated):
    """A person sent a message. The first one is the task; a later one waits until the LLM is shown it.

    Followed by: `message_taken`, at the end of the step; after the task, `agent_loaded`.
    Correlate: its `position` is the `message` of the `message_taken`; `id` is the sender's, with which it counts
    once: signed messages have one, and from feature level 2 on others may.
    """

    STATEMENT = Message

    type: Literal["user_message_received"] = "user_message_received"
    content: Content
    by: str = ""
    task: bool = False
    """The message is the task that the run was started with."""
    when_busy: WhenBusy = "queue"
    id: str = ""
    until: datetime | None = None

    @property
    def said(self) -> Message:
        """The message as it was sent, which the signature covers."""
        return Message(
            message=self.content,
            by=self.by,
            when_busy=self.when_busy,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )


class TaskRefined(Stated):
    """The task was narrowed, replaced or corrected: by a person, or by a call of the agent that people approved.
    Recorded from feature level 1 on.

    Followed by: `message_taken`, at the end of the step: the LLM is shown it like a message. If a call of the agent
    made it: the `tool_call_finished` of that call.
    Correlate: its `position` is the `message` of the `message_taken`; `id` distinguishes repeated refinements; `call`
    is the number of the agent's call.
    """

    STATEMENT = Refinement

    type: Literal["task_refined"] = "task_refined"
    refinement: int
    """Its number, counted from 1 throughout the thread."""
    kind: RefinementKind
    text: str
    by: str
    """The person who made it, or the name of the agent whose call made it."""
    when_busy: Literal["queue", "interrupt"] = "queue"
    id: str = ""
    until: datetime | None = None
    call: int | None = None
    """The number of the approved call that made it; None if a person made it."""


class RunReclassified(Stated):
    """A person changed the run's agent, or lowered its trust level or its budget. Recorded from feature level 2 on.

    Followed by: `message_taken`, at the end of the step: the LLM is shown `notice` like a message. With another agent,
    `agent_loaded` before that.
    Correlate: its `position` is the `message` of the `message_taken`.
    """

    STATEMENT = Reclassification

    type: Literal["run_reclassified"] = "run_reclassified"
    agent: str = ""
    """The agent that continues the run; empty if it stays."""
    trust: Trust | None = None
    """The lower trust level; None if it stays."""
    budget: Amounts | None = None
    """The lower limits; None if they stay."""
    by: str
    reason: str = ""
    id: str = ""
    until: datetime | None = None
    notice: str
    """The message that the LLM reads."""


class MessageTaken(Event):
    """A waiting message, refinement of the task or reclassification is shown to the LLM from the next request on.

    Followed by: further `message_taken`, then `llm_replied`.
    Correlate: `message` is the position of the `user_message_received`, `task_refined` or `run_reclassified`.
    """

    type: Literal["message_taken"] = "message_taken"
    message: int
    """The position of the `user_message_received`, `task_refined` or `run_reclassified`."""


class MessageAwaited(Event):
    """The LLM answered without calls; the run stays open for a follow-up message.

    Followed by: `user_message_received` and `message_taken`; or, when the idle limit has passed, `learning_requested`
    or `run_finished`.
    Correlate: it comes directly after the `llm_replied` whose text is `result`; a structured result directly after the
    `tool_call_finished` of the call that returned it.
    """

    type: Literal["message_awaited"] = "message_awaited"
    result: str
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON. Recorded from feature level 1 on."""

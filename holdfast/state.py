"""The state of an agent run. `holdfast.evolve` owns every transition.

1. Nothing about a run lives outside its state, and a state is what its events make of it.
2. A call goes `requested → asked → cleared → started → finished`; a policy that allows skips `asked`, a denial or
   an invalid call goes straight to `finished`, and an unknown outcome goes `started → unclear`, from where a
   person's word leads to `cleared` (to run again in the next epoch, or to be undone) or `finished`.
3. The status is derived, never set.
4. A state is bounded, whatever the length of its thread: it is carried from one Temporal run to the next.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from holdfast.agent import AgentSpec
from holdfast.approval import Request
from holdfast.events import (
    RunOutcome,
)
from holdfast.messages import ToolCall, Usage
from holdfast.model import Frozen
from holdfast.trust import Trust

Phase = Literal["requested", "asked", "cleared", "started", "unclear", "finished"]
Status = Literal[
    "running", "waiting_approval", "waiting_message", "dormant", "blocked", "completed", "failed", "cancelled"
]


class CallState(Frozen):
    """A tool call of the current step."""

    number: int
    call: ToolCall
    phase: Phase = "requested"
    epoch: int = 0
    """How often a person said that the effect did not happen: each is a fresh row in the ledger."""
    request: str | None = None
    """The open request about it."""
    grant: str = ""
    """The request by which people let it run; used up by its start."""
    undo: bool = False
    """What is cleared is to take the effect back."""
    edited_by: str = ""
    """Who has changed the arguments."""
    approved: bool = False
    """A person has approved it as it is; that nobody decided in time is no approval."""


class Parked(Frozen):
    """Why a blocked run is blocked."""

    cause: str
    message: str


class Remembered(Frozen):
    """A call that is allowed from now on: a person said so."""

    rule: str
    """Its id."""
    tool: str
    call_digest: str
    by: str


class Lent(Frozen):
    """A right that an approver has lent to another."""

    by: str
    to: str
    until: datetime


class Waiting(Frozen):
    """A message that was not shown to the LLM yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""


class RunState(Frozen):
    """Everything a decision depends on."""

    thread: str = ""
    task: str = ""
    spec: AgentSpec | None = None
    spec_hash: str = ""
    workspace: str = ""
    depth: int = 0
    """How many agents stand between the run and a person."""
    notify: bool = False
    """The worker tells somebody of requests and endings."""
    starts: dict[str, datetime] = {}
    """Sealed starts that have begun a run lately, and when: each counts once."""
    user: str = ""
    """Who gave the task; empty where nobody said. It stays so, whoever speaks later."""
    user_proven: bool = True
    """It is known to be that person who gave the task, and nobody else has started or said anything since."""
    requesters: tuple[str, ...] = ()
    """Who gave the task and the messages."""
    remembered: tuple[Remembered, ...] = ()
    remembered_count: int = 0
    """Rules that were ever remembered in the thread."""
    lent: tuple[Lent, ...] = ()
    spent: tuple[str, ...] = ()
    """Signatures by which rights were lent: each does it once."""
    acted_at: datetime | None = None
    """When the agent last did something; None before it has."""
    stale_seconds: int = 0
    """How long the agent has waited, where its `verify` tools are to run before anything else."""
    step: int = 0
    """LLM calls answered so far."""
    step_limit: int = 0
    """The step that needs a person's leave; grows with each `retry` at the limit."""
    calls: tuple[CallState, ...] = ()
    """The calls of the current step, in call order."""
    call_count: int = 0
    """Calls of the whole thread."""
    requests: tuple[Request, ...] = ()
    """The open ones, oldest first."""
    asked: int = 0
    """Requests of the whole thread."""
    decided: dict[str, str] = Field(default_factory=dict)
    """Request id → who decided it, and how; the last ones."""
    inbox: tuple[Waiting, ...] = ()
    """Messages that were not taken yet, oldest first."""
    said: tuple[str, ...] = ()
    """Follow-up messages that were taken."""
    trust: Trust = "agent"
    """What the LLM's words are worth after all that it has read; kept where the agent's tools or rules mind."""
    memory: str = ""
    """Its standing memories, word for word: they survive a fold."""
    standing: tuple[str, ...] = ()
    """Calls that were denied, or that nobody knows the outcome of: what the LLM must not forget."""
    awaiting: bool = False
    """The LLM has answered, and the run is open for a follow-up."""
    idle_limit: float = 0
    """Seconds that it stays open; negative until the agent has said."""
    idle_until: datetime | None = None
    context_tokens: int = 0
    """Tokens of the last request and its reply, as the provider counted them; 0 after a fold."""
    overflow: int = 0
    """How often in a row a request did not fit the LLM's context window."""
    oversized: bool = False
    """The last request did not fit, and the transcript was not folded since."""
    folded_at: int = 0
    """The step after which the transcript was last folded."""
    summary: str = ""
    """The LLM's own words at the last fold."""
    rejected_replies: int = 0
    """Unusable replies in a row."""
    usage: Usage = Usage()
    parked: Parked | None = None
    outcome: RunOutcome | None = None
    result: str = ""
    failure: str = ""
    """A short name of why the run failed."""
    events: int = 0
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def status(self) -> Status:
        """One word for where the run is."""
        if self.outcome:
            return self.outcome
        if self.parked:
            return "blocked"
        if self.awaiting and not self.inbox:
            return "waiting_message"
        if self.requests and not any(call.phase in ("cleared", "started") for call in self.calls):
            return "waiting_approval"
        return "running"

    @property
    def proven_user(self) -> str:
        """Whose memory the run may reach; empty for nobody's."""
        return self.user if self.user_proven else ""

    @property
    def wake_at(self) -> datetime | None:
        """When something follows though nothing arrives; None for never."""
        if self.outcome:
            return None
        if self.awaiting and not self.inbox:
            return self.idle_until
        return min((due for request in self.requests if (due := request.due_at)), default=None)

    def request(self, name: str) -> Request | None:
        """The open request of that id."""
        return next((request for request in self.requests if request.request == name), None)

    def call(self, number: int) -> CallState:
        """The call of that number in the current step.

        Raises:
            KeyError: There is none.
        """
        for call in self.calls:
            if call.number == number:
                return call
        raise KeyError(number)

    def view(self) -> dict[str, Any]:
        """The state as `show` presents it (design: the CLI contract)."""
        return {
            "thread": self.thread,
            "agent": self.spec.name if self.spec else None,
            "status": self.status,
            "step": self.step,
            "events": self.events,
            "task": self.task,
            "workspace": self.workspace,
            "pending": [request.view() for request in self.requests],
            "remembered": [rule.model_dump() for rule in self.remembered],
            "delegated": [right.model_dump(mode="json") for right in self.lent],
            "blocked": self.parked.model_dump() if self.parked else None,
            "usage": self.usage.model_dump(),
            "result": self.result if self.outcome or self.awaiting else None,
            "updated_at": self.updated_at.isoformat(),
        }

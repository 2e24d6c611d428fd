"""The state of an agent run. `holdfast.run.evolve` owns every transition.

1. Nothing about a run lives outside its state, and a state is what its events make of it.
2. A call goes `requested → asked → cleared → started → finished`; a policy that allows skips `asked`, a denial or
   an invalid call goes straight to `finished`, and an unknown outcome goes `started → unclear`, from where a
   person's word leads to `allowed` (to run again in the next epoch, or to be undone) or `finished`. An effect that
   was under way when its run was closed from outside is `orphaned` until it is settled.
3. The status is derived, never set.
4. A state is bounded, whatever the length of its thread: it is carried from one Temporal run to the next.
"""

from datetime import UTC, datetime
from typing import Any, Literal, Self

from pydantic import Field

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.policy import Terms
from holdfast.authority.statements import AuthorityDelegation
from holdfast.authority.votes import Vote
from holdfast.base.digests import digest
from holdfast.base.models import Frozen
from holdfast.llm.messages import ToolCall, Usage
from holdfast.log.events import Finding, RunOutcome
from holdfast.tools.effects import PastEffect, effect_key
from holdfast.trust import Trust

HEAD_CHARS = 120
"""Of what a `verify` tool found, for people to see what has changed."""

Phase = Literal["requested", "awaiting_approval", "allowed", "started", "outcome_unknown", "orphaned", "finished"]
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
    terms: Terms | None = None
    """How its approval is decided, and so what became of it; None for the policy's own terms."""
    grant: str = ""
    """The request by which people let it run; used up by its start."""
    undo: bool = False
    """What is cleared is to take the effect back."""
    edited_by: str = ""
    """Who has changed the arguments."""
    approved: bool = False
    """A person has approved it as it is; that nobody decided in time is no approval."""
    begun: bool = False
    """It was started by this run."""
    past: PastEffect | None = None
    """The effect that it has had before the run was reset, or in a run that was closed."""


class Blocked(Frozen):
    """Why a blocked run is blocked."""

    cause: str
    message: str
    after: str = ""
    """What had failed before, where the LLM was given up."""

    def view(self) -> dict[str, Any]:
        """The cause as `show` presents it."""
        return self.model_dump(exclude_defaults=True)


class Remembered(Frozen):
    """A call that is allowed from now on: all who approved it said so."""

    rule: str
    """Its id."""
    tool: str
    call_digest: str
    votes: tuple[Vote, ...]
    """The approvals that made it. It counts for no more than they do."""

    def view(self) -> dict[str, Any]:
        """The rule as `show` presents it."""
        by = ", ".join(vote.by for vote in self.votes)
        return {"rule": self.rule, "tool": self.tool, "call_digest": self.call_digest, "by": by}


class Lent(Frozen):
    """A right that an approver has lent to another."""

    by: str
    to: str
    until: datetime
    said: AuthorityDelegation
    """What the lender said, signature included."""

    def view(self) -> dict[str, Any]:
        """The right as `show` presents it."""
        return {"by": self.by, "to": self.to, "until": self.until.isoformat()}


class Spent(Frozen):
    """A signed statement that has had its effect, and must not have it again."""

    digest: str
    """Of what was signed."""
    until: datetime
    """When it is good for nothing anyway."""


class Found(Frozen):
    """What one `verify` tool found, as far as it takes to see whether it changes."""

    tool: str
    ok: bool
    digest: str
    """Of the content."""
    head: str
    """How the content begins."""

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """What is kept of a finding."""
        content = finding.content
        return cls(
            tool=finding.tool,
            ok=finding.status == "ok",
            digest=digest(content),
            head=content if len(content) <= HEAD_CHARS else f"{content[:HEAD_CHARS]}…",
        )


class Waiting(Frozen):
    """A message that was not shown to the LLM yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""
    more: str = ""
    """What it holds besides text (`holdfast.llm.messages.more_than_text`)."""
    size: int = 0
    """Bytes of the whole message, as JSON."""


class RunState(Frozen):
    """Everything a decision depends on."""

    thread: str = ""
    task: str = ""
    spec: AgentSpec | None = None
    spec_hash: str = ""
    first_run_id: str = ""
    """Temporal's first execution run id, which names effects."""
    sealed: bool = True
    """One of our own processes has started the run."""
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
    crowd: bool = False
    """More people have asked than are kept: any of them may have."""
    unproven: bool = False
    """A message was taken in unsigned: who asked is not known."""
    remembered: tuple[Remembered, ...] = ()
    remembered_count: int = 0
    """Rules that were ever remembered in the thread."""
    remembering: Remembered | None = None
    """The rule that the decision just accepted makes; the next event records it, or it is gone."""
    lent: tuple[Lent, ...] = ()
    spent: tuple[Spent, ...] = ()
    """Signed delegations and messages that are still good: each counts once."""
    acted_at: datetime | None = None
    """When the agent last did something, in whatever run; None before it has."""
    baseline: tuple[Found, ...] = ()
    """What its `verify` tools found last since the step began: what approvals in this step are good for."""
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
    requests: tuple[ApprovalRequest, ...] = ()
    """The open ones, oldest first."""
    asked: int = 0
    """Requests of the whole thread."""
    decided: dict[str, str] = Field(default_factory=dict)
    """Request id → who decided it, and how; the last ones."""
    inbox: tuple[Waiting, ...] = ()
    """Messages that were not taken yet, oldest first."""
    said: tuple[Waiting, ...] = ()
    """Follow-up messages that were taken."""
    past: tuple[PastEffect, ...] = ()
    """Effects from before a reset that no call of this branch has adopted yet, oldest first."""
    unsaid: int = 0
    """How many of them were dropped, for there were too many to hand on."""
    unanswered: int = 0
    """Messages that were taken since the LLM has answered last."""
    unanswered_bytes: int = 0
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
    compacted_at: int = 0
    """The step after which the transcript was last folded."""
    summary: str = ""
    """The LLM's own words at the last fold."""
    rejected_replies: int = 0
    """Unusable replies in a row."""
    usage: Usage = Usage()
    blocked: Blocked | None = None
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
        if self.blocked:
            return "blocked"
        if self.awaiting and not self.inbox:
            return "waiting_message"
        if self.requests and not any(call.phase in ("allowed", "started") for call in self.calls):
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

    def paused(self, at: datetime) -> int:
        """Seconds since the agent last acted, where that is so long that its `verify` tools run first; else 0."""
        if self.spec is None or not self.spec.verify:
            return 0
        waited = (at - self.acted_at).total_seconds() if self.acted_at else 0
        return max(self.stale_seconds, int(waited), 1) if waited > self.spec.limits.stale_after else self.stale_seconds

    def effect_key(self, number: int, call: ToolCall) -> str:
        """The key of the one effect that a call has: in no other run of the thread, and under no other number.

        A call that has had its effect before the run was reset, or in a run that was closed, keeps that key.
        """
        if past := self.past_of(number, call):
            return past.key
        return effect_key(thread=self.thread, first_run_id=self.first_run_id, number=number, call_digest=call.digest)

    def past_of(self, number: int, call: ToolCall) -> PastEffect | None:
        """The effect that a call of the current step has had before, with these arguments; None for none.

        With arguments that a person has put in place of the LLM's, that is one which no other call has adopted.
        """
        own = next((each for each in self.calls if each.number == number), None)
        if own is None or own.call.digest == call.digest:
            return own.past if own else None  # what was asked and signed keeps the key that it was asked with
        return next((past for past in self.past if (past.tool, past.call_digest) == (call.name, call.digest)), None)

    def request(self, name: str) -> ApprovalRequest | None:
        """The open request of that id."""
        return next((request for request in self.requests if request.id == name), None)

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
            "remembered": [rule.view() for rule in self.remembered],
            "delegated": [right.view() for right in self.lent],
            "blocked": self.blocked.view() if self.blocked else None,
            "usage": self.usage.model_dump(),
            "result": self.result if self.outcome or self.awaiting else None,
            "updated_at": self.updated_at.isoformat(),
        }

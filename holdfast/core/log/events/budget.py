"""Events of a run's budget: reserved, low, spent, extended."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.interventions import Extension
from holdfast.core.budget.budget import Amounts, LimitName
from holdfast.core.log.events.base import Event, Stated


class BudgetReserved(Event):
    """The run's account reserved the expected cost of an LLM call that begins, or the allowance of a sub-agent that is
    about to start. Recorded from feature level 1 on, for runs with a budget.

    Followed by: for an LLM call, `llm_replied`, `context_compacted` or `reply_rejected`, which settles the actual cost;
    or `llm_call_lost`, `context_exceeded`, `learning_skipped` or `run_blocked`. A call that the provider rejects costs
    nothing; an abandoned one is charged the whole reservation. For an allowance, `subagent_started`; `subagent_ended`
    settles it.
    Correlate: a reservation belongs to the next of these events, an allowance to the `run_agent` call with the number
    `call`. A second allowance for the same call raises the first, because the sub-agent was started with a larger one
    before the run was reset.
    """

    type: Literal["budget_reserved"] = "budget_reserved"
    steps: int
    tokens: int
    nano_usd: int = 0
    """Nano-dollars; 0 without a cost budget."""
    call: int | None = None
    """The number of the call whose sub-agent gets the allowance; None for an LLM call."""


class BudgetLow(Event):
    """At least 80 % of a budget limit is spent. Recorded once for each limit; an extension allows it again.

    Followed by: the next call. Correlate: nothing.
    """

    type: Literal["budget_low"] = "budget_low"
    limit: LimitName
    spent: str
    """In the limit's own unit: steps, tokens, US dollars or seconds."""
    allowed: str
    notice: str
    """The message that the LLM reads."""


class BudgetSpent(Event):
    """The budget has no room for another call, except for its reserve: the LLM makes one last call, without tools, to
    return a partial result.

    Followed by: `budget_reserved` and `llm_replied`, then `run_blocked` with the cause `BudgetSpent`; only the latter
    if not even the last call fits.
    Correlate: the next `budget_extended` with a notice ends it.
    """

    type: Literal["budget_spent"] = "budget_spent"
    limit: LimitName
    """The limit that has no room."""
    last_call: bool = False
    """Whether the LLM makes a last call."""
    notice: str = ""
    """The message that the LLM reads in that case."""


class BudgetExtended(Stated):
    """A person extended the budget. If every limit has room again, a run that was blocked because its budget was spent
    is unblocked.

    Followed by: the event that the spent budget delayed.
    Correlate: `id` distinguishes repeated extensions.
    """

    STATEMENT = Extension

    type: Literal["budget_extended"] = "budget_extended"
    by: str
    reason: str = ""
    more: Amounts
    """The amounts added to the limits."""
    id: str = ""
    until: datetime | None = None
    resumes: bool = False
    """Whether the budget had been spent and now has room for further calls."""
    notice: str = ""
    """The message that the LLM reads in that case."""

    @property
    def said(self) -> Extension:
        """The statement as it was sent, which the signature covers."""
        return Extension(
            **self.more.model_dump(),
            by=self.by,
            reason=self.reason,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )

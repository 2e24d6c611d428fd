"""The events of a run's budget: reserved, low, spent, extended."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.extensions import Extension
from holdfast.core.budget.budget import Amounts, LimitName
from holdfast.core.log.events.base import Event, Proven


class BudgetReserved(Event):
    """An LLM call begins, and the account of the run has reserved what it is expected to cost; or a sub-agent is about
    to start, and the account has reserved its allowance. Recorded from feature level 1 on, for runs with a budget.

    Followed by: `llm_replied`, `context_compacted` or `reply_rejected`, which settles it with what it has cost; or
    `llm_call_lost`, `context_exceeded`, `learning_skipped` or `run_blocked`. A call that the provider refuses costs
    nothing; one that was given up is settled with all that was reserved. An allowance: `subagent_started`;
    `subagent_ended` settles it.
    Correlate: it belongs to the next of these; an allowance to the `run_agent` call of the number `call`. A second one
    for the same call raises the first: the sub-agent was started before the run was reset, with a larger one.
    """

    type: Literal["budget_reserved"] = "budget_reserved"
    steps: int
    tokens: int
    nano_usd: int = 0
    """Nano-dollars; 0 without a budget of money."""
    call: int | None = None
    """The number of the call whose sub-agent gets the allowance; None for an LLM call."""


class BudgetLow(Event):
    """At least 80 % of a limit of the budget is spent. Recorded once for each limit; after an extension, perhaps again.

    Followed by: the call that was due. Correlate: nothing.
    """

    type: Literal["budget_low"] = "budget_low"
    limit: LimitName
    spent: str
    """In the limit's own unit: steps, tokens, US dollars or seconds."""
    allowed: str
    notice: str
    """The message that the LLM reads."""


class BudgetSpent(Event):
    """The budget has no room for another call, except for the part that was kept back: the LLM makes one last call, of
    which no tool runs, to hand in what it has.

    Followed by: `budget_reserved` and `llm_replied`, then `run_blocked` with the cause `BudgetSpent`; at once where not
    even the last call fits.
    Correlate: the next `budget_extended` with a notice ends it.
    """

    type: Literal["budget_spent"] = "budget_spent"
    limit: LimitName
    """The limit that has no room."""
    last_call: bool = False
    """The LLM makes a last call."""
    notice: str = ""
    """The message that it reads then."""


class BudgetExtended(Event, Proven):
    """A person extended the budget. A run that its end has blocked is unblocked, where every limit has room again.

    Followed by: what was due before the end of the budget.
    Correlate: `id` tells repetitions apart.
    """

    type: Literal["budget_extended"] = "budget_extended"
    by: str
    reason: str = ""
    more: Amounts
    """What is added to the limits."""
    id: str = ""
    until: datetime | None = None
    resumes: bool = False
    """The budget had ended, and has room for further calls again."""
    notice: str = ""
    """The message that the LLM reads then."""

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

"""The budget of a run: before each LLM call, the run reserves its expected cost. Pure functions.

1. A call is made only if every limit has room for it and, after it, for one last call. The cost of the last call is
   held in reserve, so that the LLM can always return a partial result.
2. If there is no such room, the LLM makes the last call: a notice announces it, and no tool runs. Then the run is
   blocked, and makes no further call until a person extends the budget (`holdfast.core.run.inputs.extend`).
3. An estimate adds up the tokens of the last request and reply, of everything added since, and of a reply as long as
   the agent's options allow, or `REPLY_TOKENS`. A call exceeds the budget at most by its cost beyond that.
4. If money is limited and the LLM's list price is unknown, no call is made: nothing counts as free.
5. Time cannot be reserved: it is compared before each call, and ends no call that is under way.
6. A reservation covers one attempt. A failed attempt that may have cost something ends the call (`LLM_LOST`) and is
   charged, and the run makes the call again if its budget has room. So the account is right wherever a call ends.
"""

from collections.abc import Mapping
from typing import Any, Literal

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.base.canonical import exact_json
from holdfast.core.base.models import replace
from holdfast.core.budget.account import LLM_CALL, Account, Cost
from holdfast.core.budget.budget import MICRO, LimitName, amount_text
from holdfast.core.llm.messages import Usage
from holdfast.core.llm.names import split_reference
from holdfast.core.llm.outages import Outage, attempts_lost
from holdfast.core.llm.tokens import BYTES_PER_TOKEN, tokens_of
from holdfast.core.log import events as ev
from holdfast.core.run.state.next_actions import Block, ReportBudget
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.spec import FINAL_RESULT

BUDGET_SPENT = "BudgetSpent"
"""The cause of a block because the budget is used up."""

PRICE_UNKNOWN = "PriceUnknown"
"""The cause of a block because the budget limits money and the LLM has no list price."""

REPLY_TOKENS = 4_096
"""Expected maximum tokens of a reply, if the agent's `llm_options` set none."""

ENVELOPE_TOKENS, TOOL_TOKENS, MESSAGE_TOKENS = 40, 12, 20
"""Tokens of the field names in a request: once, for each tool's description, and for each message."""

NOTICE_TOKENS = 300
"""Tokens that Holdfast itself adds to a request: a notice, or the request for a summary."""

CLOSING_SECONDS = 60
"""Maximum seconds that are held in reserve; a tenth of the limit if that is less."""

_MAXIMA = ("max_completion_tokens", "max_output_tokens", "max_tokens")

SPENT = """\
[The budget of this run has ended: {limit}. This is your last reply, and no tool runs any more. Hand in what you have: \
what is done, what you have found out, and what is still to do.]"""

SPENT_BEFORE_RESULT = f"""\
[The budget of this run has ended: {{limit}}. This is your last reply, and no other tool runs any more. Give the \
result, as far as you have it, with a call of `{FINAL_RESULT}`. If you cannot, hand in what you have as text.]"""

LOW = "[Note: {spent} of {allowed} {limit} of this run's budget are used. Leave enough to hand in a result.]"

LAST_CALLS = 3
"""Lost attempts at the last call after which the budget is over: they exceed it by no more than their requests."""

NO_TOOL = "the budget of this run has ended, and no tool runs any more; hand in what you have"


def first_request(spec: AgentSpec, *, more: str = "") -> int:
    """Estimate the tokens with which every request of an agent begins, in the JSON in which they are sent.

    Args:
        spec: The agent.
        more: The text after its instructions: the task.
    """
    shown = {"name", "description", "parameters"}
    tools = [tool.model_dump(mode="json", include=shown) for tool in spec.tools]
    skills = [f"{skill.name}{skill.description}" for skill in spec.skills]
    fields = [spec.options.fields] if spec.options.fields else []
    texts = (spec.instructions, spec.strategies, *skills, tools, spec.llm_options, more, *fields)
    return ENVELOPE_TOKENS + TOOL_TOKENS * len(tools) + sum(tokens_of(exact_json(text)) for text in texts)


def message_tokens(text: str) -> int:
    """Estimate the tokens of one more message in a request, in the JSON in which it is sent."""
    return MESSAGE_TOKENS + tokens_of(exact_json(text))


def call_cost(state: RunState, *, summary: bool = False) -> Cost:
    """Return the expected cost of the next LLM call.

    Args:
        state: The state before.
        summary: The call is for a summary (context compaction), which is no step.
    """
    account = state.account
    request = account.request_tokens + (NOTICE_TOKENS if summary else 0)
    return account.cost_of(request=request, reply=reply_tokens(state), steps=0 if summary else 1)


def closing_reserve(state: RunState) -> Cost:
    """Return the cost held in reserve for the last call, after one more reply and a tool result of full length."""
    account, reply, result = state.account, reply_tokens(state), result_tokens(state)
    cost = account.cost_of(request=account.request_tokens + reply + result + NOTICE_TOKENS, reply=reply, steps=1)
    seconds = min(account.limits.get("seconds", 0) // 10, CLOSING_SECONDS * MICRO)
    return Cost(steps=cost.steps, tokens=cost.tokens, usd=cost.usd, seconds=seconds)


def last_call_cost(state: RunState) -> Cost:
    """Return the expected cost of the last call."""
    account = state.account
    return account.cost_of(request=account.request_tokens + NOTICE_TOKENS, reply=reply_tokens(state), steps=1)


def result_tokens(state: RunState) -> int:
    """Return the tokens of a tool result of full length."""
    return state.spec.limits.tool_result_chars // BYTES_PER_TOKEN if state.spec else 0


def reply_tokens(state: RunState) -> int:
    """Return the expected maximum tokens of a reply."""
    spec = state.spec
    if spec is None or (not spec.llms and spec.options.max_tokens is None):
        return _maximum(spec.llm_options if spec else {}, REPLY_TOKENS)
    otherwise = _maximum(spec.llm_options, spec.options.max_tokens or REPLY_TOKENS)
    endpoints = [split_reference(each)[0] for each in spec.llms] or ["chat"]
    return max(_maximum(spec.options.fields.get(each, {}), otherwise) for each in endpoints)


def _maximum(fields: Mapping[str, Any], otherwise: int) -> int:
    """Return the limit on a reply in a request's fields."""
    maxima = [fields[name] for name in _MAXIMA if type(fields.get(name)) is int and fields[name] > 0]
    return min(maxima, default=otherwise)


def short_of(state: RunState, *, summary: bool = False) -> LimitName | Literal[""]:
    """Return a limit that has no room for the next call and the last one after it; empty if all have."""
    account = state.account.lose(LLM_CALL)  # no call is under way, so one that is still reserved was lost
    return account.lacks(call_cost(state, summary=summary) + closing_reserve(state)) if account.limits else ""


def has_room(state: RunState, account: Account) -> bool:
    """Return whether a run with this account could make another call."""
    return not short_of(replace(state, account=replace(account, closing="", short="")))


def budget_due(state: RunState) -> ReportBudget | Block | None:
    """Return the action that the budget requires before the next LLM call; None for none."""
    account = state.account
    if not account.limits:
        return None
    if account.closing == "over":
        words = f"the budget has ended: {_spent_words(account, account.short)}"
        return Block(BUDGET_SPENT, f"{words}. The run makes no further LLM call before a person extends it (`extend`)")
    if account.unpriced:
        llm = state.spec.llm if state.spec else "the LLM"
        why = f"the budget limits US dollars, and genai-prices has no price for {llm}"
        return Block(PRICE_UNKNOWN, f"{why}: cancel the run, and start it with a budget of tokens, or another LLM")
    return ReportBudget() if account.newly_low() and not account.closing else None


def on_budget_report(state: RunState, action: ReportBudget) -> list[ev.AgentEvent]:
    """Return the events that report that the budget is low, or used up."""
    account = state.account
    if not action.short:
        return [_low(account, name) for name in account.newly_low()]
    fits = not account.lose(LLM_CALL).lacks_besides_time(last_call_cost(state))
    # While the run waits for a message, the LLM has already given its answer.
    last_call = fits and not state.awaits_message and not state.context.oversized
    words = SPENT_BEFORE_RESULT if state.spec and state.spec.gives_result else SPENT
    notice = words.format(limit=_spent_words(account, action.short)) if last_call else ""
    return [ev.BudgetSpent(limit=action.short, last_call=last_call, notice=notice)]


def _low(account: Account, name: LimitName) -> ev.BudgetLow:
    spent, allowed = amount_text(name, account.spent.of(name)), amount_text(name, account.limits[name])
    return ev.BudgetLow(
        limit=name, spent=spent, allowed=allowed, notice=LOW.format(spent=spent, allowed=allowed, limit=name)
    )


def _spent_words(account: Account, name: LimitName | Literal[""]) -> str:
    """`4.9 of 5 usd are used, and the rest is too little for another call`."""
    if not name:
        return "it is used up"
    spent, allowed = amount_text(name, account.used(name)), amount_text(name, account.limits[name])
    return f"{spent} of {allowed} {name} are used, and the rest is too little for another call"


def on_call(state: RunState, *, summary: bool = False) -> list[ev.AgentEvent]:
    """Return the event that reserves the expected cost of an LLM call; none for a run without a budget."""
    account = state.account
    if not account.limits:
        return []
    cost = call_cost(state, summary=summary)
    return [ev.BudgetReserved(steps=cost.steps, tokens=cost.tokens, nano_usd=cost.usd)]


def actual_cost(
    account: Account, usage: Usage, cost: int | None, *, steps: int, attempt: int = 1, outage: Outage | None = None
) -> Cost:
    """Return the actual cost of an LLM call that has a reply.

    An earlier attempt that may have cost something counts with its request. There is none, unless a worker of a release
    without budgets made the call.

    Args:
        account: The run's account.
        usage: The usage of the reply.
        cost: Nano-dollars; None if unknown, for an estimate by the price of the agent's LLM.
        steps: 1 for a reply, 0 for a summary.
        attempt: Temporal's attempt that succeeded.
        outage: The recorded attempts before that.
    """
    request, reply = usage.prompt_tokens, usage.completion_tokens
    own = account.cost_of(request=request, reply=reply, steps=steps)
    if cost is not None and account.priced:
        own = Cost(steps=steps, tokens=own.tokens, usd=cost)
    lost = attempts_lost(outage, attempt=attempt)
    return own + account.cost_of(request=lost * request, reply=0, steps=0)


def charge_lost_call(account: Account, event: ev.LLMCallLost) -> Account:
    """Return the account after an LLM call was lost. After too many lost last calls, the budget is over.

    Raises:
        EventOutOfPlace: No call was reserved.
    """
    lost = account.lost + event.attempts
    unknown = event.attempts - (event.usage is not None)
    cost = account.cost_of(request=unknown * event.request_tokens, reply=0, steps=0)
    if event.usage:
        cost += actual_cost(account, event.usage, event.cost, steps=0)
    settled = account.settle(LLM_CALL, cost)
    closing = "over" if account.closing and lost >= LAST_CALLS else account.closing
    return replace(settled, lost=lost, closing=closing)

"""The fold of a run's account: reservations, settlements, running time and extensions."""

from datetime import timedelta

from holdfast.core.base.models import replace
from holdfast.core.budget.account import LLM_CALL, Account, Cost
from holdfast.core.budget.tree import allowance_name, reserve_allowance, settle_allowance
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.tokens import BYTES_PER_TOKEN, MEDIA_TOKENS, tokens_of
from holdfast.core.log import events as ev
from holdfast.core.run.fold.imports import join_budget
from holdfast.core.run.rules.budget import (
    BUDGET_SPENT,
    MESSAGE_TOKENS,
    actual_cost,
    charge_lost_call,
    first_request,
    message_tokens,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.subagents import RUN_AGENT
from holdfast.errors import EventOutOfPlace

_REFUSED = "LLMRejected"
"""The value of `LLM_REJECTED` in `holdfast.core.run.contracts`, which imports snapshots, and so this fold."""

_MICROSECOND = timedelta(microseconds=1)


def require_budget(state: RunState, event: ev.AgentEvent) -> RunState:
    """Return the state unchanged: `keep_account` changes the account.

    Raises:
        EventOutOfPlace: The run has no budget.
    """
    if not state.account.limits:
        raise EventOutOfPlace("the run has no budget")
    return state


def extend_budget(state: RunState, event: ev.BudgetExtended) -> RunState:
    """Use up a signed extension.

    Raises:
        EventOutOfPlace: The run has no budget.
    """
    require_budget(state, event)
    if not event.proof or event.until is None:
        return state
    digest = event.said.signed_digest(state.thread)
    return replace(state, authority=state.authority.use_statement(digest, until=event.until, at=event.at))


def open_account(before: RunState, event: ev.AgentLoaded, after: RunState) -> RunState:
    """Open the account of a run whose agent has a budget. An imported run keeps its expenses."""
    assert event.budget is not None
    own = Account.open(event.budget, event.price, tokens=first_request(event.spec, more=before.task))
    own = replace(own, is_allowance=True) if before.origin.inherited_budget else own
    if before.next_agent and before.account.limits:  # the account stays, within the lower limits
        return replace(after, account=before.account.continue_with(own))
    return replace(after, account=join_budget(after, before.account, own) if before.resumes_import else own)


def keep_account(before: RunState, event: ev.AgentEvent, after: RunState) -> RunState:
    """Return the state after an event, with the account of the run's budget updated.

    Raises:
        EventOutOfPlace: It reserves more than the budget has room for, or settles an amount that was never reserved.
    """
    if isinstance(event, ev.RunStarted):
        return replace(after, account=Account())
    account = before.account
    if before.status == "running":
        account = account.spend(Cost(seconds=max(0, (event.at - before.updated_at) // _MICROSECOND)))
    account = _estimate_request(before, event, _reserve_or_settle(replace(before, account=account), event))
    changed = replace(after, account=account)
    if isinstance(event, ev.LLMReplied) and before.account.closing == "asked" and event.message:
        changed = replace(changed, result=event.message.text, structured=False)
    if isinstance(event, ev.BudgetExtended) and event.resumes:
        blocked = after.blocked if after.blocked and after.blocked.cause != BUDGET_SPENT else None
        changed = replace(changed, blocked=blocked, account=replace(account, closing="", short=""))
    return changed


def _reserve_or_settle(state: RunState, event: ev.AgentEvent) -> Account:
    """Return the account after any reservation or settlement by the event, or its report that the budget is used up."""
    account = state.account
    match event:
        case ev.BudgetReserved(call=int()):
            return _reserve_allowance(state, event)
        case ev.SubagentEnded():
            return settle_allowance(account, event.number, event.cost)
        case ev.ToolCallFinished():
            name = allowance_name(event.number)
            unused = name in account.reserved and state.subagents.find(event.number) is None
            return account.settle(name, Cost()) if unused else account
        case ev.BudgetReserved():
            return account.reserve(LLM_CALL, Cost(steps=event.steps, tokens=event.tokens, usd=event.nano_usd))
        case ev.LLMReplied():
            _require_summary(account, expected=False)
            cost = actual_cost(account, event.usage, event.cost, steps=1, attempt=event.attempt, outage=event.outage)
            settled = account.settle(LLM_CALL, cost)
            return replace(settled, closing="over") if account.closing == "asked" else settled
        case ev.ContextCompacted() if event.usage.prompt_tokens or event.usage.completion_tokens:
            _require_summary(account)
            cost = actual_cost(account, event.usage, event.cost, steps=0, outage=event.outage)
            return account.settle(LLM_CALL, cost)
        case ev.ReplyRejected() if LLM_CALL in account.reserved:
            _require_summary(account)
            cost = actual_cost(account, event.usage, event.cost, steps=0, outage=event.outage)
            return account.settle(LLM_CALL, cost)
        case ev.LLMCallLost():
            return charge_lost_call(account, event)
        case ev.NodeAwaited(number=0) if LLM_CALL in account.reserved:
            return account.settle(LLM_CALL, Cost())
        case ev.ContextExceeded():
            settled = account.settle(LLM_CALL, Cost()) if LLM_CALL in account.reserved else account
            return replace(settled, closing="over") if account.closing == "asked" else settled
        case ev.RunBlocked(cause=cause) if cause == _REFUSED and LLM_CALL in account.reserved:
            return account.settle(LLM_CALL, Cost())
        case ev.RunFinished():
            return account.lose(LLM_CALL)
        case ev.BudgetLow():
            return replace(account, low=(*account.low, event.limit))
        case ev.BudgetSpent():
            return replace(account, closing="asked" if event.last_call else "over", short=event.limit, lost=0)
        case ev.RunReclassified() if event.budget:
            return replace(account, limits={**account.limits, **event.budget.units})
        case ev.BudgetExtended():
            return account.extend(event.more, id=event.id, by=event.by, key=event.key)
        case _:
            return account


def _reserve_allowance(state: RunState, event: ev.BudgetReserved) -> Account:
    """Return the account with the allowance that an event reserves for a sub-agent.

    Raises:
        EventOutOfPlace: The call starts no sub-agent, or already has an allowance, or there is no room.
    """
    assert event.call is not None
    call = state.calls.get(event.call)
    if call.phase != "started" or call.call.name != RUN_AGENT or state.subagents.find(event.call):
        raise EventOutOfPlace(f"call {event.call} waits for no start of a sub-agent")
    cost = Cost(steps=event.steps, tokens=event.tokens, usd=event.nano_usd)
    return reserve_allowance(state.account, event.call, cost)


def _require_summary(account: Account, *, expected: bool = True) -> None:
    """Check that an amount is reserved for a summary, or, if `expected` is false, for a reply, which is a step.

    Raises:
        EventOutOfPlace: It is reserved for the other, or not at all.
    """
    reserved = account.reserved.get(LLM_CALL)
    if reserved is None or (reserved.steps == 0) is not expected:
        raise EventOutOfPlace(f"no call for a {'summary' if expected else 'reply'} was reserved")


def _estimate_request(state: RunState, event: ev.AgentEvent, account: Account) -> Account:
    """Return the account with a new estimate of the next request's tokens."""
    match event:
        case ev.LLMReplied():
            return replace(account, request_tokens=event.usage.prompt_tokens + event.usage.completion_tokens)
        case ev.ContextCompacted():
            return replace(account, request_tokens=account.fixed_tokens + message_tokens(event.summary_message))
        case ev.ToolCallFinished():
            media = 0 if isinstance(event.content, str) else sum(block.type != "text" for block in event.content)
            more = message_tokens(text_of(event.content)) + media * MEDIA_TOKENS
        case ev.MessageTaken():
            message = state.inbox.find(event.message)  # its text is clipped, its size is exact
            size = -(-message.size // BYTES_PER_TOKEN)
            more = MESSAGE_TOKENS + (tokens_of(message.text) + MEDIA_TOKENS if message.more else size)
        case ev.MemoryRecalled():
            more = sum(message_tokens(tier.text) for tier in event.tiers)
            account = replace(account, fixed_tokens=account.fixed_tokens + more)
        case ev.StateVerified():
            more = sum(message_tokens(finding.content) for finding in event.findings)
        case ev.BudgetLow() | ev.BudgetSpent() | ev.BudgetExtended() | ev.ReplyRejected():
            more = message_tokens(event.notice)
        case _:
            return account
    return replace(account, request_tokens=account.request_tokens + more)

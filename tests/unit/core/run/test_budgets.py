"""Budgets: the reservation before each LLM call, the settlement after it, and a run's behaviour at a limit."""

from contextlib import nullcontext
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.core.agents.agent import Limits, Memory
from holdfast.core.authority.policy import Extensions, Policy, Terms, allow
from holdfast.core.budget.account import LLM_CALL, Account, Cost, TokenPrice
from holdfast.core.budget.budget import LIMITS, Amounts, Budget, read_amounts
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentLoaded,
    BudgetExtended,
    BudgetLow,
    BudgetReserved,
    BudgetSpent,
    LearningSkipped,
    LLMCallLost,
    LLMReplied,
    RunBlocked,
    SignalRejected,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_LOST, LLM_REJECTED, NOT_SEALED
from holdfast.core.run.contracts.llm_calls import LLMFailed, LLMReply, LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.rules.budget import last_call_cost
from holdfast.core.run.views.status import run_view, state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.endpoints.prices import cost_of, token_price
from holdfast.errors import EventOutOfPlace
from holdfast.gateway.bodies import BudgetBody
from tests.support.people import PEOPLE
from tests.support.runs import UNGUARDED, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.activities_.test_outages import failed
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_ending import keeper

PRICE = TokenPrice(request=250, reply=2_000)
SMALL = {"llm_options": {"max_tokens": 100}, "limits": Limits(max_steps=50, tool_result_chars=400, **UNGUARDED)}
"""An agent whose calls have small estimates."""


def budgeted(budget: Budget | None, *, price: TokenPrice | None = PRICE, begin: Any = None, **spec: Any) -> Thread:
    """Return a thread whose agent has this budget, with its first LLM call in progress if the budget allows one."""
    thread = Thread(agent_spec(budget=budget, **{**SMALL, **spec}), **(begin or {}))
    thread.price = price if budget is None or budget.usd is not None else None
    thread.load(1)
    return thread


def events_of(thread: Thread, kind: Any) -> list[Any]:
    """Return the events of that kind."""
    return [event for event in thread.log if isinstance(event, kind)]


def step(thread: Thread, **usage: int) -> None:
    """Answer the LLM call in progress with a call of `look`, and end that."""
    count = thread.state.calls.count
    reply = calls("look", first=count)
    thread.reply(reply.model_copy(update={"usage": Usage(**{"prompt_tokens": 10, "completion_tokens": 1, **usage})}))
    if thread.running_calls:
        thread.finish(count + 1)


def extend(thread: Thread, **fields: Any) -> str:
    """Extend the budget by update; return the outcome."""
    return thread.update("extend", {"by": "alice", **fields})["outcome"]


def settled_amounts(thread: Thread) -> tuple[int, int]:
    """Return the spent steps and tokens."""
    return thread.state.account.spent.steps, thread.state.account.spent.tokens


def check(thread: Thread) -> None:
    """Check that the log is complete, and that its audit finds no fault."""
    thread.check_consistent()
    assert fault(thread.log) is None


# Amounts.


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"steps": 0},
        {"steps": -1},
        {"steps": True},
        {"steps": 1.5},
        {"tokens": 10**13},
        {"usd": "NaN"},
        {"usd": float("nan")},
        {"usd": "Infinity"},
        {"usd": "-1"},
        {"usd": 0},
        {"usd": True},
        {"usd": "1E+999999"},
        {"usd": "1E-999999"},
        {"usd": "0.0000000001"},
        {"seconds": 10**12},
        {"seconds": "x"},
    ],
)
def test_amounts_are_numbers_of_a_sensible_size(wrong: dict[str, Any]) -> None:
    """A negative, infinite, endlessly long or non-numeric amount never becomes a limit."""
    with pytest.raises(ValidationError):
        Amounts(**wrong)


def test_amounts_are_read_as_people_write_them() -> None:
    """Each limit may appear once, with the suffixes that people use; the printed form can be read again."""
    amounts = Amounts(**read_amounts("usd=2.50, tokens=100k,steps=7,seconds=1h"))
    assert amounts.words == "steps=7,tokens=100000,usd=2.5,seconds=3600"
    assert Amounts(**read_amounts(amounts.words)) == amounts
    assert amounts.units == {"steps": 7, "tokens": 100_000, "usd": 2_500_000_000, "seconds": 3_600_000_000}
    for wrong in ("", "usd", "usd=1,usd=2", "eur=1", "tokens=1.5k", "tokens=-1", "steps=" + "9" * 400):
        with pytest.raises(ValueError, match=r"write|whole number|empty"):
            read_amounts(wrong)


def test_a_budget_is_only_ever_narrowed() -> None:
    """The smaller of two limits counts, and a limit that only one of them has stays."""
    own, other = Budget(steps=5, usd="1"), Budget(steps=9, tokens=10, usd="0.50")
    assert own.narrowed(other) == other.narrowed(own) == Budget(steps=5, tokens=10, usd="0.5")
    assert own.narrowed(None) == own


# The account.

COSTS = st.builds(
    Cost, steps=st.integers(0, 1), tokens=st.integers(0, 60), usd=st.integers(0, 10**10), seconds=st.just(0)
)


@settings(max_examples=50)
@given(
    st.fixed_dictionaries({"steps": st.integers(1, 8), "tokens": st.integers(1, 200), "usd": st.integers(1, 5)}),
    st.lists(st.tuples(COSTS, COSTS, st.booleans(), st.sampled_from([LLM_CALL, "a", "b"])), max_size=12),
)
def test_nothing_is_reserved_beyond_the_limits(limits: dict[str, int], plan: list[Any]) -> None:
    """Before each call, spent + reserved <= limits for any number of parallel calls; sums balance to the nano-dollar;
    and no limit is exceeded by more than the calls in progress cost beyond their estimates.
    """
    account = Account.open(Budget.model_validate(limits), PRICE, tokens=0)
    spent, beyond = Cost(), dict.fromkeys(LIMITS, 0)
    for estimate, actual, lost, name in plan:
        fits = not account.lose(name).lacks(estimate)
        if name in account.reserved:
            spent += Cost(0, account.reserved[name].tokens, account.reserved[name].usd)
        if not fits:
            with pytest.raises(EventOutOfPlace):
                account.reserve(name, estimate)
            account = account.lose(name)
            continue
        account = account.reserve(name, estimate)
        assert all(account.used(each) <= account.limits[each] for each in account.limits)
        if not lost:
            account = account.settle(name, actual)
            spent += actual
            for each in LIMITS:
                beyond[each] += max(0, actual.of(each) - estimate.of(each))
        assert account.spent == spent
        assert all(account.spent.of(each) <= account.limits[each] + beyond[each] for each in account.limits)
        if any(account.used(each) > account.limits[each] for each in account.limits):
            break  # nothing fits any more; the property is about the call that exceeded


def test_prices_are_exact_and_survive_wrong_counts() -> None:
    """List prices are whole nano-dollars, rounded up; an endpoint that reports nonsense stops no run."""
    assert cost_of("gpt-5-mini", Usage(prompt_tokens=4, completion_tokens=1)) == 4 * 250 + 2_000
    assert token_price("gpt-5-mini") == PRICE
    assert cost_of("gpt-5-mini", Usage(prompt_tokens=10, cached_tokens=20, cache_write_tokens=5)) == 250
    assert token_price("no such LLM") is None


# A run.


def test_each_call_is_reserved_before_it_and_settled_after_it() -> None:
    """The estimate is reserved while the call is in progress; then its cost is settled to the nano-dollar."""
    thread = budgeted(Budget(usd="1", tokens=100_000, steps=20))
    (reserved,) = events_of(thread, BudgetReserved)
    account = thread.state.account
    assert account.reserved == {LLM_CALL: Cost(1, reserved.tokens, reserved.nano_usd)}
    assert reserved.nano_usd == (reserved.tokens - 100) * 250 + 100 * 2_000
    assert run_view(thread.state)["now"] == "calls the LLM for step 1"
    usage = Usage(prompt_tokens=1_000, completion_tokens=3)
    thread.reply(calls("look").model_copy(update={"usage": usage, "cost": 123_456_789}))
    assert (thread.state.account.spent.tokens, thread.state.account.spent.usd) == (1_003, 123_456_789)
    assert not thread.state.account.reserved
    thread.finish(1)
    assert events_of(thread, BudgetReserved)[1].tokens > 1_003 + 100
    thread.reply(says("done"))
    assert thread.state.outcome == "completed"
    assert thread.state.account.spent.usd == 123_456_789 + 10 * 250 + 2_000, "without a price of its own: the estimate"
    check(thread)


def test_a_run_without_a_budget_records_nothing_of_it() -> None:
    """Its events, its state and its requests are those of a release without budgets."""
    thread = budgeted(None)
    step(thread)
    thread.reply(says("done"))
    assert not events_of(thread, BudgetReserved | BudgetLow | BudgetSpent)
    (loaded,) = events_of(thread, AgentLoaded)
    assert (loaded.budget, loaded.price, state_view(thread.state)["budget"]) == (None, None, None)
    assert extend(loaded_thread(features=1), usd="1") == "no_budget"


def test_people_and_the_llm_are_notified_once_at_80_percent() -> None:
    """The notice comes once for each limit, before the next call."""
    thread = budgeted(Budget(steps=10))
    thread.notify = True
    for _ in range(8):
        step(thread)
    (low,) = events_of(thread, BudgetLow)
    assert (low.limit, low.spent, low.allowed) == ("steps", "8", "10")
    assert any("8 of 10 steps of this run's budget are used" in str(each["content"]) for each in thread.messages())
    step(thread)
    assert len(events_of(thread, BudgetLow)) == 1
    check(thread)


def test_the_last_call_is_reserved_and_then_nothing_runs_until_an_extension() -> None:
    """The LLM reads the notice, no tool runs, messages wait, and its partial result is shown; then the run resumes."""
    thread = budgeted(Budget(steps=3))
    step(thread)
    step(thread)
    (spent,) = events_of(thread, BudgetSpent)
    assert (spent.limit, spent.last_call) == ("steps", True)
    assert thread.calling_llm()
    assert "This is your last reply" in str(thread.messages()[-1]["content"])
    started = len(events_of(thread, ToolCallStarted))
    thread.reply(calls("look", first=7))
    assert len(events_of(thread, ToolCallStarted)) == started
    assert events_of(thread, ToolCallFinished)[-1].status == "invalid"
    assert (thread.state.status, events_of(thread, RunBlocked)[-1].cause) == ("blocked", "BudgetSpent")
    sent = len(thread.sent)
    assert thread.say("and now?") == "queued"
    thread.say("now!", when_busy="interrupt")
    thread.signal("retry", {"by": "alice"})
    assert events_of(thread, SignalRejected)[-1].outcome == "budget_spent"
    assert (len(thread.sent), thread.state.status) == (sent, "blocked")
    assert "waits for a person to extend its budget" in run_view(thread.state)["now"]
    assert extend(thread, steps=1) == "accepted", "too little for a call and the last one after it"
    assert thread.state.status == "blocked"
    assert extend(thread, steps=4) == "accepted"
    assert thread.calling_llm()
    texts = str(thread.messages())
    assert "and now?" in texts
    assert "The budget of this run was extended: steps=4" in texts
    step(thread)
    thread.reply(says("done"))
    assert thread.state.outcome == "completed"
    check(thread)


def test_the_partial_result_is_the_result_so_far() -> None:
    """The partial result is shown while the run waits for an extension."""
    thread = budgeted(Budget(steps=1))
    thread.reply(says("half of it"))
    assert (thread.state.status, state_view(thread.state)["result"]) == ("blocked", "half of it")
    check(thread)


def test_an_extension_before_the_last_reply_abandons_that_call() -> None:
    """The last call asked the LLM to stop; after an extension, it is asked again, and tools run."""
    thread = budgeted(Budget(steps=2))
    step(thread)
    assert thread.state.account.closing == "asked"
    assert extend(thread, steps=5) == "accepted"
    assert thread.calling_llm()
    assert run_view(thread.state)["budget"]["closing"] == ""
    step(thread)
    assert len(events_of(thread, ToolCallStarted)) == 2
    check(thread)


def test_money_without_a_price_blocks_the_run() -> None:
    """No call counts as free: the reason names the LLM without a price, and the remedy."""
    thread = budgeted(Budget(usd="1"), price=None)
    assert not thread.sent
    (blocked,) = events_of(thread, RunBlocked)
    assert blocked.cause == "PriceUnknown"
    assert "genai-prices has no price for scripted" in blocked.message
    assert "a budget of tokens" in blocked.message
    check(thread)


@pytest.mark.parametrize("budget", [Budget(usd="0.0001"), Budget(tokens=50)])
def test_a_budget_that_is_too_small_for_one_call_makes_none(budget: Budget) -> None:
    """The budget does not suffice even for the last call."""
    thread = budgeted(budget)
    assert not thread.sent
    assert events_of(thread, BudgetSpent)[-1].last_call is False
    assert thread.state.status == "blocked"
    check(thread)


def test_time_counts_only_while_the_run_works() -> None:
    """Waiting for people costs no time. An extension counts from now: an overrun need not be granted twice."""
    thread = budgeted(Budget(seconds=600))
    thread.reply(calls("pay"))
    thread.advance(days=2)
    thread.decide("1")
    thread.finish(1)
    assert thread.state.account.spent.seconds < 1_000_000
    thread.advance(hours=2)
    step(thread)
    assert events_of(thread, BudgetSpent)[-1].limit == "seconds"
    thread.reply(says("so far"))
    assert thread.state.status == "blocked"
    thread.advance(days=1)
    assert extend(thread, seconds=600) == "accepted"
    assert thread.calling_llm()
    assert thread.state.account.left("seconds") == timedelta(minutes=10) // timedelta(microseconds=1)
    check(thread)


@pytest.mark.parametrize("cause", [LLM_REJECTED, CONTEXT_TOO_LONG])
@pytest.mark.parametrize("lost", [0, 2])
def test_a_rejection_costs_only_its_proven_cost(cause: str, lost: int) -> None:
    """A provider's rejection costs nothing; if middleware rejects a reply, the request that was sent counts."""
    thread = budgeted(Budget(tokens=100_000))
    thread.lose(cause, attempts=lost, request_tokens=70)
    assert thread.state.account.spent.tokens == lost * 70
    assert len(events_of(thread, LLMCallLost)) == bool(lost)
    assert thread.state.blocked
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_reply_that_is_not_recorded_is_charged_with_what_it_has_used() -> None:
    """A reply is charged if middleware rejected it or it was not stored; other attempts count with their requests."""
    thread = budgeted(Budget(tokens=100_000))
    usage = Usage(prompt_tokens=500, completion_tokens=9)
    for cause, attempts, spent in ((LLM_LOST, 1, 509), (LLM_REJECTED, 3, 509 + 509 + 2 * 70)):
        thread.lose(cause, attempts=attempts, request_tokens=70, usage=usage)
        assert thread.state.account.spent.tokens == spent
    thread.check_consistent()
    assert fault(thread.log) is None


@pytest.mark.parametrize("cause", [LLM_REJECTED, CONTEXT_TOO_LONG])
@pytest.mark.parametrize(
    "proof", [None, {"answers": "7.other"}, {"cause": "another"}], ids=["none", "of another call", "of another cause"]
)
def test_a_rejection_without_proof_is_a_lost_call(cause: str, proof: dict[str, str] | None) -> None:
    """It blocks the run, and costs its estimate; its claims about earlier attempts do not count."""
    thread = budgeted(Budget(tokens=100_000))
    estimate = events_of(thread, BudgetReserved)[-1].tokens
    (call,) = thread.waiting(LLMRequest)
    assert isinstance(call, Call)
    rejection = None
    if proof is not None:
        rejection = LLMFailed.model_validate({"answers": call.request.order, "cause": cause} | proof)
    thread.fail(call, cause, "no", failed(3).model_dump(mode="json"), proof=rejection)
    assert thread.state.blocked
    assert thread.state.blocked.cause == NOT_SEALED
    thread.signal("retry", {"by": "alice"})
    assert thread.calling_llm()
    assert thread.state.account.spent.tokens == estimate
    check(thread)


def test_attempts_before_a_rejected_summary_are_charged() -> None:
    """Failed attempts count as those of a usable summary do."""
    thread = budgeted(Budget(tokens=100_000))
    step(thread, prompt_tokens=1_000)
    before = thread.state.account.spent.tokens
    thread.refuse(CONTEXT_TOO_LONG)
    usage = Usage(prompt_tokens=70, completion_tokens=1)
    outage = failed(3).model_copy(update={"costly": 2})
    thread.reply(LLMReply(rejected="it is empty.", usage=usage, outage=outage))
    assert thread.state.account.spent.tokens == before + 3 * 70 + 1
    thread.check_consistent()
    assert fault(thread.log) is None


def test_rejected_and_lost_calls_are_settled() -> None:
    """A call that the provider rejects costs nothing, a lost call its estimate, and a rejected reply its usage."""
    thread = budgeted(Budget(tokens=100_000, steps=20))
    thread.refuse(LLM_REJECTED)
    assert (thread.state.status, thread.state.account.used("tokens")) == ("blocked", 0)
    thread.signal("retry", {"by": "alice"})
    estimate = events_of(thread, BudgetReserved)[-1].tokens
    thread.refuse("APITimeoutError")
    thread.signal("retry", {"by": "alice"})
    assert settled_amounts(thread) == (0, estimate)
    rejected = says("").model_copy(update={"rejected": "it was cut off."})
    thread.reply(rejected)
    assert settled_amounts(thread) == (1, estimate + 11)
    thread.say("stop", when_busy="interrupt")
    assert thread.calling_llm()
    thread.refuse(CONTEXT_TOO_LONG)
    check(thread)


def test_a_failed_last_call_can_be_made_again() -> None:
    """The reserved last part still covers it, however the first attempt ended."""
    thread = budgeted(Budget(steps=2))
    step(thread)
    assert thread.state.account.closing == "asked"
    thread.refuse("InternalServerError")
    thread.signal("retry", {"by": "alice"})
    assert thread.calling_llm()
    thread.reply(says("so far"))
    assert thread.state.blocked
    assert thread.state.blocked.cause == "BudgetSpent"
    check(thread)


def test_a_lost_call_is_charged_with_its_request_and_made_again() -> None:
    """The next call reports the number of lost calls, until one has a reply."""
    thread = budgeted(Budget(tokens=100_000, steps=9))
    thread.lose(request_tokens=70)
    thread.lose(attempts=2, request_tokens=70)
    (call,) = thread.waiting(LLMRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, LLMRequest)
    assert call.request.lost == 3
    assert settled_amounts(thread) == (0, 210)
    thread.reply(says("done"))
    assert settled_amounts(thread) == (1, 221)
    assert thread.state.account.lost == 0
    check(thread)


def test_earlier_losses_leave_the_last_call_its_attempts() -> None:
    """Three of its own attempts may be lost, however many the step lost before."""
    thread = budgeted(Budget(tokens=30_000))
    left = last_call_cost(thread.state).tokens + 100  # the low-budget notice is sent with it, too
    thread.lose(attempts=5, request_tokens=(30_000 - left) // 5)
    assert thread.state.account.closing == "asked"
    thread.lose(request_tokens=1_000)
    thread.lose(request_tokens=1_000)
    assert thread.calling_llm()
    thread.lose(request_tokens=1_000)
    assert (thread.calling_llm(), thread.state.status) == (False, "blocked")
    check(thread)


@pytest.mark.parametrize("proof", [None, "7.other"], ids=["none", "of another call"])
def test_a_lost_call_without_proof_is_not_made_again(proof: str | None) -> None:
    """The lost call blocks the run and counts as reserved; otherwise anybody could make a run repeat its LLM calls."""
    thread = budgeted(Budget(tokens=100_000))
    estimate = events_of(thread, BudgetReserved)[-1].tokens
    (call,) = thread.waiting(LLMRequest)
    forged = LLMFailed(answers=proof, cause=LLM_LOST, lost=1, request_tokens=0) if proof else None
    thread.fail(call, LLM_LOST, "no", proof=forged)
    assert thread.state.blocked
    assert thread.state.blocked.cause == NOT_SEALED
    thread.signal("retry", {"by": "alice"})
    assert settled_amounts(thread) == (0, estimate)
    check(thread)


def test_learning_ends_at_the_end_of_the_budget() -> None:
    """The run has its answer, and ends."""
    spec = keeper(memory=Memory(learn=True))
    thread = budgeted(Budget(tokens=4_000), tools=spec.tools, policy=spec.policy, memory=spec.memory)
    thread.reply(says("done"))
    thread.lose(request_tokens=100)
    assert thread.calling_llm()
    thread.lose(request_tokens=3_500)
    assert thread.state.outcome == "completed"
    assert events_of(thread, LearningSkipped)
    check(thread)


def test_compactions_are_reserved_and_settled_too() -> None:
    """A summary is no step; a rejected one has a cost as well."""
    thread = budgeted(Budget(tokens=100_000), begin={"idle_limit": 60.0})
    thread.reply(says("hello"))
    assert thread.update("compact", {"by": "alice"})["outcome"] == "accepted"
    assert thread.summarizing()
    assert events_of(thread, BudgetReserved)[-1].steps == 0
    thread.reply(says("").model_copy(update={"rejected": "cut off."}))
    assert thread.summarizing()
    assert settled_amounts(thread) == (1, 22)
    thread.reply(says("a summary"))
    assert settled_amounts(thread) == (1, 33)
    check(thread)


def test_a_message_to_a_closed_thread_begins_with_the_agents_own_budget() -> None:
    """The start's narrower budget applied only to that run."""
    thread = budgeted(Budget(steps=9), begin={"budget": Budget(steps=4)})
    assert thread.state.account.limits == {"steps": 4}
    thread.reply(says("done"))
    thread.reopen()
    thread.load_thread()
    thread.load(1)
    assert thread.state.account.limits == {"steps": 9}
    assert thread.state.account.spent.steps == 0
    check(thread)


def test_a_start_only_narrows_the_agents_budget() -> None:
    """A sealed start only narrows it, too: the policy says who may grant more, and `extend` checks that."""
    thread = budgeted(Budget(steps=5), begin={"budget": Budget(steps=50, tokens=60_000)})
    assert thread.state.account.limits == {"steps": 5, "tokens": 60_000}


def test_a_worker_without_budgets_starts_no_run_with_a_budget() -> None:
    """The worker rejects the start, because the run would have no limit."""
    thread = Thread(budget=Budget(steps=5))
    thread.load(0)
    assert (thread.state.outcome, thread.state.failure) == ("failed", "BudgetUnsupported")


def test_the_account_is_carried_into_new_temporal_runs() -> None:
    """A run that continues as new neither repeats nor loses an amount."""
    thread = budgeted(Budget(tokens=100_000, usd="5"), begin={})
    thread.notify = False
    for _ in range(4):
        step(thread)
    thread.continue_suggested = True
    step(thread)
    while thread.waiting(ArchiveRequest):
        thread.archive(features=1)
    assert thread.snapshots
    assert settled_amounts(thread) == (5, 55)
    check(thread)


# People who may extend.


@pytest.mark.parametrize(
    ("policy", "by", "outcome"),
    [
        ({}, "dana", "accepted"),
        ({}, "agent", "not_entitled"),
        ({}, "", "malformed"),
        ({"approvers": PEOPLE}, "alice", "accepted"),
        ({"approvers": PEOPLE}, "carol", "accepted"),
        ({"approvers": PEOPLE}, "mallory", "not_entitled"),
        ({"approvers": PEOPLE, "extensions": Extensions(by=("finance",))}, "alice", "accepted"),
        ({"approvers": PEOPLE, "extensions": Extensions(by=("finance",))}, "carol", "not_entitled"),
        ({"extensions": Extensions(by=("dana",))}, "alice", "not_entitled"),
        ({"extensions": Extensions(most=Amounts(steps=5))}, "dana", "accepted"),
        ({"extensions": Extensions(most=Amounts(steps=4))}, "dana", "too_much"),
        ({"extensions": Extensions(most=Amounts(usd="4"))}, "dana", "too_much"),
    ],
)
def test_the_policy_limits_who_may_extend_and_by_how_much(policy: dict[str, Any], by: str, outcome: str) -> None:
    """By default the approvers and the requester may, or anybody if there are no approvers; never the agent itself."""
    thread = budgeted(Budget(steps=3), policy=Policy(rules=(allow("look"),), **policy), begin={"by": "carol"})
    assert extend(thread, steps=5, by=by) == outcome
    assert thread.state.account.limits == {"steps": 8 if outcome == "accepted" else 3}
    check(thread)


def test_a_requester_who_may_not_approve_may_not_extend() -> None:
    """Otherwise a requester would grant an amount that another person has to grant."""
    policy = Policy(rules=(allow("look"),), approvers=PEOPLE, terms=Terms(requester_may_decide=False))
    thread = budgeted(Budget(steps=3), policy=policy, begin={"by": "carol", "by_proven": True})
    if not thread.state.outcome:
        assert extend(thread, steps=5, by="carol") == "not_entitled"
        assert extend(thread, steps=5, by="alice") == "accepted"


@pytest.mark.parametrize(
    ("payload", "outcome"),
    [
        ({"usd": "1"}, "no_budget"),
        ({"steps": 10**6}, "too_much"),
        ({"steps": -1}, "malformed"),
        ({"steps": "5"}, "malformed"),
        ({"usd": float("nan")}, "malformed"),
        ({}, "malformed"),
    ],
)
def test_wrong_extensions_change_nothing(payload: dict[str, Any], outcome: str) -> None:
    """Each is rejected with an outcome, by signal and by update."""
    thread = budgeted(Budget(steps=3))
    assert extend(thread, **payload) == outcome
    thread.signal("extend", {"by": "alice", **payload})
    assert thread.state.account.limits == {"steps": 3}
    assert events_of(thread, SignalRejected)[-1].outcome == outcome
    thread.check_consistent()


def test_an_extension_of_one_id_counts_once_and_a_closed_run_takes_none() -> None:
    """A client may repeat an extension."""
    thread = budgeted(Budget(steps=3))
    assert [extend(thread, steps=1, id="x") for _ in range(2)] == ["accepted", "duplicate"]
    assert thread.state.account.limits == {"steps": 4}
    thread.cancel()
    assert extend(thread, steps=1) == "too_late"


def test_the_audit_finds_forged_accounts() -> None:
    """A smaller or missing reservation, another extension and a wider budget are each found."""
    thread = budgeted(Budget(steps=4, tokens=100_000))
    step(thread)
    extend(thread, steps=2)
    step(thread)
    assert fault(thread.log) is None

    def altered(kind: Any, **changes: Any) -> list[Any]:
        return [event.model_copy(update=changes) if isinstance(event, kind) else event for event in thread.log]

    assert fault(altered(BudgetReserved, tokens=1))
    assert fault(altered(AgentLoaded, budget=Budget(steps=400, tokens=100_000)))
    assert fault(altered(AgentLoaded, budget=None))
    assert fault(altered(BudgetExtended, more=Amounts(steps=10**6 - 1)))
    assert fault(altered(BudgetExtended, by="agent"))
    assert fault(altered(BudgetExtended, resumes=True))
    assert fault([event for event in thread.log if not isinstance(event, BudgetReserved)])


def test_the_limits_are_shown() -> None:
    """The state and the page for the Web UI show the spent, reserved and remaining amounts of each limit."""
    thread = budgeted(Budget(usd="1", steps=9))
    step(thread)
    view = state_view(thread.state)["budget"]
    steps, usd = view["limits"]
    assert steps == {"limit": "steps", "allowed": "9", "spent": "1", "reserved": "1", "left": "7"}
    assert Decimal(usd["spent"]) + Decimal(usd["reserved"]) + Decimal(usd["left"]) == Decimal(usd["allowed"])
    assert "steps" in current_details(thread.state)


def test_receivers_get_notices_of_the_budget() -> None:
    """Receivers are notified when a limit is low, and when it is exhausted."""
    thread = Thread(agent_spec(budget=Budget(steps=5), **SMALL))
    thread.notify = True
    thread.load(1)
    for _ in range(4):
        step(thread)
    occasions = [call.request.occasion for call in thread.waiting(Notice)]  # type: ignore[union-attr]
    assert occasions == ["budget_low", "budget_spent"]


def test_replies_have_no_cost_if_money_is_not_limited() -> None:
    """A log without a limit in dollars has no field that it does not need."""
    thread = budgeted(Budget(tokens=100_000))
    thread.reply(LLMReply(message=says("x").message, usage=Usage(prompt_tokens=1), cost=5))
    assert events_of(thread, LLMReplied)[-1].cost is None


@pytest.mark.parametrize(
    ("usd", "fits"),
    [
        *(("0.50", True), ("0.000000001", True), ("2.50", True), ("999999.999999999", True), ("1000000", True)),
        *(("0", False), ("0.0", False), ("0.0000000001", False), ("1000000.1", False), ("01", False), ("-1", False)),
    ],
)
def test_the_gateway_takes_the_amounts_that_a_budget_may_have(usd: str, fits: bool) -> None:
    """The pattern in the API description and the budget accept the same amounts."""
    with nullcontext() if fits else pytest.raises(ValidationError):
        assert BudgetBody(usd=usd).usd == usd


def test_the_gateway_takes_whole_numbers_as_json_schema_has_them() -> None:
    """`5.0` and `1e3` are integers in JSON Schema; `5.5` and `"5"` are not."""
    read = BudgetBody.model_validate_json('{"steps": 5.0, "tokens": 1e3, "seconds": 60}')
    assert (read.steps, read.tokens, read.seconds) == (5, 1_000, 60)
    for wrong in ('{"steps": 5.5}', '{"steps": "5"}', '{"steps": true}', '{"tokens": 1e300}'):
        with pytest.raises(ValidationError):
            BudgetBody.model_validate_json(wrong)
    described = BudgetBody.model_json_schema()["properties"]["seconds"]["anyOf"][0]
    assert described == {"type": "integer", "minimum": 1, "maximum": 316_224_000}

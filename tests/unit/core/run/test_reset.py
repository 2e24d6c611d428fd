"""A run after a reset, with a fake answer of the ledger: `holdfast.core.run.machine.machine`."""

from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished, ToolCallStarted
from holdfast.core.tools.effects import PastEffect, effect_key
from tests.support.runs import calls, loaded_thread
from tests.unit.core.run.test_run_properties import events_of


def test_no_call_starts_after_a_reset_before_the_ledgers_answer() -> None:
    """Decisions made meanwhile count; results that arrived meanwhile are applied afterwards."""
    thread = loaded_thread()
    thread.reply(calls("look", "pay"))
    thread.reset()
    thread.finish(1)
    assert thread.decide("1") == "accepted"
    assert thread.running_calls == []
    thread.load_effects()
    assert thread.running_calls == [2]
    assert thread.types()[-4:] == ["decision_received", "run_reset", "tool_call_finished", "tool_call_started"]
    thread.check_consistent()


def test_a_cancelled_run_does_not_wait_for_the_ledgers_answer() -> None:
    """It applies the results of its calls and ends."""
    thread = loaded_thread()
    thread.reply(calls("look", "pay"))
    thread.reset()
    thread.finish(1)
    thread.cancel()
    thread.archive()
    assert thread.state.outcome == "cancelled"
    thread.check_consistent()


def past_payment(number: int, status: str = "ok", arguments: str = "{}") -> PastEffect:
    """Return a payment as the ledger reports it."""
    call = ToolCall(id="", name="pay", arguments=arguments)
    key = effect_key(thread="t", first_run_id="r1", number=number, call_digest=call.digest)
    return PastEffect(
        number=number,
        first_run_id="r1",
        tool="pay",
        call_digest=call.digest,
        key=key,
        status=status,
        content="paid" if status == "ok" else "",
    )


def test_a_repeated_call_keeps_its_key_after_a_reset() -> None:
    """A call adopts its earlier key under any new number, once per earlier attempt; a further call gets a new key."""
    thread = loaded_thread()
    thread.reset()
    thread.load_effects(past_payment(2), past_payment(3))
    thread.reply(calls("look", "pay", "pay", "pay"))
    keys = [request.effect_key for request in thread.state.authority.requests]
    assert keys == [past_payment(2).key, past_payment(3).key, past_payment(4).key]
    reasons = [request.why for request in thread.state.authority.requests]
    assert ["it ran before, as call" in why for why in reasons] == [True, True, False]
    thread.decide("1")
    started = events_of(thread.log, ToolCallStarted)
    assert (started[-1].number, started[-1].key) == (2, past_payment(2).key)
    thread.check_consistent()


def test_a_reopened_request_reports_the_earlier_effect() -> None:
    """The request says that its call may have run, and a denial does not claim that the effect was prevented."""
    thread = loaded_thread()
    thread.reply(calls("pay", "pay"))
    thread.reset()
    thread.load_effects(past_payment(1), past_payment(2, status="started"))
    first, second = thread.state.authority.requests
    assert "it ran before, as call 1, with the outcome ok: paid" in first.why
    assert "it may have run before, as call 2" in second.why
    thread.decide("1", "deny")
    thread.decide("2", "deny")
    contents = [event.content for event in events_of(thread.log, ToolCallFinished)]
    assert all("was not undone" in content for content in contents)
    assert "paid" in contents[0]
    thread.check_consistent()


def test_edited_arguments_are_another_effect_after_a_reset() -> None:
    """A call that has run does not match an edited one; a call that was edited in the same way before keeps its key."""
    thread = loaded_thread()
    thread.reply(calls("pay", "pay"))
    thread.reset()
    thread.load_effects(past_payment(1), past_payment(7, arguments='{"n":2}'))
    thread.decide("1", arguments={"n": 3})
    thread.decide("2", arguments={"n": 2})
    keys = [event.key for event in events_of(thread.log, ToolCallStarted)]
    assert keys[0] not in (past_payment(1).key, past_payment(7, arguments='{"n":2}').key)
    assert keys[1] == past_payment(7, arguments='{"n":2}').key
    thread.check_consistent()


def test_the_llm_reads_about_effects_from_before_a_reset() -> None:
    """One separate message reports them, after the calls of a reply in progress."""
    thread = loaded_thread()
    thread.reset()
    thread.load_effects(past_payment(5))
    assert [message["role"] for message in thread.messages()] == ["user"]
    thread.reply(calls("look"))
    thread.finish(1, "seen")
    roles = [message["role"] for message in thread.messages()]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "reset to an earlier point" in thread.messages()[-1]["content"]
    thread.check_consistent()


def test_requests_are_reopened_with_the_earlier_key() -> None:
    """An open request and an approval from before the ledger's answer are both replaced by new requests."""
    thread = loaded_thread()
    thread.reply(calls("pay", "pay"))
    thread.reset()
    thread.decide("1")
    thread.load_effects(past_payment(5), past_payment(6))
    first, second = thread.state.authority.requests
    assert (first.id, first.number, first.effect_key) == ("3", 1, past_payment(5).key)
    assert (second.id, second.number, second.effect_key) == ("4", 2, past_payment(6).key)
    assert "it ran before, as call 5" in first.why
    assert thread.running_calls == []
    assert thread.decide("1") == "duplicate"
    thread.decide("3")
    (started,) = events_of(thread.log, ToolCallStarted)
    assert (started.number, started.key) == (1, past_payment(5).key)
    thread.check_consistent()

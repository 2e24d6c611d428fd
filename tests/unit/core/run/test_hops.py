"""An event says how many agents in a row led to it, and the run passes that on to the events that its agent sends."""

from typing import Any

import pytest

from holdfast.core.authority.policy import Policy, allow
from holdfast.core.log.events import WakeReceived
from holdfast.core.run.contracts.requests import origin_of
from holdfast.core.run.waits.dormancy import MAX_HOPS
from holdfast.core.tools.effects import Effect
from tests.support.runs import Thread, loaded_thread, says, tool_spec
from tests.unit.core.run.test_dormancy import audited, calling, continue_as_new, sleeper, wake
from tests.unit.core.run.test_repeats import last


def waiting(*, features: int = 2) -> Thread:
    """Return a thread whose agent waits for an event, and has a tool that sends some."""
    spec = sleeper(tool_spec("send", Effect.IDEMPOTENT, wants_origin=True), policy=Policy(rules=(allow(),)))
    thread = loaded_thread(spec, features=features)
    thread.reply(calling(wait_for_event={"name": "built"}))
    return thread


def hops(thread: Thread) -> int:
    """Return the number that a call of the sending tool gets."""
    thread.reply(calling(send={}))
    origin = origin_of(thread.state, thread.state.calls.count, "send", position=0)
    assert origin is not None
    return origin.hops


def test_the_number_goes_from_the_event_to_the_calls_of_the_agent() -> None:
    """It survives continue-as-new."""
    thread = waiting()
    assert wake(thread, event="built", hops=3) == "delivered"
    assert last(thread, WakeReceived).hops == 3
    assert hops(thread) == 3
    thread.finish(2)
    thread.reply(calling(wait_for_event={"name": "later"}))
    continue_as_new(thread)
    assert thread.state.dormancy.hops == 3
    thread.check_consistent()


def test_a_buffered_event_counts_when_the_agent_takes_it() -> None:
    """Until then, something else leads to what the agent does."""
    thread = waiting()
    assert wake(thread, event="other", hops=5) == "buffered"
    assert thread.state.dormancy.hops == 0
    wake(thread, event="built", hops=1)
    thread.reply(calling(wait_for_event={"name": "other"}))
    assert thread.state.dormancy.hops == 5
    audited(thread)


def test_a_message_and_an_event_from_outside_begin_anew() -> None:
    """People and the world may lead to any number of events."""
    thread = waiting()
    wake(thread, event="built", hops=7)
    thread.reply(calling(wait_for_event={"name": "built"}))
    thread.signal("say", {"message": "continue", "by": "alice"})
    assert thread.state.dormancy.hops == 0
    thread.reply(calling(wait_for_event={"name": "built"}))
    wake(thread, event="built", hops=7)
    thread.reply(calling(wait_for_event={"name": "built"}))
    wake(thread, event="built")
    assert thread.state.dormancy.hops == 0
    audited(thread)


@pytest.mark.parametrize("forged", ["3", -1, True, 3.0, None, [3], MAX_HOPS + 1, 10**30])
def test_anything_else_counts_as_an_event_from_outside(forged: Any) -> None:
    """A claim that is no small number neither fails the run nor grows its state."""
    thread = waiting()
    assert wake(thread, event="built", hops=forged) == "delivered"
    assert thread.state.dormancy.hops == 0


def test_a_run_of_an_earlier_release_ignores_it() -> None:
    """Its events have no such field."""
    thread = waiting(features=1)
    wake(thread, event="built", hops=3)
    assert last(thread, WakeReceived).hops == 0
    thread.reply(says("done"))
    audited(thread)

"""Random lives of an agent that sleeps: no event is lost or delivered twice, and the buffer stays bounded."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.judge.audit import Audit
from holdfast.core.log.events import DormancyBegan, ToolCallFinished, WakeReceived
from holdfast.core.run.state.dormancy import BUFFERED, SEEN, WAITS
from tests.support.examples import examples
from tests.support.runs import Thread, loaded_thread
from tests.unit.core.run.test_dormancy import calling, sleeper

NAMES = st.sampled_from("ab")
WAIT = st.fixed_dictionaries(
    {"name": NAMES},
    optional={"match": st.fixed_dictionaries({"n": st.integers(0, 1)}), "until": st.sampled_from(["1m", "2h", "?"])},
)
STEP = st.one_of(
    st.tuples(st.just("wait"), st.lists(WAIT, min_size=1, max_size=3)),
    st.tuples(st.just("sleep"), st.sampled_from(["0s", "30s", "1h"])),
    st.tuples(st.just("event"), st.tuples(NAMES, st.integers(0, 1), st.none() | st.integers(1, 9))),
    st.tuples(st.just("wake"), st.none() | st.integers(1, 9)),
    st.tuples(st.just("time"), st.sampled_from([1, 60, 3_600])),
    st.tuples(st.sampled_from(["pause", "resume", "say", "move", "cancel"]), st.none()),
)


def live(thread: Thread, steps: list[tuple[str, Any]]) -> dict[str, str]:
    """Apply these actions to a thread; return the outcome of each event by its id."""
    outcomes: dict[str, str] = {}
    for number, (what, given_) in enumerate(steps):
        if thread.state.outcome:
            break
        match what:
            case "wait" | "sleep" if thread.calling_llm():
                arguments = {"wait_for_event": given_} if what == "wait" else {"sleep_until": {"until": given_}}
                thread.reply(calling(**arguments))
            case "event":
                name, n, call = given_
                payload = {"event": name, "id": f"e{number}", "data": {"n": n}, **({"call": call} if call else {})}
                outcomes[f"e{number}"] = thread.update("wake", payload)["outcome"]
                assert thread.update("wake", payload)["outcome"] in ("duplicate", outcomes[f"e{number}"])
            case "wake":
                thread.signal("wake", {"by": "bob", "call": given_})
            case "time":
                thread.advance(seconds=given_)
            case "pause" | "resume":
                thread.signal(what, {"by": "alice"})
            case "say":
                thread.say(f"message {number}")
            case "move":
                thread.continue_suggested = True
                thread.signal("nonsense")
                moves = len(thread.snapshots)
                while thread.continue_suggested and thread.waiting() and len(thread.snapshots) == moves:
                    archiving = [call for call in thread.waiting() if "ArchiveRequest" in str(call)]
                    if not archiving:
                        break
                    thread.archive()
                thread.continue_suggested = False
            case "cancel":
                thread.cancel()
    return outcomes


@settings(max_examples=examples(20, 200))
@given(st.lists(STEP, max_size=25))
def test_no_event_is_lost_or_delivered_twice(steps: list[tuple[str, Any]]) -> None:
    """An accepted event is either in the results of the calls that it woke or still buffered, and only once."""
    thread = loaded_thread(sleeper(), features=1)
    outcomes = live(thread, steps)
    read: dict[str, list[int]] = {}
    for event in thread.log:
        if isinstance(event, ToolCallFinished) and "\n{" in event.text:
            sent = json.loads(event.text.rsplit("\n", 1)[1])
            read.setdefault(sent.get("id", ""), []).append(event.number)
    received = {event.id: event for event in thread.log if isinstance(event, WakeReceived) and event.id}
    kept = [event.id for event in thread.state.dormancy.buffered]
    used = [event.wake for event in thread.log if isinstance(event, DormancyBegan) and event.wake]
    assert len(used) == len(set(used))
    assert received.keys() == {each for each, outcome in outcomes.items() if outcome in ("delivered", "buffered")}
    for each, event in received.items():
        assert event.outcome == outcomes[each]
        if event.outcome == "delivered":
            assert read[each], each
            assert each not in kept
        else:
            assert kept.count(each) + len(read.get(each, ())) == 1
    assert set(read) - {""} <= received.keys()
    finished = [event.number for event in thread.log if isinstance(event, ToolCallFinished)]
    assert len(finished) == len(set(finished))
    dormancy = thread.state.dormancy
    assert len(dormancy.waits) <= WAITS
    assert len(dormancy.buffered) <= BUFFERED
    assert len(dormancy.seen) <= SEEN
    assert not (thread.state.outcome and dormancy.waits)
    thread.check_consistent()
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None, audit.fault

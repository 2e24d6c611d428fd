"""Random lives of an agent that polls: polls are bounded and paced, a met condition ends the wait, and no poll starts
in a pause.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.judge.audit import Audit
from holdfast.core.agents.agent import Limits
from holdfast.core.log.events import DormancyBegan, RunPaused, RunResumed, ToolCallFinished, WaitPolled
from holdfast.core.run.contracts.commands import Sleep
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from tests.support.examples import examples
from tests.support.runs import Thread, loaded_thread
from tests.unit.core.run.test_dormancy import calling
from tests.unit.core.run.test_polling import check, poller, polls

START, CEILING = 2, 20
CONDITION = st.sampled_from([{"contains": "done"}, {"lacks": "a"}, {"changes": True}, {"equals": {"n": 1}}])
WAIT = st.tuples(CONDITION, st.sampled_from([None, "5s", "2h"]))
STEP = st.one_of(
    st.tuples(st.just("wait"), st.lists(WAIT, min_size=1, max_size=2)),
    st.tuples(st.just("result"), st.sampled_from(["a", "b", "done", '{"n": 1}'])),
    st.tuples(st.just("result"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("failure"), st.sampled_from(["failed", "invalid", "cannot"])),
    st.tuples(st.just("lost"), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1, 10, 3_600])),
    st.tuples(st.sampled_from(["pause", "resume", "say", "wake", "move", "cancel"]), st.none()),
)


def live(thread: Thread, steps: list[tuple[str, Any]]) -> None:
    """Apply these actions to a thread."""
    for number, (what, chosen) in enumerate(steps):
        if thread.state.outcome:
            return
        under_way = polls(thread)
        match what:
            case "wait" if thread.calling_llm():
                tool_calls = [
                    check(condition=condition, **({"until": until} if until else {})) for condition, until in chosen
                ]
                thread.reply(calling(check_back=tool_calls))
            case "result" if under_way:
                thread.end(under_way[0], ToolOutcome(status="ok", content=chosen))
            case "failure" if under_way:
                scope = {"scope": "here"} if chosen == "cannot" else {}
                thread.end(under_way[0], ToolOutcome.model_validate({"status": chosen, "content": "no", **scope}))
            case "lost" if under_way:
                thread.fail(under_way[0], "TimeoutError")
            case "time":
                thread.advance(seconds=chosen)
            case "pause" | "resume" | "wake":
                thread.signal(what, {"by": "alice"})
            case "say":
                thread.say(f"message {number}")
            case "move":
                thread.continue_suggested = True
                thread.signal("nonsense")
                moves = len(thread.snapshots)
                while len(thread.snapshots) == moves and thread.waiting(ArchiveRequest):
                    thread.archive()
                thread.continue_suggested = False
                thread.signal("nonsense")
            case "cancel":
                thread.cancel()
        check_now(thread)


def check_now(thread: Thread) -> None:
    """Check the invariants after each input: one poll of a wait at a time, and one timer, which is not in the past."""
    state, under_way = thread.state, [call.number for call in polls(thread)]
    assert len(under_way) == len(set(under_way))
    assert {wait.number for wait in state.dormancy.waits} >= set(under_way)
    sleeps = thread.waiting(Sleep)
    assert len(sleeps) <= 1
    for wait in state.dormancy.waits:
        assert wait.polls is not None
        held = state.pause or wait.number in under_way or thread.waiting(ArchiveRequest) or state.outcome
        due = wait.polls.again <= thread.at
        assert not due or held or (sleeps and isinstance(sleeps[0], Sleep)) or thread.run.end


@settings(max_examples=examples(20, 200))
@given(st.lists(STEP, max_size=40))
def test_polls_are_paced_and_bounded_and_a_met_condition_ends_the_wait(steps: list[tuple[str, Any]]) -> None:
    """No two polls are closer than their pace; one that meets its condition is the last; none begins in a pause."""
    thread = loaded_thread(poller(limits=Limits(poll_seconds=START, poll_ceiling=CEILING)), features=1)
    live(thread, steps)
    last: dict[int, WaitPolled] = {}
    ended: set[int] = set()
    began: dict[int, DormancyBegan] = {}
    paused = None
    for event in thread.log:
        match event:
            case DormancyBegan():
                began[event.number] = event
            case RunPaused():
                paused = paused or event
            case RunResumed():
                paused = None
            case WaitPolled():
                before = last.get(event.number)
                assert event.number not in ended
                assert event.poll == (before.poll + 1 if before else 1)
                if before:
                    assert before.again is not None
                    assert before.again <= event.at
                    until = began[event.number].trigger.model_dump()["until"]
                    delay = (before.again - before.at).total_seconds()
                    assert delay <= CEILING
                    assert delay >= START or before.again == until
                    assert not (paused and before.again > paused.at), "a poll began during a pause"
                last[event.number] = event
            case ToolCallFinished():
                assert event.number not in ended
                ended.add(event.number)
                poll = last.get(event.number)
                if event.text.startswith("Your condition was met"):
                    assert poll is not None
                    assert poll.again is None
            case _:
                pass
    for number, poll in last.items():
        assert number in ended or poll.again is not None
    assert not (thread.state.outcome and thread.state.dormancy.waits)
    thread.check_consistent()
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None, audit.fault

"""The log of a loop without a server: its chain, how it is written, and the state carried to the next Temporal run."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.canonical import canonical
from holdfast.core.base.models import replace
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import RunBlocked
from holdfast.core.log.loop_events import IterationStarted, Logged, LogPart, LoopEvent
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.upcasters import decode_loop_event
from holdfast.core.loop.decide import on_settled, on_survey
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import LoopInput, LoopLimits, LoopState, Settled, Survey
from holdfast.core.loop.steering import on_pause_due, on_steering
from holdfast.core.run.inputs.pause import PAUSES
from holdfast.core.run.rules.refusals import RECORDED

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOOP = LoopInput(workspace="/w", task="build it", by="dana", limits=LoopLimits(iterations=3, cost=2.5))

KINDS = ("iterate", "fail", "block", "pause", "resume", "retry", "wrong", "write", "continue")


def begin(loop: LoopInput = LOOP, *, level: int = 1) -> LoopRecorder:
    """Return the recorder of a loop whose files a worker of that level has read."""
    recorder = LoopRecorder(loop, thread="l", run_id="r", first_run_id="r", at=NOW)
    recorder.record(on_survey(Survey(features=level, agent="builder", open=2)), at=NOW)
    return recorder


class RecordedLoop:
    """A loop, and the record that its log is written to."""

    def __init__(self) -> None:
        self.recorder = begin()
        self.record: list[bytes] = []
        self.at = NOW

    def write(self) -> None:
        """Write a part as the activity does: its chain continues the record."""
        if part := self.recorder.next_part():
            lines = [canonical(event) for event in part.events]
            head = json.loads(self.record[-1])["digest"] if self.record else part.base
            events = read_lines("l", len(self.record), lines, head=head)
            assert part.start == len(self.record)
            self.record += lines
            self.recorder.on_written(part, Logged(length=len(self.record), head=events[-1].digest))

    def play(self, step: str) -> None:
        """Make one step, if the loop can."""
        self.at += timedelta(seconds=1)
        recorder, state = self.recorder, self.recorder.state
        waits = state.paused or state.blocked
        match step:
            case "iterate" | "fail" if not waits:
                number = state.count
                recorder.record(IterationStarted(number=number, thread=f"l-{number}", task="one"), at=self.at)
                outcome: Any = "completed" if step == "iterate" else "failed"
                settled = Settled(outcome=outcome, cost=0.5, explanation="é \ud800 why")
                recorder.record(on_settled(number, settled), at=self.at)
            case "block" if not state.blocked:
                recorder.record(RunBlocked(cause="IterationLimit", message="3 iterations"), at=self.at)
            case "pause" | "resume" | "retry":
                self.steer(step, {"by": "alice", "reason": str(self.at), "seconds": 60})
            case "wrong":
                self.steer("pause", {"by": "mallory", "seconds": "x" * 5_000})
            case "write":
                self.write()
            case "continue":
                next_input = recorder.next_input(LOOP, first_run_id="r", at=self.at)
                carried = LoopInput.model_validate_json(next_input.model_dump_json(exclude_defaults=True))
                self.recorder = LoopRecorder(carried, thread="l", run_id="r2", first_run_id="r", at=self.at)

    def steer(self, what: Any, payload: Any) -> None:
        """Send the loop a request."""
        _, _, events = on_steering(self.recorder.state, what, payload, at=self.at)
        self.recorder.record(*events, at=self.at)


@given(st.lists(st.sampled_from(KINDS)))
def test_the_state_is_a_fold_over_what_was_written(steps: list[str]) -> None:
    """For any order of events and number of Temporal runs, the record is a chain that leads to the state."""
    play = RecordedLoop()
    for step in steps:
        play.play(step)
    play.recorder.record_refusals(at=play.at)
    play.write()
    events: list[LoopEvent] = [decode_loop_event(line) for line in play.record]
    assert first_altered(events) is None
    state = LoopState(thread="l")
    for event in events:
        state = evolve(state, event)
    assert state == play.recorder.state


def test_nothing_is_written_below_the_level() -> None:
    """A loop of 0.1.0 sends and carries no events, and its state keeps its encoding."""
    recorder = begin(level=0)
    assert recorder.next_part() is None
    following = recorder.next_input(LOOP, first_run_id="r", at=NOW)
    assert following.log == LogPart()
    assert following.state is not None
    encoded = json.loads(following.model_dump_json(exclude_defaults=True))["state"]
    assert not {"events", "limits", "pauses"} & encoded.keys()


def test_a_loop_of_an_older_release_has_a_log_from_its_first_survey_on() -> None:
    """The log of a loop that began without one starts with the loop's state, and folds to the same state."""
    old = replace(begin(level=0).state, count=7, cost=1.25)
    recorder = LoopRecorder(LOOP.model_copy(update={"state": old}), thread="l", run_id="r", first_run_id="r", at=NOW)
    assert recorder.next_part() is None
    recorder.record(on_survey(Survey(features=1, agent="builder", open=2)), at=NOW)
    part = recorder.next_part()
    assert part is not None
    state = LoopState(thread="l")
    for event in part.events:
        state = evolve(state, decode_loop_event(json.dumps(event)))
    assert (state, state.count, state.cost) == (recorder.state, 7, 1.25)


def test_events_after_a_write_continue_the_written_chain() -> None:
    """The result of a write gives the record's position, even if a replay dated the written events differently."""
    recorder = begin()
    part = recorder.next_part()
    assert part is not None
    recorder.record(RunBlocked(cause="NoTasks", message="none"), at=NOW)
    recorder.on_written(part, Logged(length=2, head="5" * 64))
    following = recorder.next_part()
    assert following is not None
    assert (following.start, following.base) == (2, "5" * 64)
    (line,) = [canonical(event) for event in following.events]
    assert read_lines("l", 2, [line], head="5" * 64)


def test_a_record_that_rejects_is_tried_again_after_retry() -> None:
    """After a final rejection, nothing is sent to the record until a person has fixed the cause."""
    recorder = begin()
    part = recorder.next_part()
    assert part is not None
    recorder.on_written(part, Logged(refused="position 0 holds another event"))
    assert recorder.next_part() is None
    recorder.record(RunBlocked(cause="RecordConflict", message=recorder.refused), at=NOW)
    _, _, events = on_steering(recorder.state, "retry", {"by": "alice"}, at=NOW)
    recorder.record(*events, at=NOW)
    again = recorder.next_part()
    assert again is not None
    assert (again.start, len(again.events)) == (0, 4)


def test_rejections_and_pauses_are_bounded() -> None:
    """Only the first rejections of a flood are recorded singly, and an iteration allows a bounded number of pauses."""
    play = RecordedLoop()
    for _ in range(RECORDED + 50):
        play.play("wrong")
    for _ in range(PAUSES + 5):
        play.play("pause")
    assert play.recorder.log.length <= RECORDED + PAUSES + 5
    assert play.recorder.state.pauses == PAUSES
    assert play.recorder.log.size_since(0) < 150_000


def test_a_pause_ends_by_itself_and_only_when_it_is_due() -> None:
    """The loop resumes at the pause's `until`, without a name; a pause without an end stays."""
    play = RecordedLoop()
    play.steer("pause", {"by": "alice", "seconds": 60})
    assert on_pause_due(play.recorder.state, at=NOW + timedelta(seconds=59)) == []
    (resumed,) = on_pause_due(play.recorder.state, at=NOW + timedelta(seconds=60))
    play.recorder.record(resumed, at=play.at)
    assert play.recorder.state.status == "running"
    play.steer("pause", {"by": "alice"})
    assert on_pause_due(play.recorder.state, at=NOW + timedelta(days=9_999)) == []

"""Comparing a rerun with its recording: pure functions of two logs, and the valid content of a dataset."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli.screens.eval_screens import eval_screen, eval_view
from holdfast.core.llm.blocks import FileBlock, ImageBlock, ProviderPart, TextBlock, ToolCall
from holdfast.core.log.events import AgentEvent, ToolCallFinished, ToolCallRequested
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.tools.effects import Effect
from holdfast.errors import FileUnreadable, NotPlayable, SetInvalid
from holdfast.evaluation.compare.datasets import Dataset, DatasetRun, Stub
from holdfast.evaluation.compare.evaluation import Evaluation, compare, expected
from holdfast.evaluation.compare.reading import read_recording
from holdfast.evaluation.compare.recording import RecordedResult, Recording, without_addresses
from holdfast.evaluation.compare.trajectory import Call, Trajectory, trajectory_of
from holdfast.evaluation.files import read_dataset
from holdfast.evaluation.recorded_results import Rerun
from tests.replay.test_verifiers import recorded_logs
from tests.support.examples import examples
from tests.support.plays import play
from tests.support.runs import agent_spec, calls, loaded_thread, says

SEEDS = st.integers(min_value=0, max_value=2**16)


def recording_of(events: list[AgentEvent]) -> Recording | None:
    """Return the recording of a log; None if such a log cannot be rerun."""
    try:
        return read_recording(events)
    except NotPlayable:
        return None


@settings(max_examples=examples(5, 300))
@given(SEEDS)
def test_a_run_does_not_diverge_from_itself(seed: int) -> None:
    """Compared with itself, every run has the same calls, effects and result, and its recording can be read."""
    events = play(seed).thread.log
    trajectory = trajectory_of(events)
    found = compare("run", trajectory, trajectory)
    assert (found.diverges_at, found.divergence, found.same_calls, found.same_result) == (None, "", True, True)
    assert found.same_effects
    requested = [event for event in events if isinstance(event, ToolCallRequested) and not event.own]
    assert [event.call.digest for event in requested] == [call.digest for call in trajectory.calls]
    if recording := recording_of(events):
        ended = sum(isinstance(event, ToolCallFinished) for event in events)
        assert sum(map(len, recording.results.values())) <= ended
        assert Recording.model_validate_json(recording.model_dump_json()) == recording


@pytest.mark.slow
def test_every_recorded_log_is_a_recording_or_is_explained() -> None:
    """Logs of every release are read; only forks, sub-agents and loops cannot be rerun."""
    rejected = {}
    for name, log in recorded_logs().items():
        events: Any = [event for event in log if not event.type.startswith("loop_")]
        if len(events) < len(log):
            continue
        trajectory = trajectory_of(events)
        assert compare(name, trajectory, trajectory).same_calls
        try:
            assert read_recording(events).trajectory == trajectory
        except NotPlayable as error:
            rejected[name] = str(error)
    assert all("fork" in why or "sub-agent" in why or "no task" in why for why in rejected.values()), rejected


def trajectory_with(*steps: tuple[tuple[Any, ...], ...], **more: Any) -> Trajectory:
    """A trajectory of (tool, status, effect) for each call."""

    def call(tool: str, status: Any = "ok", effect: Effect = Effect.READ) -> Call:
        ran = tool if status == "ok" else ""
        return Call(tool=tool, arguments="{}", digest=tool, status=status, effect=effect, ran=ran)

    given = {"ended": "completed", "result": "done", **more}
    return Trajectory(steps=tuple(tuple(call(*each) for each in step) for step in steps), **given)


BASE = trajectory_with((("a",), ("b",)), (("pay", "ok", Effect.UNSAFE),), ())


@pytest.mark.parametrize(
    ("played", "at"),
    [
        (BASE, None),
        (trajectory_with((("a",), ("b",)), (("pay", "ok", Effect.UNSAFE),)), None),
        (trajectory_with((("b",), ("a",)), (("pay", "ok", Effect.UNSAFE),), ()), 1),
        (trajectory_with((("a",),), (("pay", "ok", Effect.UNSAFE),), ()), 1),
        (trajectory_with((("a",), ("b",)), (("pay", "denied", Effect.UNSAFE),), ()), 2),
        (trajectory_with((("a",), ("b",)), (), (("pay", "ok", Effect.UNSAFE),)), 2),
        (trajectory_with((("a",), ("b",)), (("pay", "ok", Effect.UNSAFE),), (("a",),)), 3),
        (trajectory_with(), 1),
    ],
)
def test_the_first_divergence(played: Trajectory, at: int | None) -> None:
    """The first step whose calls differ, in their order, or in whether they were refused; prose does not count."""
    found = compare("run", BASE, played)
    assert (at, at is None) == (found.diverges_at, found.same_calls)
    assert bool(found.divergence) is (at is not None)
    paid = any(call.tool == "pay" and call.ran for call in played.calls)
    assert found.same_effects is paid


@pytest.mark.parametrize(
    ("result", "ended", "same"),
    [
        ("done", "completed", True),
        (" done\n", "completed", True),
        ("Done", "completed", False),
        ("done", "blocked", False),
    ],
)
def test_the_same_result(result: str, ended: Any, same: bool) -> None:
    """Results are the same if the runs ended alike, with equal text apart from spaces."""
    assert compare("run", BASE, trajectory_with(result=result, ended=ended)).same_result is same


def test_json_results_compare_by_value() -> None:
    """The order of keys and the spaces of a JSON result do not count."""
    one, other = trajectory_with(result='{"a": 1, "b": [2]}'), trajectory_with(result='{"b":[2],"a":1}')
    assert compare("run", one, other).same_result


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NaN", "NaN", True),
        ("[1, NaN]", "[1,NaN]", False),
        ("1", "true", False),
        ("0", "false", False),
        ("1e999", "1e1000", False),
        ("0.1", "0.10000000000000000001", False),
        ("9007199254740993", "9007199254740993.0", False),
        ('"done"', "done", False),
        ("'done'", '"done"', False),
        ('{"a": 1, "a": 2}', '{"a": 2}', False),
        ('{"a": {}}', '{"a": []}', False),
        ('[["a", 1]]', '{"a": 1}', False),
        ('"\\u00e9"', '"é"', True),
        ("e\u0301", "é", False),
        ("1" * 5_000, "1" * 5_000, True),
        ("[" * 100_000, "[" * 100_000, True),
    ],
)
def test_other_results_are_not_taken_for_the_same(one: str, other: str, same: bool) -> None:
    """Types, digits, repeated keys and spellings count; invalid JSON is compared as text."""
    assert compare("run", trajectory_with(result=one), trajectory_with(result=other)).same_result is same


@pytest.mark.parametrize("ended", ["failed", "blocked", "open"])
def test_an_interrupted_rerun_does_not_pass(ended: Any) -> None:
    """A rerun whose LLM cannot be called makes no different call, and would otherwise pass."""
    greeted = trajectory_with((), result="Hello.")
    comparison = expected(compare("run", greeted, trajectory_with(ended=ended, result="wrong key")), ["same_calls"])
    assert (comparison.same_calls, comparison.holds, comparison.failed) == (
        True,
        False,
        (f"it ended {ended}: wrong key",),
    )
    assert not expected(comparison, []).holds
    same = trajectory_with((), ended=ended, result="wrong key")
    assert expected(compare("run", same, same), ["same_calls", "same_result"]).holds


def test_a_call_that_people_denied_is_refused() -> None:
    """A recorded decision that denies a call answers the question, and the call stays refused."""
    asked = Call(tool="pay", arguments="{}", digest="pay", verdict="ask", rule="ask pay", status="denied")
    denied = Trajectory(steps=((asked,),), ended="completed")
    found = compare("run", denied, denied)
    assert [(each.answered, each.denied) for each in found.refusals] == [(True, True)]
    assert expected(found, ["same_calls", "nothing_refused"]).failed == ("nothing_refused: pay (ask pay)",)
    approved = Trajectory(steps=((asked.model_copy(update={"status": "ok", "ran": "pay"}),),), ended="completed")
    assert compare("run", approved, approved).nothing_refused


@pytest.mark.parametrize(
    ("status", "verdict", "ran", "refused"),
    [
        ("ok", "allow", "pay", False),
        ("denied", "ask", "", True),
        ("invalid", "", "", True),
        ("answered", "ask", "", False),
        ("cannot", "allow", "", True),
        ("cannot", "allow", "pay", False),
        ("open", "ask", "", True),
        ("open", "allow", "", False),
        ("cancelled", "ask", "", True),
        ("cancelled", "ask", "pay", False),
        ("cancelled", "allow", "", False),
    ],
)
def test_undecided_calls_are_rejected(status: Any, verdict: Any, ran: str, refused: bool) -> None:
    """A call that nobody decided is rejected, even if the run was cancelled meanwhile."""
    call = Call(tool="pay", arguments="{}", digest="pay", status=status, verdict=verdict, ran=ran)
    assert call.refused is refused


def test_a_failed_expectation_is_named() -> None:
    """Each failed expectation is named, with the reason."""
    comparison = compare("run", BASE, trajectory_with((("a", "denied"),)), missing=["b({})"])
    judged = expected(
        comparison, ["same_calls", "same_effects", "same_result", "nothing_missing"], result_has=["DONE", "x"]
    )
    assert [why.split(":")[0] for why in judged.failed] == [
        "same_calls",
        "same_effects",
        "nothing_missing",
        "the result lacks 'x'",
    ]
    assert not judged.holds
    assert expected(compare("run", BASE, BASE), ["same_calls", "nothing_refused"]).holds
    assert not Evaluation(run="run", unplayable="why").holds


def test_results_belong_to_the_call_that_ran() -> None:
    """A call edited by a person has its result under the edited arguments; a denied call has none."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look", "pay", "wipe"))
    thread.finish(1, content="seen")
    thread.decide("1", reason="because")
    thread.finish(2, content="paid")
    thread.reply(says("done"))
    thread.archive()
    found = read_recording(thread.log)
    look, pay, wipe = found.trajectory.calls
    assert [found.results[call.digest][0].content for call in (look, pay)] == ["seen", "paid"]
    assert (wipe.status, wipe.refused, wipe.digest in found.results) == ("denied", True, False)
    assert [decision.reason for decision in found.decisions[pay.digest]] == ["because"]
    assert [reply.message is not None for reply in found.replies] == [True, True]


def test_a_stub_fits_calls_with_its_arguments() -> None:
    """A stub stands for all calls of its tool, or for those with its argument values; JSON is canonical."""

    def call(arguments: str) -> ToolCall:
        return ToolCall(id="1", name="look", arguments=arguments)

    every, some = Stub(tool="look", result="x"), Stub(tool="look", arguments={"n": 1}, result={"b": 1, "a": 2})
    assert (every.fits(call("{")), every.text) == (True, "x")
    assert [some.fits(call(text)) for text in ('{"n":1,"m":2}', '{"n":2}', "{}", "[1]", "{")] == [True, *[False] * 4]
    assert some.text == '{"a":2,"b":1}'
    assert not every.fits(ToolCall(id="1", name="other", arguments="{}"))


def test_a_set_is_read(tmp_path: Path) -> None:
    """A file, a folder and a file with expectations are datasets; files that a folder's `eval.toml` omits count."""
    for name in ("a.holdfast", "b.holdfast", "notes.txt"):
        (tmp_path / name).touch()
    assert read_dataset(tmp_path / "a.holdfast") == (tmp_path, Dataset(run=(DatasetRun(file="a.holdfast"),)))
    assert [run.file for run in read_dataset(tmp_path)[1].run] == ["a.holdfast", "b.holdfast"]
    (tmp_path / "eval.toml").write_text(
        '[[run]]\nfile = "b.holdfast"\nexpect = ["same_effects"]\nresult_has = ["refunded"]\n'
        '[[run.stub]]\ntool = "look"\narguments = { n = 1 }\nresult = "x"\n'
    )
    folder, found = read_dataset(tmp_path)
    assert (tmp_path, ["b.holdfast", "a.holdfast"]) == (folder, [run.file for run in found.run])
    assert found.run[0].expect == ("same_effects",)
    assert found.run[0].stub == (Stub(tool="look", arguments={"n": 1}, result="x"),)
    assert [run.file for run in read_dataset(tmp_path / "eval.toml")[1].run] == ["b.holdfast"]
    with pytest.raises(FileUnreadable):
        read_dataset(tmp_path / "none.toml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SetInvalid, match="export"):
        read_dataset(tmp_path / "empty")


@pytest.mark.parametrize("name", ["a\x1b[2J.holdfast", "a\nb.holdfast", "a\\b.holdfast"])
def test_a_name_that_no_set_can_have_is_rejected(name: str, tmp_path: Path) -> None:
    """This holds even if a folder has such a file, or the command line names it."""
    (tmp_path / name).touch()
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(SetInvalid, match="beneath"):
            read_dataset(path)


def test_a_folder_is_not_a_recorded_run(tmp_path: Path) -> None:
    """Neither a project's state folder, `.holdfast`, nor any other folder is a recording."""
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / "b.holdfast").mkdir()
    (tmp_path / "a.holdfast").touch()
    assert [run.file for run in read_dataset(tmp_path)[1].run] == ["a.holdfast"]
    with pytest.raises(FileUnreadable):
        read_dataset(tmp_path / ("a" * 300))


def request(number: int, call: ToolCall) -> ToolRequest:
    """Return the intent to run a call."""
    return ToolRequest(call=call, key="k", number=number, workspace="/w", order=f"{number}.x")


def test_calls_of_one_reply_get_their_own_results_in_any_order() -> None:
    """Equal calls that end or arrive in another order than they were made keep their own results."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look", "look"))
    thread.finish(2, content="second")
    thread.finish(1, content="first")
    thread.reply(says("done"))
    thread.archive()
    recording = read_recording(thread.log)
    call = ToolCall(id="1", name="look", arguments="{}")
    assert [each.content for each in recording.results[call.digest]] == ["first", "second"]
    played = Rerun("t", recording, Path("/none"))
    assert [played.answer(request(number, call)).content for number in (2, 1, 2)] == ["second", "first", "second"]
    other = Rerun("t", recording, Path("/none"))
    assert [other.answer(request(number, call)).content for number in (7, 8)] == ["first", "second"]
    assert (played.missing, other.missing) == ([], [])


def test_a_time_beyond_every_calendar_is_not_an_end() -> None:
    """A file may hold a constraint of thousands of years."""
    result = RecordedResult(call=1, status="cannot", content="no", scope="everywhere", seconds=9_998 * 365 * 86_400.0)
    call = ToolCall(id="1", name="look", arguments="{}")
    trajectory = trajectory_with()
    recording = Recording(
        thread="t", task="x", by="", agent="", results={call.digest: (result,)}, trajectory=trajectory
    )
    assert Rerun("t", recording, Path("/none")).answer(request(1, call)).until is None


def test_the_screen_and_the_json_agree() -> None:
    """Both have a row for each run, a line for each failed expectation, and a summary."""
    good, bad = (
        compare("a.holdfast", BASE, BASE),
        expected(compare("b.holdfast", BASE, trajectory_with()), ["same_calls"]),
    )
    rejected = Evaluation(run="c.holdfast", unplayable="it does not hold")
    lines = eval_screen([good, bad, rejected]).plain.splitlines()
    assert len(lines) == 4 + 2 + 1
    assert lines[-1].startswith("3 runs: 1 as expected, 2 not")
    assert "c.holdfast: it does not hold" in lines
    view = json.loads(json.dumps(eval_view("set", None, [good, bad, rejected])))
    assert (view["ok"], view["failed"], [run["holds"] for run in view["runs"]]) == (False, 2, [True, False, False])


def test_media_at_addresses_are_left_out() -> None:
    """Inline images stay; one given by address, or by an id at the provider, becomes a line of text."""
    kept, gone = ImageBlock(data="AAAA", media_type="image/png"), ImageBlock(url="http://169.254.169.254/secrets")
    part = ProviderPart(issuer="openai", data={"type": "file", "file": {"file_id": "file-169.254"}})
    blocks = without_addresses((kept, gone, TextBlock(text="x", provider=part), FileBlock(provider=part)))
    assert blocks[0] == kept
    assert "169.254" not in repr(blocks)
    assert without_addresses("text") == "text"

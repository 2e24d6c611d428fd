"""Feature levels in the pure core: the processes that raise them, and the releases that reject them."""

import json
from collections.abc import Mapping

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import WorkflowSerializationContext

from holdfast.core.log.events import RunContinued
from holdfast.core.mac.seals import FleetKeys, WorkflowRef
from holdfast.core.mac.starts import refusal
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.inputs.interventions import UPDATES
from holdfast.core.run.state import features
from holdfast.core.run.views.status import state_view
from holdfast.core.temporal.converter import SEAL, sealing
from holdfast.errors import FeaturesUnknown
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says

SEALS = FleetKeys({"test": bytes(32)})

CURRENT, LATER = features.FEATURES, features.FEATURES + 1
"""The level of this release, and that of a later one."""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as a release with one more feature level."""
    monkeypatch.setattr(features, "FEATURES", LATER)


def at_later_level() -> Thread:
    """Return a thread whose agent was loaded by a worker of a later release."""
    return thread_at_level(LATER)


def test_the_levels_have_no_gap() -> None:
    """Each level states its additions, and the release has the last one."""
    assert list(features.LEVELS) == list(range(features.FEATURES + 1))
    assert all(text.strip() for text in features.LEVELS.values())


@pytest.mark.usefixtures("later")
def test_a_write_to_the_record_raises_no_level_before_the_run_continues_as_new() -> None:
    """The level in the result of `archive` counts in the next Temporal run only, and the log says so."""
    thread = loaded_thread()
    thread.reply(calls("pay"))
    thread.archive(features=LATER)
    thread.signal("nonsense")
    assert thread.state.features == 0
    thread.continue_suggested = True
    thread.signal("nonsense")
    thread.archive(features=LATER)
    assert thread.state.features == LATER
    assert [event.features for event in thread.log if isinstance(event, RunContinued)] == [LATER]


def test_an_older_release_does_not_continue_a_closed_thread_of_a_later_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """The level belongs to the thread: it is in its log, and it never falls."""
    monkeypatch.setattr(features, "FEATURES", LATER)
    thread = at_later_level()
    thread.reply(says("done"))
    assert snapshot_of(thread.log).state.features == LATER
    thread.archive()
    thread.reopen()
    monkeypatch.setattr(features, "FEATURES", CURRENT)
    with pytest.raises(FeaturesUnknown, match=f"feature level {LATER}"):
        thread.load_thread()


def test_an_update_of_a_later_release_is_rejected_below_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its validator rejects it, so no history of that level has it."""
    monkeypatch.setitem(UPDATES, "pause", LATER)
    thread = loaded_thread()
    rejection = thread.run.refused("pause", {"by": "alice"}, at=thread.at)
    assert rejection is not None
    assert rejection["outcome"] == "unknown_update"


def payload_of(content: Mapping[str, object]) -> Payload:
    """Return a sealed input of the workflow `t` with this JSON."""
    data = json.dumps(content).encode()
    seal = SEALS.seal(WorkflowRef("default", "t"), "RunInput", b"json/plain", data)
    return Payload(metadata={"encoding": b"json/plain", SEAL: seal}, data=data)


def test_an_input_that_only_a_later_release_can_read_fails_no_run() -> None:
    """A sealed input of a later level that does not decode is an error, which fails the workflow task."""
    context = WorkflowSerializationContext(namespace="default", workflow_id="t")
    converter = sealing(SEALS)().with_context(context)
    unknown = {"snapshot": {"version": "two"}, "first_run_id": "r"}
    with pytest.raises(FeaturesUnknown):
        converter.from_payloads([payload_of({**unknown, "features": 7})], [RunInput])
    (read,) = converter.from_payloads([payload_of(unknown)], [RunInput])
    assert read.malformed
    forged = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps({**unknown, "features": 7}).encode())
    (read,) = converter.from_payloads([forged], [RunInput])
    assert read.malformed, "a plain start must not block workers"


def test_a_plain_start_may_not_name_a_level() -> None:
    """Only the workflow raises the level: an outside start that names one is rejected, and blocks no worker."""
    assert "features" in refusal(RunInput(task="go", features=7), first_run_id="r", started_at=NOW)


@pytest.mark.parametrize(("level", "schedule"), [(0, ""), (features.SCHEDULED, "nightly")])
def test_a_start_names_its_schedule_from_its_level_on(level: int, schedule: str) -> None:
    """A launcher's start carries the level, and its run keeps the name when it continues or is opened again."""
    thread = Thread(schedule="nightly", features=level, issued_at=NOW, sealed=True)
    assert thread.log[0].type == "run_started"
    assert thread.log[0].schedule == schedule
    thread.load()
    thread.reply(says("done"))
    thread.archive()
    thread.reopen()
    thread.load_thread()
    assert state_view(thread.state)["schedule"] == schedule


@pytest.mark.parametrize(("level", "llm"), [(0, ""), (features.RESULT_NAMES_LLM, "scripted")])
def test_a_result_names_its_llm_from_its_level_on(level: int, llm: str) -> None:
    """The result of a run of the first release is unchanged."""
    thread = thread_at_level(level)
    thread.reply(says("done"))
    thread.archive()
    assert thread.run.end
    assert thread.run.end.result
    assert thread.run.end.result.llm == llm


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (0, "the LLM call is made again, with the message"),
        (
            features.INTERRUPT_NAMES_TOOLS,
            "an interrupt ends no tool: the LLM is shown the message when look has ended",
        ),
    ],
)
def test_an_interrupt_says_which_tools_it_waits_for(level: int, words: str) -> None:
    """A message that interrupts ends an LLM call but no tool; its outcome says so from that level on."""
    thread = thread_at_level(level)
    thread.reply(calls("look"))
    assert thread.update("say", {"message": "stop", "when_busy": "interrupt"})["explanation"] == words


def thread_at_level(level: int) -> Thread:
    """Return a thread of that feature level."""
    thread = Thread()
    (request,) = thread.waiting(AgentRequest)
    thread.end(request, LoadedAgent(spec=agent_spec(), workspace="/w", features=level))
    return thread

"""An LLM attempt passes heartbeat details to the next one in a sealed reply, so nobody else can inject text."""

import asyncio
import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.converter import ActivitySerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast.activities.heartbeats import earlier_details, heartbeats
from holdfast.activities.llm_calls.outages import Attempt, heartbeat_details, record_failure
from holdfast.core.llm.outages import LLMFailure, Outage
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.llm_calls import Failures, LLMRequest
from holdfast.core.temporal.converter import sealing
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.transcript.transcript import TranscriptRef

OURS = FleetKeys({"a": b"k" * 32})
FAILURE = LLMFailure(at=datetime(2026, 1, 2, tzinfo=UTC), seconds=1, cause="InternalServerError", message="503: busy")
OUTAGE = Outage.of(None, FAILURE)
ORDER = LLMRequest(order="1.abc", transcript=TranscriptRef(length=0, digest=""))
OTHER = ORDER.model_copy(update={"order": "2.abc"})


def attempt(details: Any = (), *, seals: FleetKeys = OURS, thread: str = "t") -> ActivityEnvironment:
    """Return an attempt after earlier ones left these details."""
    env = ActivityEnvironment()
    context = ActivitySerializationContext(
        namespace="default",
        workflow_id=thread,
        workflow_type="w",
        activity_type="call_llm",
        activity_task_queue="q",
        activity_id="1",
        is_local=False,
    )
    env.payload_converter = sealing(seals)().with_context(context)
    env.info = dataclasses.replace(env.info, heartbeat_details=list(details), workflow_id=thread)
    return env


def left(**where: Any) -> tuple[Any, ...]:
    """Return the details that an attempt leaves elsewhere."""
    return attempt(**where).run(heartbeat_details, Failures(answers=ORDER.order, outage=OUTAGE), ORDER)


def test_an_attempt_reads_the_details_of_the_previous_one() -> None:
    """As a control, details sealed with the fleet key for this call of this thread are read."""
    failures = attempt(left()).run(earlier_details, Failures, ORDER)
    assert failures
    assert failures.outage == OUTAGE
    assert attempt().run(earlier_details, Failures, ORDER) is None


@pytest.mark.parametrize(
    "details",
    [
        [json.dumps({"answers": "1.abc", "outage": OUTAGE.model_dump(mode="json")})],
        ["", json.dumps({"answers": "1.abc", "outage": OUTAGE.model_dump(mode="json")})],
        ["!", "\ud800"],
        [None, 7],
        left(seals=FleetKeys({"a": b"x" * 32})),
        left(seals=FleetKeys({"unknown": b"k" * 32})),
        left(thread="another"),
        [left()[0], left()[1].replace("busy", "fine")],
        attempt().run(heartbeat_details, Failures(answers=OTHER.order, outage=OUTAGE), OTHER),
    ],
    ids=["plain", "unsealed", "garbage", "numbers", "forged", "unknown key", "copied thread", "altered", "copied call"],
)
def test_a_forged_heartbeat_is_dropped(details: Any) -> None:
    """Anyone who polls an activity task can write its heartbeat: its text is ignored, and no attempt fails."""
    assert attempt(details).run(earlier_details, Failures, ORDER) is None


def test_a_secret_in_a_providers_error_is_redacted_in_heartbeats() -> None:
    """Errors are redacted before they leave an activity, and so are heartbeats."""
    env = attempt()
    beats: list[Any] = []
    env.on_heartbeat = lambda *details: beats.append(details)

    def fail(secrets: Secrets) -> None:
        error = ApplicationError("503: no room for sk-hunter2-hunter2", type="InternalServerError")
        record_failure(error, ORDER, None, Attempt(), secrets)

    for secrets, word in ((NO_SECRETS, "sk-hunter2-hunter2"), (Secrets({"KEY": "sk-hunter2-hunter2"}), "[secret KEY]")):
        env.run(fail, secrets)
        assert word in beats.pop()[1]


async def test_a_long_attempt_keeps_the_details_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each periodic heartbeat repeats them: a killed worker loses only its own attempt's details."""
    monkeypatch.setattr("holdfast.activities.heartbeats.INTERVAL", 0.001)
    details = left()
    env = attempt(details)
    beats: list[Any] = []
    done = asyncio.Event()

    def beat(*said: Any) -> None:
        beats.append(said)
        if len(beats) == 3:
            done.set()

    async def wait() -> None:
        failures = earlier_details(Failures, ORDER)
        assert failures
        async with heartbeats(*heartbeat_details(failures, ORDER)):
            await done.wait()

    env.on_heartbeat = beat
    await env.run(wait)
    assert beats == [details] * 3

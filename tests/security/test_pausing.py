"""Senders of `pause` and `resume` can only delay a run, and never let anything through."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import to_json

from holdfast import Policy
from holdfast.audit.judge.audit import Audit
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, RunPaused, RunResumed
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.inputs.pause import PAUSES
from holdfast.core.run.machine import rollover
from holdfast.core.run.rules import refusals
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.testing import call, say, steps
from tests.support.people import clerk, payments
from tests.support.rig import StartRig, eventually, runs_of, status_of
from tests.support.runs import Thread, calls, loaded_thread, through_json

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["x" * 90_000, "\ud800", "\x00" * 3_000, "\u202e", "# A\n![x](http://y)"]
)
TIMES = st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat())
VALUES = st.recursive(
    TEXTS | TIMES | st.none() | st.integers() | st.floats() | st.booleans(), lambda inner: st.lists(inner, max_size=3)
)
PAYLOADS = st.dictionaries(st.sampled_from(["by", "reason", "until", "seconds"]), VALUES) | VALUES


@given(st.lists(st.tuples(st.sampled_from(["pause", "resume"]), PAYLOADS), max_size=5))
@example([("pause", {"by": "\ud800", "reason": "\ud800", "until": "9999-12-31T23:59:59+00:00"})])
@example([("pause", {"seconds": True})])
@example([("pause", {"until": -(10**18)})])
def test_no_payload_breaks_a_run_or_starts_anything(sent: list[tuple[str, Any]]) -> None:
    """Any payload results in events of a bounded size, a serializable state, and no unapproved call."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    for name, payload in sent:
        thread.signal(name, payload)
    assert not thread.running_calls
    assert all(len(event_line(event)) < 50_000 for event in thread.log if isinstance(event, RunPaused | RunResumed))
    to_json(state_view(thread.state))
    current_details(thread.state).encode()
    snapshot = RunSnapshot(state=thread.state, transcript=thread.run.transcript.base, tail=tuple(thread.log))
    assert through_json(snapshot) == snapshot
    thread.check_consistent()


def paused_thread() -> Thread:
    """Return a thread with an approved call, paused for an hour, and resumed after that."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    thread.update("pause", {"by": "alice", "seconds": 3_600})
    thread.decide("1")
    thread.advance(hours=1)
    thread.finish(1)
    return thread


def fault(events: list[AgentEvent]) -> str:
    """Return the fault that an audit finds in a log whose chain was recomputed; empty for none."""
    log, audit = EventLog(), Audit("t")
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    audit.take(log.events)
    return audit.fault.reason if audit.fault else ""


def test_an_audit_detects_calls_during_a_pause() -> None:
    """A log in which a call starts during a pause, or a pause ends too early by itself, is invalid."""
    events = paused_thread().log
    assert fault(events) == ""
    place = next(index for index, event in enumerate(events) if isinstance(event, RunResumed))
    assert "call 1 was not allowed to run" in fault([*events[:place], *events[place + 1 :]])
    early = events[place].model_copy(update={"at": events[place].at - timedelta(minutes=1)})
    assert "run_resumed" in fault([*events[:place], early, *events[place + 1 :]])


def test_a_pause_neither_extends_a_request_nor_reverses_a_denial() -> None:
    """Pausing a run does not extend its requests, and a denial during a pause is final."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    thread.signal("pause", {"by": "eve"})
    assert thread.decide("1", "deny") == "accepted"
    assert thread.decide("1") == "duplicate"
    thread.signal("resume", {"by": "eve"})
    assert not thread.running_calls
    assert thread.calling_llm()


@pytest.mark.extended
async def test_a_flood_of_pauses_costs_a_run_only_time(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It continues as new while it is paused, few of the signals become events, and the payment happens once."""
    monkeypatch.setattr(rollover, "SIGNAL_LIMIT", 40)
    monkeypatch.setattr(refusals, "RECORDED", 10)
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        latest = r.client.get_workflow_handle(run.id)
        for _ in range(2):
            each = [latest.signal("pause", {"by": f"eve {n}", "reason": "x" * 5_000 + str(n)}) for n in range(40)]
            await asyncio.gather(*each)
        await latest.signal("approve", {"request": "1", "by": "alice"})
        state = await eventually(lambda: latest.query("state"), lambda state: not state["pending"])
        assert (state["status"], payments(r)) == ("paused", [])
        await latest.signal("resume", {"by": "alice"})
        assert (await latest.result())["result"] == "done"
        assert payments(r) == [5]
        assert len(await runs_of(r.client, run)) > 1
        assert await r.threads.length(run.id) < PAUSES + 60

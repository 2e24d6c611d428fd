"""Feature levels on a real server: additions of a later release change no run that an older release recorded.

`later_release` turns this process into one of a later release: one more level, and a signal `halt` that blocks a run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Catalog, Limits, Policy, allow, ask, tool
from holdfast.core.base.canonical import canonical
from holdfast.core.log.event_log import digest_after
from holdfast.core.log.events import AgentEvent, AgentLoaded, RunBlocked, RunContinued, RunUnblocked, SignalRejected
from holdfast.core.run.inputs.interventions import INTERVENTIONS, SIGNALS, Intervention
from holdfast.core.run.rules.authority import Reaction
from holdfast.core.run.state import features
from holdfast.core.run.state.state import RunState
from holdfast.core.temporal.history_reader import read_events
from holdfast.errors import HistoryUnreadable
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, answer_of, check_thread, events_of, eventually, runs_of, status_of
from tests.workflow.test_agent_loop import catalog as loop_catalog
from tests.workflow.test_agent_loop import diligent, replays

Handle = WorkflowHandle[Any, Any]

CURRENT, LATER = features.FEATURES, features.FEATURES + 1
"""The level of this release, and that of the later one."""


def _halt(state: RunState, payload: Any, *, at: datetime) -> Reaction:
    assert payload in ({"by": "alice"}, None), "a run of this level gets the decoded payload"
    return Reaction([RunBlocked(cause="Paused", message="by alice")])


@contextmanager
def later_release(*, since: int = LATER) -> Iterator[None]:
    """Act as a release with one more level during a block: runs from level `since` on have the signal `halt`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "FEATURES", LATER)
        patch.setitem(INTERVENTIONS, "halt", Intervention(react=_halt, signal=since))
        patch.setitem(SIGNALS, "halt", since)
        yield


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


AGENT = Agent(
    name="clerk",
    instructions="Work.",
    policy=Policy(rules=(ask("pay"), allow())),
    limits=Limits(history_events=90, max_steps=1_000),
    tools=[look, pay],
)
CATALOG = Catalog(agents=[AGENT])
SCRIPT = steps(
    [call("pay", amount=1), *(call("look", at=str(n)) for n in range(12)), call("pay", amount=2), say("done")]
)


async def halt(run: Handle) -> None:
    """Send the signal that only the later release has."""
    await run.signal("halt", {"by": "alice"})


async def wait_for_request(run: Handle) -> AgentEvent:
    """Wait until the run asks whether to pay, and return the last event."""
    await status_of(run, "waiting_approval")
    return (await events_of(run))[-1]


def rejected(events: list[AgentEvent]) -> list[str]:
    """Return the signals that had no effect."""
    return [event.signal for event in events if isinstance(event, SignalRejected)]


@pytest.mark.extended
async def test_a_signal_of_a_later_release_changes_no_recorded_run(rig: StartRig, client: Client) -> None:
    """A release with the signal `halt` replays a history in which an older one recorded it as unknown."""
    async with rig(CATALOG, steps([call("pay", amount=1), call("pay", amount=2)])) as r:
        run = await r.start()
        await wait_for_request(run)
        await halt(run)
        await run.signal("halt")  # no payload
        await run.signal("approve", {"request": "1"})
        await eventually(lambda: run.query("state"), lambda state: state["step"] == 2 and len(state["pending"]) == 1)
        recorded = await check_thread(client, run)
        assert rejected(recorded) == ["halt", "halt"]
        with later_release():
            assert await check_thread(client, run) == recorded
        with later_release(since=0), pytest.raises(HistoryUnreadable):
            read_events((await run.fetch_history()).events)


@pytest.mark.extended
async def test_only_continuing_as_new_raises_the_level_of_an_open_run(rig: StartRig, client: Client) -> None:
    """A worker of a later release continues a run at its level; the next Temporal run has the release's additions."""
    async with rig(CATALOG, SCRIPT, task_queue="raised") as r:
        run = await r.start()
        await wait_for_request(run)
        await halt(run)
    with later_release():
        async with rig(CATALOG, SCRIPT, task_queue="raised"):
            await halt(run)  # the worker has the signal, the run does not
            await eventually(lambda: events_of(run), lambda events: rejected(events) == ["halt"] * 2)
            await run.signal("approve", {"request": "1"})
            await eventually(lambda: runs_of(client, run), lambda runs: len(runs) > 1)
            now = client.get_workflow_handle(run.id)
            await status_of(now, "waiting_approval")
            await halt(now)
            await status_of(now, "blocked")
            await now.signal("retry", {"by": "alice"})
            await now.signal("approve", {"request": "2"})
            await now.result()
            events = await check_thread(client, run)
        continued = [event for event in events if isinstance(event, RunContinued)]
        assert [event.features for event in continued] == [LATER] * len(continued)
        assert [event.features for event in events if isinstance(event, AgentLoaded)] == [CURRENT]
        assert rejected(events) == ["halt"] * 2
        assert any(isinstance(event, RunUnblocked) for event in events)


async def test_a_new_run_has_the_level_of_the_worker_that_loads_its_agent(rig: StartRig, client: Client) -> None:
    """A start names no level; its run has the additions of the workers' release as soon as the agent is loaded."""
    with later_release():
        async with rig(CATALOG, SCRIPT) as r:
            run = await r.start()
            await wait_for_request(run)
            await halt(run)
            await status_of(run, "blocked")
            assert [e.features for e in await check_thread(client, run) if isinstance(e, AgentLoaded)] == [LATER]
            assert (await answer_of(run.execute_update("decide", {"decision": "approve", "request": "1"})))["outcome"]


async def task_failure_of(run: Handle) -> str:
    """Wait until a worker has failed a workflow task of the run, and return the reason."""

    async def why() -> str:
        events = (await run.fetch_history()).events
        failed = [e for e in events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
        return failed[-1].workflow_task_failed_event_attributes.failure.message if failed else ""

    return str(await eventually(why, bool))


@pytest.mark.parametrize("later", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["first run", "continued"])
async def test_an_older_worker_rejects_a_run_of_a_later_level_and_a_newer_one_takes_it(
    rig: StartRig, client: Client, later: bool
) -> None:
    """The workflow task fails with the advice to upgrade, the run does not; the next newer worker resumes it."""
    queue = f"refused-{later}"
    with later_release():
        async with rig(CATALOG, SCRIPT, task_queue=queue) as r:
            run = await r.start()
            await wait_for_request(run)
            if later:
                await run.signal("approve", {"request": "1"})
                await eventually(lambda: runs_of(client, run), lambda runs: len(runs) > 1)
                await status_of(client.get_workflow_handle(run.id), "waiting_approval")
    now = (await runs_of(client, run))[-1]
    async with rig(CATALOG, SCRIPT, task_queue=queue):
        await now.signal("approve", {"request": "2" if later else "1"})
        assert f"feature level {LATER}" in (why := await task_failure_of(now))
        assert "upgrade" in why
        with pytest.raises(HistoryUnreadable, match=f"feature level {LATER}"):
            read_events((await now.fetch_history()).events)
    with later_release():
        async with rig(CATALOG, SCRIPT, task_queue=queue):
            last = client.get_workflow_handle(run.id)
            if not later:
                await eventually(lambda: runs_of(client, run), lambda runs: len(runs) > 1)
                await status_of(last, "waiting_approval")
                await last.signal("approve", {"request": "2"})
            await last.result()
            await check_thread(client, run)


@pytest.mark.extended
async def test_an_older_worker_leaves_a_closed_thread_that_it_cannot_read_to_a_newer_one(
    rig: StartRig, client: Client
) -> None:
    """If a log of a later level has an event that only a later release can read, the run waits, and does not fail."""
    with later_release():
        async with rig(CATALOG, steps([say("done")]), task_queue="closed") as r:
            run = await r.start()
            await run.result()
            last = (await check_thread(client, run))[-1]
            unknown = {"type": "of_tomorrow", "schema_version": 1, "position": last.position + 1}
            line = canonical({**unknown, "digest": digest_after(last.digest, unknown)})
            await r.threads.append(run.id, last.position + 1, [line])
    async with rig(CATALOG, steps([say("done")]), task_queue="closed") as r:
        again = await r.start("more", thread=run.id, resume=True)

        async def why() -> str:
            pending = (await again.describe()).raw_description.pending_activities
            return pending[0].last_failure.message if pending else ""

        assert f"feature level {LATER}" in await eventually(why, bool)
        await again.terminate()


@pytest.mark.slow
async def test_an_older_worker_rejects_a_loop_of_a_later_level(rig: StartRig, client: Client) -> None:
    """A loop takes its level from its surveys, and an older worker leaves it to a newer one."""
    with later_release():
        async with rig(loop_catalog(), diligent, task_queue="loop") as r:
            (r.workspace / "TASKS.md").write_text("- [!] one (blocked: no key)\n")
            loop = await r.start_loop()
            await status_of(loop, "blocked")
            (r.workspace / "TASKS.md").write_text("- [x] one\n")
    async with rig(loop_catalog(), diligent, task_queue="loop"):
        await loop.signal("retry", {"by": "alice"})
        assert f"feature level {LATER}" in await task_failure_of(loop)
    with later_release():
        async with rig(loop_catalog(), diligent, task_queue="loop"):
            await loop.result()
            await replays(client, loop)

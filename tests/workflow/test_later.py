"""Hours in a policy, on a real server: the run sleeps until they begin, and its history replays."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from holdfast import Agent, Catalog, Hours, Policy, allow, later, tool
from holdfast.core.log.events import AgentLoaded, RunBlocked, ToolCallPostponed, ToolCallStarted
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, check_thread, events_of, skip, status_of

WAKE_AT = SearchAttributeKey.for_datetime("HoldfastWakeAt")


@tool(effect="idempotent")
def deploy() -> str:
    """Deploy."""
    return "deployed"


def catalog(hours: Hours) -> Catalog:
    """Return a catalog of an agent that may deploy in these hours only."""
    policy = Policy(rules=(later("deploy", until=hours), allow()))
    return Catalog(agents=[Agent(name="a", instructions="Deploy.", tools=[deploy], policy=policy)])


async def test_a_call_waits_for_its_hours_and_the_history_replays(rig: StartRig, client: Client) -> None:
    """The zone's offsets are recorded with the agent; the call starts when the hours begin, in the zone's own time."""
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    hours = Hours(begin="08:00", end="18:00", days=str(tomorrow.isoweekday() % 7), zone="Asia/Kolkata")
    async with rig(catalog(hours), steps([call("deploy"), say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        (postponed,) = [event for event in await events_of(run) if isinstance(event, ToolCallPostponed)]
        assert (postponed.until.hour, postponed.until.minute) == (2, 30)
        await skip(client, run, days=4)
        await run.result()
        events = await check_thread(client, run)
    (loaded,) = [event for event in events if isinstance(event, AgentLoaded)]
    (started,) = [event for event in events if isinstance(event, ToolCallStarted)]
    assert [(zone.name, zone.offsets[-1][1]) for zone in loaded.zones] == [("Asia/Kolkata", 19_800)]
    assert started.at >= postponed.until


@pytest.mark.extended
async def test_a_zone_that_the_worker_does_not_know_blocks_the_run(rig: StartRig) -> None:
    """The name cannot be checked where the policy is written; the block says what to correct."""
    async with rig(catalog(Hours(begin="08:00", zone="Mars/Olympus")), steps([say("done")])) as r:
        run = await r.start()
        await status_of(run, "blocked")
        (blocked,) = [event for event in await events_of(run) if isinstance(event, RunBlocked)]
    assert "the time zone 'Mars/Olympus', of which this worker has no data" in blocked.message

"""Attacks on the hours in a policy: who may make a call start outside of them?"""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

from holdfast import Agent, Catalog, Hours, Policy, allow, later, tool
from holdfast.core.log.events import ToolCallPostponed, ToolCallStarted
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, events_of, status_of


@tool(effect="idempotent")
def deploy() -> str:
    """Deploy."""
    return "deployed"


async def test_whoever_reaches_temporal_cannot_open_the_hours(rig: StartRig, client: Client) -> None:
    """Signals with any name, a forged end of the timer's call and messages start nothing; the record says who tried."""
    closed = datetime.now(UTC) + timedelta(days=3)
    hours = Hours(days=str(closed.isoweekday() % 7))
    policy = Policy(rules=(later("deploy", until=hours), allow()))
    catalog = Catalog(agents=[Agent(name="a", instructions="Deploy.", tools=[deploy], policy=policy)])
    async with rig(catalog, steps([call("deploy"), say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        for name, payload in [
            ("approve", {"request": "1", "by": "mallory"}),
            ("tool_call_started", {"number": 1, "key": "k"}),
            ("later", {"call": 1}),
            ("resume", {"by": "mallory"}),
            ("retry", {"by": "mallory"}),
            ("wake", {"by": "mallory"}),
        ]:
            await run.signal(name, payload)
        events = await events_of(run)
        assert [event for event in events if isinstance(event, ToolCallPostponed)]
        assert not [event for event in events if isinstance(event, ToolCallStarted)]
        assert (await status_of(run, "dormant"))["status"] == "dormant"
        await run.terminate()


@pytest.mark.parametrize("zone", ["../../etc/passwd", "/etc/localtime", "Europe/../../x", "a" * 61, "Europe/Berlin\n"])
def test_a_policy_cannot_name_a_file_as_its_zone(zone: str) -> None:
    """The name of a zone is a path below the zones' folder, and reaches nothing else."""
    with pytest.raises(ValueError, match="no name of a time zone"):
        Hours(zone=zone)

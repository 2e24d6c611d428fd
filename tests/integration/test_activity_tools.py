"""Activities as tools: those of the program as they are, and those of other workers by name."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import Agent, Catalog, Policy, activity_tool, allow, tool
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import ToolCallFinished
from holdfast.testing import call, say, steps
from tests.support.rig import Rig, StartRig, events_of, status_of

ALLOWED = Policy(rules=(allow("*"),))


def catalog(*tools: Any) -> Catalog:
    """Return a catalog of one agent that may call these tools."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=tools, policy=ALLOWED)])


async def outcomes(worker: Rig, *wanted: str) -> list[tuple[str, str]]:
    """Run the agent until it has one of these statuses; return the status and text of each call."""
    run = await worker.start()
    await status_of(run, *wanted)
    finished = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
    return [(event.status, str(event.content)) for event in finished]


@dataclass
class Parcel:
    """The argument of an activity, as Temporal recommends: one object."""

    order: str
    grams: int = 500


@activity.defn
def resize(name: str) -> str:
    """Resize a picture."""
    for percent in (0, 50, 100):
        activity.heartbeat(percent)
    time.sleep(0.01)
    return f"{name} of {activity.info().workflow_type}"


class Depot:
    """A service of the program's, whose methods are activities."""

    def __init__(self, name: str) -> None:
        self.name = name

    @activity.defn
    async def ship(self, parcel: Parcel) -> str:
        """Ship a parcel."""
        activity.heartbeat("packed")
        activity.logger.info("shipped")
        return f"{self.name} ships {parcel.grams} g of {parcel.order} in {activity.client().namespace}"


async def test_a_programs_activities_are_tools_as_they_are(rig: StartRig) -> None:
    """A sync one that sends heartbeats, and a bound method with one object as its argument."""
    tools = [tool(effect="read")(resize), tool(effect="idempotent")(Depot("Kiel").ship)]
    script = steps([call("resize", name="cat"), call("ship", parcel={"order": "7"}), say("Done.")])
    async with rig(catalog(*tools), script) as worker:
        assert await outcomes(worker, "completed") == [
            ("ok", "cat of AgentRunWorkflow"),
            ("ok", "Kiel ships 500 g of 7 in default"),
        ]


class Payments:
    """The activities of another team, whose worker knows nothing of Holdfast."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.calls = 0

    @activity.defn(name="ChargeCard")
    async def charge(self, order: str, cents: int) -> Mapping[str, Any]:
        """Charge a card, once for each workflow that asks."""
        self.calls += 1
        if cents < 0:
            raise ApplicationError("no negative amounts", type="NotDone", non_retryable=True)
        if cents == 0:
            raise ApplicationError("the bank hung up", type="BankError", non_retryable=True)
        self.charged[activity.info().workflow_id or ""] = cents
        return {"order": order, "charged": cents}


async def test_an_activity_on_another_task_queue_is_a_tool(rig: StartRig, stack: Stack) -> None:
    """It gets plain JSON and returns some; its errors are outcomes by the same rules as those of other tools."""
    queue = f"payments-{uuid4().hex[:8]}"

    @activity_tool("ChargeCard", task_queue=queue)
    def charge(order: str, cents: int) -> dict[str, Any]:
        """Charge the card of an order."""
        raise AssertionError("the declaration is never called")

    script = steps([*(call("charge", order="7", cents=cents) for cents in (700, -1, 0)), say("Done.")])
    payments, theirs = Payments(), await TemporalClient.connect(stack.temporal_address)
    async with (
        Worker(theirs, task_queue=queue, activities=[payments.charge]),
        rig(catalog(charge), script) as worker,
    ):
        assert await outcomes(worker, "waiting_approval") == [
            ("ok", '{"charged": 700, "order": "7"}'),
            ("failed", "NotDone: no negative amounts"),
        ]
        assert payments.calls == 3
        assert [*payments.charged.values()] == [700]
        (workflow_id,) = payments.charged
        assert workflow_id.startswith("holdfast-activity/")

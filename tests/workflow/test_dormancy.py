"""An agent that puts itself to sleep, on a real server."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from operator import eq
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf import duration_pb2
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from holdfast import Agent, Catalog, Limits, Policy, allow
from holdfast.api.thread import Thread
from holdfast.client.connect import ensure_search_attributes
from holdfast.client.threads import Threads
from holdfast.core.log.events import ToolCallFinished, ToolCallStarted, WakeReceived
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.errors import NotAccepted
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.replay.scenarios import CATALOG, SCENARIOS, dormant
from tests.support.rig import Rig, StartRig, check_thread, events_of, eventually, reset, status_of, tasks_of

WAKE_AT = SearchAttributeKey.for_datetime("HoldfastWakeAt")
AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
STEP = SearchAttributeKey.for_int("HoldfastStep")
WAITS_FOR = SearchAttributeKey.for_keyword_list("HoldfastWaitsFor")
SLEEPER = Catalog(
    agents=[Agent(name="a", instructions="Work.", tools=(), policy=Policy(rules=(allow(),)), dormancy=True)]
)


def thread_of(rig: Rig, thread: str) -> Thread:
    """Return a thread as a program holds it, in the name of alice."""
    return Thread(thread, threads=Threads(rig.client, task_queue=rig.task_queue), by="alice")


def activities(history: Any) -> list[str]:
    """Return the types of the activities that a history schedules, without the local ones."""
    scheduled = (event.activity_task_scheduled_event_attributes for event in history.events)
    return [each.activity_type.name for each in scheduled if each.activity_type.name]


async def test_a_dormant_run_is_woken_by_time_events_and_people_and_replays(rig: StartRig, client: Client) -> None:
    """Each wait ends as it should, no activity carries one out, and the history rebuilds the same events."""
    script, _, begin = SCENARIOS["dormant"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await dormant(run, r)
        events = await check_thread(client, run)
        ends = [event.text for event in events if isinstance(event, ToolCallFinished)]
        heads = ["You did not sleep: until: 'tomorrow'", "You slept for 2s.", "Event early arrived", "Event built arr"]
        heads += ["You were woken after", "You were woken after", "You were woken after"]
        assert [end[: len(head)] for end, head in zip(ends, heads, strict=True)] == heads
        assert [event.outcome for event in events if isinstance(event, WakeReceived)] == [
            *("buffered", "buffered", "delivered", "delivered", "delivered")
        ]
        assert "call_tool" not in activities(await run.fetch_history())


@pytest.mark.extended
async def test_visibility_shows_a_runs_wake_time_and_its_wait(rig: StartRig) -> None:
    """Both attributes are set only while the run sleeps; the client's outcome reports the effect of an event."""
    waits = call("wait_for_event", name="built", until="20d")
    async with rig(SLEEPER, steps([waits, say("done")])) as r:
        run = await r.start()
        thread = thread_of(r, run.id)
        assert (await thread.result(until="attention")).status == "dormant"

        async def attributes() -> Any:
            found = (await run.describe()).typed_search_attributes
            return found.get(WAKE_AT), tuple(found.get(WAITS_FOR) or ())

        until, names = await eventually(attributes, lambda found: found[1])
        assert names == ("built",)
        state = await thread.state()
        assert state.dormancy is not None
        assert until is not None
        assert state.dormancy.until == until
        assert (await thread.wake("other", data={"n": 1})).outcome == "buffered"
        with pytest.raises(NotAccepted, match="malformed"):
            await thread.wake("no spaces")
        assert (await thread.wake("built")).outcome == "delivered"
        await run.result()
        assert await attributes() == (None, ())


@pytest.mark.extended
async def test_an_agent_without_dormancy_has_no_trace_of_it(rig: StartRig) -> None:
    """Its search attributes are unchanged, and an event finds no wait."""
    agent = Agent(name="a", instructions="Work.", tools=(), policy=Policy(rules=(allow(),)))
    async with rig(Catalog(agents=[agent]), lambda _: say("done")) as r:
        run = await r.start(idle_limit=30.0)
        await status_of(run, "waiting_message")
        with pytest.raises(NotAccepted, match="not waiting"):
            await thread_of(r, run.id).wake("built")
        assert not (await run.describe()).typed_search_attributes.get(WAITS_FOR)
        assert "HoldfastWakeAt" not in str(await run.fetch_history())


@pytest.mark.extended
async def test_a_wait_survives_a_flood_that_makes_the_run_continue_as_new(rig: StartRig, client: Client) -> None:
    """Events beyond the limit are rejected, earlier ones are delivered, and the sleep continues to its end."""
    replies = [call("wait_for_event", name="built"), *[call("wait_for_event", name="x")] * 2, say("done")]
    async with rig(SLEEPER, steps(replies)) as r:
        run = await r.start()
        await status_of(run, "dormant")
        for number in range(250):
            await run.signal("wake", {"event": "x", "id": str(number), "data": {"n": number}})
        again = client.get_workflow_handle(run.id)
        await eventually(again.describe, lambda found: found.run_id != run.first_execution_run_id)
        await again.signal("wake", {"event": "built"})
        await again.result()
        await check_thread(client, again)
        read = str(r.llm.requests[-1])
        assert [number for number in range(250) if f'{{"n":{number}}}' in read.replace("\\", "")] == [0, 1]


@pytest.mark.extended
async def test_a_reset_into_a_wait_resumes_it(rig: StartRig, client: Client) -> None:
    """The wait is unchanged, the ledger has no entry for it, and later events arrive again."""
    async with rig(SLEEPER, steps([call("wait_for_event", name="built"), say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        asleep = (await tasks_of(run))[-1]
        await run.signal("wake", {"event": "built", "data": {"n": 1}})
        await run.result()
        again = await reset(r, run, to=asleep)
        await again.result()
        events = await events_of(again)
        (end,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert end.text.endswith('"data":{"n":1}}')
        assert len([event for event in events if isinstance(event, ToolCallStarted)]) == 1


async def visibility_of(client: Client, thread: str) -> list[Any]:
    """Return the visibility data of the thread's open run: agent, status, steps and events."""
    listing = client.list_workflows(f"WorkflowId = '{thread}' AND ExecutionStatus = 'Running'")
    each = [run.typed_search_attributes async for run in listing]
    return [(own.get(AGENT), own.get(STATUS), own.get(STEP), tuple(own.get(WAITS_FOR) or ())) for own in each]


@pytest.mark.extended
async def test_a_run_that_continues_as_new_is_found_by_its_attributes(rig: StartRig, client: Client) -> None:
    """Although only changes are published, the listing equals the state in each Temporal run."""
    names = ("one", "two", "three")
    agent = SLEEPER.agents["a"].model_copy(update={"limits": Limits(history_events=20)})
    script = steps([*(call("wait_for_event", name=name) for name in names), say("done")])
    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        again = client.get_workflow_handle(run.id)
        for step, name in enumerate(names, 1):
            now = [("a", "dormant", step, (name,))]
            await eventually(partial(visibility_of, client, run.id), partial(eq, now))
            await again.signal("wake", {"event": name})
        await again.result()
        last = await again.describe()
        assert last.run_id != run.first_execution_run_id
        assert last.typed_search_attributes.get(STATUS) == "completed"
        assert not last.typed_search_attributes.get(WAITS_FOR)


@pytest.mark.extended
async def test_a_run_that_is_reset_is_found_by_its_attributes(rig: StartRig, client: Client) -> None:
    """The attributes are those of the reset point, and then those of the new branch."""
    async with rig(SLEEPER, steps([call("wait_for_event", name="built"), say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        asleep = (await tasks_of(run))[-1]
        await run.signal("wake", {"event": "built"})
        await run.result()
        again = await reset(r, run, to=asleep, again=False)
        await eventually(partial(visibility_of, client, run.id), partial(eq, [("a", "dormant", 1, ("built",))]))
        await again.signal("wake", {"event": "built"})
        await again.result()
        assert not (await again.describe()).typed_search_attributes.get(WAITS_FOR)


@pytest.mark.extended
async def test_a_closed_thread_is_reopened_in_the_midst_of_a_wait(rig: StartRig) -> None:
    """The wait ends as cancelled, which the LLM reads; the next run gets the buffered event."""

    def script(conversation: Conversation) -> Reply:
        if "and on" not in str(conversation.messages):
            return call("sleep_until", until="20d")
        kept = "Event early" in str(conversation.messages)
        return say("done") if kept else call("wait_for_event", name="early")

    async with rig(SLEEPER, script) as r:
        run = await r.start()
        await status_of(run, "dormant")
        await run.execute_update("wake", {"event": "early"})
        await run.terminate()
        again = await r.start("and on", thread=run.id, resume=True, previous_run=run.first_execution_run_id)
        assert (await again.result())["result"] == "done"
        ends = [event for event in await events_of(again) if isinstance(event, ToolCallFinished)]
        assert [end.status for end in ends] == ["cancelled", "ok"]


@pytest.mark.extended
async def test_a_worker_adds_the_search_attributes_that_an_older_installation_lacks(client: Client) -> None:
    """A namespace with those of 0.1.0 gets the new ones when a worker of this release starts; a second start changes
    nothing.
    """
    old = {name: SEARCH_ATTRIBUTES[name] for name in ("HoldfastAgent", "HoldfastStatus")}
    name = f"older-{uuid4().hex[:8]}"
    retention = duration_pb2.Duration(seconds=86_400)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
    )
    config = client.config(active_config=True)
    config["namespace"], config["plugins"] = name, []
    older = Client(**config)

    async def known() -> dict[str, int]:
        request = ListSearchAttributesRequest(namespace=name)
        return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)

    async def add(names: Mapping[str, str]) -> bool:
        types = dict.fromkeys(names, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
        request = AddSearchAttributesRequest(namespace=name, search_attributes=types)
        with suppress(RPCError):  # a new namespace takes a moment to be known everywhere
            await client.operator_service.add_search_attributes(request)
            return True
        return False

    await eventually(lambda: add(old), bool)
    assert (await known()).keys() == old.keys()
    for _ in range(2):
        await ensure_search_attributes(older)
        attributes = await known()
        assert attributes.keys() == SEARCH_ATTRIBUTES.keys()
        assert attributes["HoldfastWakeAt"] == IndexedValueType.INDEXED_VALUE_TYPE_DATETIME

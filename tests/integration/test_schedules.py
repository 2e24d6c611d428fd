"""Schedules on a real server: on the command line, from programs, over HTTP, and with workers that are killed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Container, Sized
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError

from holdfast import Agent, Catalog, SyncClient
from holdfast import Client as Holdfast
from holdfast.client.connect import connect, connect_stack, ensure_search_attributes, stack_config
from holdfast.client.listing import list_threads
from holdfast.client.schedule_definitions import Definition
from holdfast.client.schedule_states import list_schedules, schedule_state
from holdfast.client.schedules import add_schedule, trigger_schedule
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW, WORKFLOW
from holdfast.errors import FleetKeyMissing, ScheduleExists, ScheduleInvalid, ScheduleNotFound
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.testing import ScriptedLLM, fail, hang, say
from tests.integration.test_gateway import bearer
from tests.integration.test_loops import Shell
from tests.support.processes import WorkerProcess
from tests.support.rig import Rig, StartRig, environ_of, eventually
from tests.support.serving import served, sha256

JSON = dict[str, Any]
MOMENTS = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED,
)
"""Events of a launcher after which its worker is killed."""
CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.")])
MONTHLY = "0 0 1 * *"
"""Due only when the test triggers it, except for one minute a month."""


@pytest.fixture
async def name(client: Client) -> AsyncIterator[str]:
    """Yield a name for a schedule, which is deleted after the test."""
    name = f"inbox-{uuid4().hex[:8]}"
    yield name
    with contextlib.suppress(RPCError):
        await client.get_schedule_handle(name).delete()


def threads_of(rig: Rig) -> Threads:
    """Return the threads of the rig's task queue."""
    return Threads(rig.client, task_queue=rig.task_queue)


async def last_runs(threads: Threads, name: str, *statuses: str) -> list[JSON]:
    """Wait until a schedule's runs have these statuses, newest first, and return them."""

    async def ask() -> list[JSON]:
        runs: list[JSON] = (await schedule_state(threads, name))["runs"]
        return runs

    rows: list[JSON] = await eventually(ask, lambda runs: tuple(run["status"] for run in runs) == statuses)
    return rows


async def test_a_schedule_from_the_command_line(rig: StartRig, stack: Stack, tmp_path: Path, name: str) -> None:
    """Each verb works; `schedule show` lists the runs, and `show` names the schedule of a run."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        shell = Shell(worker, stack, tmp_path / "home")

        async def run(*arguments: str, code: int = 0) -> Any:
            return await asyncio.to_thread(shell.json, *arguments, code=code)

        async def words(*arguments: str, code: int = 0) -> str:
            return await asyncio.to_thread(shell.run, *arguments, code=code)

        when = ("--cron", "0 7 * * 1-5", "--tz", "Europe/Berlin")
        added = await run("schedule", "add", name, "Sort the inbox", *when, "--reason", "people forget")
        assert (added["cron"], added["tz"], added["by"], added["reason"]) == (*when[1::2], "dana", "people forget")
        assert datetime.fromisoformat(added["next"][0]).astimezone(UTC).hour in (5, 6)  # in daylight saving time
        assert (await run("schedule", "add", name, "Sort the inbox", *when, "--reason", "people forget")) == added
        await words("schedule", "add", name, "Sort it all", *when, code=2)
        await words("schedule", "add", name, "Sort it all", "--cron", "0 25 * * *", code=2)

        thread = (await run("schedule", "trigger", name))["thread"]
        await last_runs(threads_of(worker), name, "completed")
        assert (await run("show", thread))["schedule"] == name
        shown = await words("schedule", "show", name)
        expected = (thread, "completed", "0 7 * * 1-5 (Europe/Berlin)", "people forget", "1 run")
        assert all(each in shown for each in expected)
        assert f"Schedule   {name}" in await words("show", thread)

        paused = await run("schedule", "pause", name, "--reason", "frozen")
        assert (paused["paused"], paused["note"], paused["next"]) == (True, "paused by dana: frozen", [])
        replaced = await run("schedule", "add", name, "Sort it all", "--every", "6h", "--replace")
        assert (replaced["task"], replaced["every"], replaced["paused"]) == ("Sort it all", 21_600, True)
        assert "by dana: frozen" in await words("schedule", "show", name)
        resumed = await run("schedule", "resume", name)
        assert (resumed["paused"], resumed["note"]) == (False, "resumed by dana")
        assert resumed["next"]

        async def listed() -> list[str]:
            lines = (await words("schedule", "list", "--json")).splitlines()
            return [json.loads(line)["schedule"] for line in lines]

        await eventually(listed, lambda names: name in names)
        assert name in await words("schedule", "list")
        rows = [row["thread"] for row in await list_threads(threads_of(worker))]
        assert [row for row in rows if name in row] == [thread]
        assert (await run("schedule", "delete", name))["outcome"] == "deleted"
        for verb in ("show", "pause", "resume", "trigger", "delete"):
            assert await words("schedule", verb, name, code=3) == ""
        assert (await run("show", thread))["result"] == "sorted"


@pytest.mark.extended
async def test_a_schedule_starts_runs_by_itself_and_skips_overlapping_ones(rig: StartRig, name: str) -> None:
    """While a run is open, due starts are skipped and counted; the next one after its end happens."""
    release = asyncio.Event()
    async with rig(CATALOG, lambda _: say("sorted") if release.is_set() else hang()) as worker:
        threads = threads_of(worker)
        await add_schedule(threads, name, Definition(task="Sort", every=60.0, by="alice"))

        def each_second(current: ScheduleUpdateInput) -> ScheduleUpdate:
            schedule = current.description.schedule
            schedule.spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(seconds=1))])
            return ScheduleUpdate(schedule)

        await worker.client.get_schedule_handle(name).update(each_second)
        state = await eventually(lambda: schedule_state(threads, name), lambda state: state["skipped"] > 1)
        (only,) = state["runs"]
        assert (only["status"], len(worker.llm.requests)) == ("running", 1)
        release.set()
        await worker.client.get_workflow_handle(only["thread"]).cancel()
        state = await eventually(lambda: schedule_state(threads, name), lambda state: len(state["runs"]) > 2)
        assert len({run["thread"] for run in state["runs"]}) == len(state["runs"])


@pytest.mark.extended
async def test_a_scheduled_run_with_a_missing_agent_reports_it(rig: StartRig, name: str) -> None:
    """Each run fails, and the schedule shows the reason."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        threads = threads_of(worker)
        await add_schedule(threads, name, Definition(task="Sort", cron=MONTHLY, agent="gone", by="alice"))
        await trigger_schedule(threads, name)
        state = await eventually(
            lambda: schedule_state(threads, name), lambda state: any(run["why"] for run in state["runs"])
        )
        (run,) = state["runs"]
        assert run["status"] == "failed"
        assert "no agent named 'gone'" in run["why"]


@pytest.mark.extended
async def test_an_unattended_scheduled_run_fails_and_holds_up_no_later_one(rig: StartRig, name: str) -> None:
    """What would block it is the reason that the schedule shows; the next run starts, though runs may not overlap."""
    async with rig(CATALOG, lambda _: fail(401, "no such key")) as worker:
        threads = threads_of(worker)
        definition = Definition(task="Sort", cron=MONTHLY, by="alice", overlap="skip", when_blocked="fail")
        await add_schedule(threads, name, definition)
        assert not await add_schedule(threads, name, definition)
        assert (await schedule_state(threads, name))["unattended"]

        async def failed(count: int) -> dict[str, Any]:
            """Trigger the schedule, and wait for its last run to fail."""
            await trigger_schedule(threads, name)
            ended: dict[str, Any] = await eventually(
                lambda: schedule_state(threads, name),
                lambda state: len([run for run in state["runs"] if run["why"]]) == count,
            )
            return ended

        await failed(1)
        state = await failed(2)
        assert {run["status"] for run in state["runs"]} == {"failed"}
        assert all("no such key" in run["why"] for run in state["runs"])


@pytest.mark.extended
async def test_a_program_creates_schedules(rig: StartRig, stack: Stack, name: str) -> None:
    """The async and sync clients add, trigger and read schedules; a different one of the same name is rejected."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        options: dict[str, Any] = {"temporal": worker.client, "task_queue": worker.task_queue, "by": "alice"}
        options |= {"fleet_keys": environ_of(stack)["HOLDFAST_FLEET_KEYS"]}
        async with Holdfast.connect(**options) as client:
            until = datetime.now(UTC) + timedelta(days=400)
            state = await client.schedules.add(name, "Sort", every=timedelta(hours=6), until=until)
            assert (state.every, state.until, state.by, state.overlap) == (21_600, until, "alice", "skip")
            again = await client.schedules.add(name, "Sort", every=6 * 3_600, until=until)
            assert again.next == state.next
            with pytest.raises(ScheduleExists, match="alice"):
                await client.schedules.add(name, "Sort", every=timedelta(hours=7), until=until)
            thread = await client.schedules.trigger(name)
            assert thread
            assert (await thread.result()).text == "sorted"
            assert (await thread.state()).schedule == name
            await client.schedules.pause(name, reason="holiday")
            assert (await client.schedules.state(name)).note == "paused by alice: holiday"
            triggered = await client.schedules.trigger(name)  # also while it is paused
            assert triggered
            assert triggered.id != thread.id

        def in_sync() -> None:
            with SyncClient.connect(**{**options, "temporal": None}, address=stack.temporal_address) as client:
                client.schedules.resume(name)
                assert not client.schedules.state(name).paused
                started = client.schedules.trigger(name)
                assert started
                assert started.result().text == "sorted"
                client.schedules.delete(name)
                with pytest.raises(ScheduleNotFound, match=name):
                    client.schedules.state(name)

        await asyncio.to_thread(in_sync)


async def test_schedules_of_others_are_left_alone(rig: StartRig, stack: Stack, name: str) -> None:
    """Another program's schedule is not listed, shown or replaced; without a fleet key none is created."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        threads = threads_of(worker)
        action = ScheduleActionStartWorkflow("Other", id="other", task_queue="other")
        await worker.client.create_schedule(name, Schedule(action, ScheduleSpec()))
        definition = Definition(task="Sort", cron=MONTHLY)
        with pytest.raises(ScheduleExists, match="another program"):
            await add_schedule(threads, name, definition, replace=True)
        with pytest.raises(ScheduleNotFound):
            await trigger_schedule(threads, name)
        assert name not in [row["schedule"] for row in await list_schedules(threads)]
        with pytest.raises(ScheduleInvalid):
            await schedule_state(threads, "no such name")
        keyless = Threads(await connect(stack_config(stack)))
        with pytest.raises(FleetKeyMissing):
            await add_schedule(keyless, f"{name}-2", definition)


@pytest.mark.extended
async def test_schedules_over_http(rig: StartRig, client: Client) -> None:
    """A token with the scope creates schedules within its thread prefix; other tokens do not see them."""
    name = f"billing-{uuid4().hex[:8]}"
    both: tuple[Scope, ...] = ("schedule", "schedules")
    file = CallersFile(
        tokens=(
            Token(name="alice", sha256=sha256("of-alice"), scopes=both),
            Token(name="billing", sha256=sha256("of-billing"), scopes=both, threads=("billing-",)),
            Token(name="shop", sha256=sha256("of-shop"), scopes=both, threads=("shop-",)),
            Token(name="viewer", sha256=sha256("of-viewer"), scopes=("schedules",)),
            Token(name="old", sha256=sha256("of-old"), scopes=("start", "list", "read", "cancel", "pause")),
        )
    )
    async with (
        rig(CATALOG, lambda _: say("sorted")) as worker,
        served(build_app(threads_of(worker), Callers(file))) as url,
        httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http,
    ):

        async def ask(who: str, method: str, path: str = f"/schedules/{name}", body: Any = None) -> httpx2.Response:
            return await http.request(method, path, json=body, headers=bearer(f"of-{who}"))

        body = {"task": "Sort", "cron": MONTHLY, "tz": "Europe/Berlin", "reason": "people forget"}
        try:
            made = [await ask("billing", "PUT", body=body) for _ in range(2)]
            assert [each.status_code for each in made] == [201, 200], made[0].text
            assert (made[0].json()["by"], made[0].json()["tz"]) == ("billing", "Europe/Berlin")
            other = [await ask(who, "PUT", body={**body, "task": "Steal"}) for who in ("billing", "alice", "shop")]
            assert [each.status_code for each in other] == [409, 409, 403]
            wrong = [{**body, "cron": "0 25 * * *"}, {**body, "every": 60}, {**body, "by": "root"}, {"task": "Sort"}]
            wrong += [{**body, "until": "2030-01-01T00:00:00"}, {**body, "workspace": "/etc"}]
            assert {(await ask("billing", "PUT", body=each)).status_code for each in wrong} == {422}

            changes = [("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/trigger")]
            paths = [(method, f"/schedules/{name}{rest}") for method, rest in changes]
            assert {(await ask("shop", *each)).status_code for each in [*paths, ("GET", f"/schedules/{name}")]} == {404}
            for who in ("viewer", "old"):
                refused = [*paths, ("PUT", f"/schedules/{name}")]
                assert {(await ask(who, *each)).status_code for each in refused} == {403}
            assert (await ask("old", "GET", "/schedules")).status_code == 403

            thread = (await ask("billing", "POST", f"/schedules/{name}/trigger")).json()["thread"]
            assert (await worker.client.get_workflow_handle(thread).result())["result"] == "sorted"
            paused = (await ask("billing", "POST", f"/schedules/{name}/pause", {"reason": "frozen"})).json()
            assert (paused["paused"], paused["note"]) == (True, "paused by billing: frozen")
            resumed = (await ask("billing", "POST", f"/schedules/{name}/resume")).json()
            assert (resumed["paused"], resumed["runs"][0]["thread"]) == (False, thread)

            async def names(who: str) -> list[str]:
                return [each["schedule"] for each in (await ask(who, "GET", "/schedules")).json()["schedules"]]

            await eventually(lambda: names("viewer"), lambda found: name in found)
            assert name in await names("billing")
            assert name not in await names("shop")
            assert (await ask("billing", "DELETE")).status_code == 204
            assert (await ask("billing", "GET")).status_code == 404
        finally:
            with contextlib.suppress(RPCError):
                await client.get_schedule_handle(name).delete()


@pytest.mark.slow
async def test_a_killed_worker_leaves_one_run(tmp_path: Path) -> None:
    """After SIGKILL before, during or after a launcher's start of the run, there is exactly one run."""
    with ScriptedLLM() as llm:
        worker = WorkerProcess(
            tmp_path / "home", HOLDFAST_CATALOG="tests.support.killable:catalog", OPENAI_BASE_URL=llm.base_url
        )
        worker.start()
        try:
            client = await connect_stack(worker.stack)
            await ensure_search_attributes(client)
            threads = Threads(client, task_queue=worker.task_queue)
            await add_schedule(threads, "inbox", Definition(task="Sort", cron=MONTHLY, by="alice"))
            schedule = client.get_schedule_handle("inbox")

            async def launchers() -> list[str]:
                actions = [each.action for each in (await schedule.describe()).info.recent_actions]
                return [each.workflow_id for each in actions if isinstance(each, ScheduleActionExecutionStartWorkflow)]

            async def seen(launcher: str) -> set[int]:
                return {
                    event.event_type for event in (await client.get_workflow_handle(launcher).fetch_history()).events
                }

            for count, moment in enumerate((None, *MOMENTS), start=1):
                llm.script = lambda _: hang()
                if moment is None:
                    worker.kill()
                await schedule.trigger()
                (*_, launcher) = await eventually(launchers, partial(_has, count))
                if moment is not None:
                    await eventually(partial(seen, launcher), partial(_contains, moment))
                    worker.kill()
                llm.script = lambda _: say("sorted")
                worker.start()
                await client.get_workflow_handle(launcher).result()
            for kind in (SCHEDULED_WORKFLOW, WORKFLOW):
                query = f"WorkflowType = '{kind}'"
                assert await eventually(partial(_count, client, query), lambda count: count >= 4) == 4
        finally:
            assert worker.stop() == 0


async def _count(client: Client, query: str) -> int:
    return len([run async for run in client.list_workflows(query)])


def _has(count: int, found: Sized) -> bool:
    return len(found) == count


def _contains(wanted: int, found: Container[int]) -> bool:
    return wanted in found

"""The launcher of scheduled runs, on a real server: one run for each scheduled time, which it waits for."""

from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError

from holdfast.client.start_options import issued
from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.mac.seals import launcher_prefix
from holdfast.core.run.contracts.error_types import START_REFUSED, THREAD_EXISTS
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW
from holdfast.core.schedule.launching import ScheduledInput, ScheduledResult
from holdfast.testing import hang, say
from tests.support.rig import Rig, StartRig, check_thread, eventually, status_of

CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.")])
AT = "2026-01-02T03:04:05Z"


def new_name() -> str:
    """Return a new name."""
    return f"inbox-{uuid4().hex[:8]}"


async def failure_of(launcher: WorkflowHandle[object, ScheduledResult]) -> tuple[str, str]:
    """Return the type and the message of a launcher's failure."""
    with pytest.raises(WorkflowFailureError) as failed:
        await launcher.result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.type or "", failed.value.cause.message


async def test_a_launcher_starts_a_run_and_ends_with_it(rig: StartRig) -> None:
    """The run is sealed and in its thread; its log names the schedule and its maker."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        name = new_name()
        launcher = await worker.launch(name, at=AT)
        assert (await launcher.result()).thread == f"{name}-{AT}"
        description = await worker.client.get_workflow_handle(f"{name}-{AT}").describe()
        run = worker.client.get_workflow_handle(description.id, run_id=description.run_id)
        started, task, *_ = await check_thread(worker.client, run)
        assert started.type == "run_started"
        assert task.type == "user_message_received"
        assert (started.sealed, started.user_proven, started.schedule) == (True, True, name)
        assert (task.by, task.content) == ("dana", "do it")
        assert (await run.query("state"))["schedule"] == name


@pytest.mark.extended
async def test_a_thread_that_exists_is_not_started_again(rig: StartRig) -> None:
    """A second launcher for the same time starts nothing and reports that; the existing run continues."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        name = new_name()
        await (await worker.launch(name, at=AT)).result()
        cause, why = await failure_of(await worker.launch(name, at=AT))
        assert cause == THREAD_EXISTS
        assert f"{name}-{AT}" in why
        assert len(worker.llm.requests) == 1


@pytest.mark.extended
async def test_a_run_that_fails_fails_its_launcher(rig: StartRig) -> None:
    """The reason is that of the run: here, that the agent no longer exists."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        with pytest.raises(WorkflowFailureError) as failed:
            await (await worker.launch(new_name(), agent="gone", at=AT)).result()
        assert isinstance(failed.value.cause, ChildWorkflowError)
        assert "no agent named 'gone'" in str(failed.value.cause.cause)


@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_cancelled_launcher_cancels_its_run_and_waits_for_it(rig: StartRig) -> None:
    """The overlap policy `cancel` therefore stops the agent, and starts the next run afterwards."""
    async with rig(CATALOG, lambda _: hang()) as worker:
        name = new_name()
        launcher = await worker.launch(name, at=AT)
        await eventually(lambda: _count(worker), bool)
        await launcher.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await launcher.result()
        assert isinstance(failed.value.cause, CancelledError)
        await status_of(worker.client.get_workflow_handle(f"{name}-{AT}"), "cancelled")


@pytest.mark.extended
async def test_a_run_outlives_its_launcher(rig: StartRig) -> None:
    """Terminating the launcher, as an operator may, leaves the thread alone."""
    async with rig(CATALOG, lambda _: hang()) as worker:
        name = new_name()
        launcher = await worker.launch(name, at=AT)
        await eventually(lambda: _count(worker), bool)
        await launcher.terminate()
        run = worker.client.get_workflow_handle(f"{name}-{AT}")
        assert (await status_of(run, "running"))["task"] == "do it"
        await run.terminate()


@pytest.mark.extended
async def test_a_run_that_is_cancelled_ends_its_launcher(rig: StartRig) -> None:
    """If a person cancels the run, its launcher stops waiting."""
    async with rig(CATALOG, lambda _: hang()) as worker:
        name = new_name()
        launcher = await worker.launch(name, at=AT)
        await eventually(lambda: _count(worker), bool)
        await worker.client.get_workflow_handle(f"{name}-{AT}").cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await launcher.result()
        assert isinstance(failed.value.cause, ChildWorkflowError)


@pytest.mark.parametrize(
    ("suffix", "given", "says"),
    [
        (f"-{AT}", {"until": "2026-01-01T00:00:00Z"}, "the schedule ended at 2026-01-01"),
        pytest.param("", {}, "does not say which schedule", marks=pytest.mark.extended),
    ],
)
async def test_a_launcher_that_may_not_start_gives_the_reason(
    rig: StartRig, suffix: str, given: dict[str, object], says: str
) -> None:
    """A schedule past its end starts nothing, and without a time there is no thread id."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        begin = issued(ScheduledInput.model_validate({"task": "Sort", **given}))
        launcher = await worker.client.start_workflow(
            SCHEDULED_WORKFLOW,
            begin,
            id=launcher_prefix(new_name()) + suffix,
            task_queue=worker.task_queue,
            result_type=ScheduledResult,
        )
        cause, why = await failure_of(launcher)
        assert cause == START_REFUSED
        assert says in why


async def _count(worker: Rig) -> int:
    return len(worker.llm.requests)

"""A worker that a program already has runs agents: its own workflows stay as they were, and runs are as anywhere."""

import asyncio
import base64
import logging
import os
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast import Agent, Catalog, Client, HoldfastPlugin, Policy, allow, tool
from holdfast.api.views import Result
from holdfast.config.stack_file import Stack
from holdfast.errors import SettingsError
from holdfast.testing import ScriptedLLM, call, say, steps
from tests.support.own_workflows import OrderWorkflow, price
from tests.support.rig import PATIENCE, environ_of


@tool(effect="idempotent")
def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


CATALOG = Catalog(
    agents=[Agent(name="cashier", instructions="Charge.", tools=[charge], policy=Policy(rules=(allow("*"),)))]
)
ANSWERS = [call("charge", cents=700), say("Done.")]
OTHER = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=())])


class Deflating(PayloadCodec):
    """A program's own codec, which reads nothing else."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Compress."""
        return [
            Payload(metadata={"encoding": b"binary/deflated"}, data=zlib.compress(each.SerializeToString()))
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decompress; raise for any other encoding."""
        for each in payloads:
            assert each.metadata["encoding"] == b"binary/deflated", "not a payload of this codec"
        return [Payload.FromString(zlib.decompress(each.data)) for each in payloads]


class Counting(Interceptor):
    """A program's interceptor, which counts the activities that it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Count an activity."""
        self.seen.append(activity.info().activity_type)
        return next


@pytest.fixture
def environ(stack: Stack, state_folder: Path) -> dict[str, str]:
    """The variables of a worker beside the session's servers, without an LLM."""
    return {**environ_of(stack), "DATABASE_URL": stack.database_url, "HOLDFAST_HOME": str(state_folder)}


@asynccontextmanager
async def scripted(environ: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """Run a scripted LLM, and yield the variables that name it, too."""
    with ScriptedLLM(steps(ANSWERS)) as llm:
        yield {**environ, "OPENAI_BASE_URL": llm.base_url, "OPENAI_API_KEY": "none"}


async def connect(stack: Stack, *plugins: Plugin, **options: Any) -> TemporalClient:
    """Connect a program's own client."""
    return await TemporalClient.connect(stack.temporal_address, plugins=plugins, **options)


def new_id(name: str) -> str:
    """Return a new id."""
    return f"{name}-{uuid4().hex[:8]}"


async def order(client: TemporalClient, queue: str) -> str:
    """Run the program's own workflow, and return its id."""
    name = new_id("order")
    assert await client.execute_workflow(OrderWorkflow.run, "book", id=name, task_queue=queue) == 400
    return name


async def ask(client: TemporalClient, queue: str, **options: Any) -> Result:
    """Run an agent to its end."""
    async with Client.connect(client, task_queue=queue, **options) as holdfast:
        run = await holdfast.start("Charge 7.00.", thread=new_id("run"), by="alice")
        return await run.result(timeout=PATIENCE)


async def test_runs_and_a_programs_workflows_are_encoded_as_their_readers_expect(
    stack: Stack, environ: dict[str, str]
) -> None:
    """With a codec of the program's, and encryption of the runs: neither reads or writes a payload of the other."""
    keys = f"k1:{base64.b64encode(os.urandom(32)).decode()}"
    async with scripted({**environ, "HOLDFAST_ENCRYPTION_KEYS": keys}) as variables:
        plugin, queue, seen = HoldfastPlugin(CATALOG, environ=variables), new_id("queue"), Counting()
        deflating = DataConverter(payload_codec=Deflating())
        client = await connect(stack, plugin, data_converter=deflating)
        worker = Worker(client, task_queue=queue, workflows=[OrderWorkflow], activities=[price], interceptors=[seen])
        async with worker:
            ordered = await order(client, queue)
            assert await order(await connect(stack, data_converter=deflating), queue)
            result = await ask(client, queue)
            assert result.text == "Done."
        assert {"price", "call_tool"} <= {*seen.seen}
        stored = await (await connect(stack)).get_workflow_handle(result.thread).fetch_history()
        text = b"".join(event.SerializeToString() for event in stored.events)
        assert b"binary/deflated" not in text
        assert b"Charge 7.00" not in text
        history = await client.get_workflow_handle(ordered).fetch_history()
        assert b"encryption-place" not in b"".join(event.SerializeToString() for event in history.events)
        with pytest.raises(SettingsError, match="namespace="):
            Replayer(workflows=[OrderWorkflow], plugins=[plugin])
        replayer = Replayer(
            workflows=[OrderWorkflow], plugins=[plugin], data_converter=deflating, namespace=client.namespace
        )
        for each in (history, stored):
            await replayer.replay_workflow(each)


class Upgrading(SimplePlugin):
    """A plugin like those of Temporal's own packages: a converter, modules for the sandbox, and things to open."""

    def __init__(self) -> None:
        self.open = 0
        super().__init__(
            "upgrading",
            data_converter=self._upgrade,
            workflow_runner=self._pass_through,
            interceptors=[Counting()],
            run_context=self._run,
        )

    @staticmethod
    def _upgrade(converter: DataConverter | None) -> DataConverter:
        assert converter is not None
        assert converter.payload_converter_class is DefaultPayloadConverter
        return pydantic_data_converter

    @staticmethod
    def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
        assert isinstance(runner, SandboxedWorkflowRunner)
        return runner

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self.open += 1
        yield
        self.open -= 1


@pytest.mark.extended
async def test_it_works_beside_another_plugin(stack: Stack, environ: dict[str, str]) -> None:
    """Each opens what it needs, and the other's converter, sandbox and interceptors stay in use."""
    async with scripted(environ) as variables:
        other, queue = Upgrading(), new_id("queue")
        client = await connect(stack, other, HoldfastPlugin(CATALOG, environ=variables))
        async with Worker(client, task_queue=queue, workflows=[OrderWorkflow], activities=[price]):
            await order(client, queue)
            assert (await ask(client, queue)).text == "Done."
            assert other.open == 1
        assert other.open == 0


@pytest.mark.extended
async def test_it_costs_what_it_says_and_changes_no_setting(
    stack: Stack, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A worker with Temporal's defaults is told what they cost; one with the settings of ours is not."""
    client = await connect(stack, HoldfastPlugin(CATALOG, environ=environ))
    with caplog.at_level(logging.WARNING, "holdfast.plugin"):
        worker = Worker(client, task_queue=new_id("queue"), workflows=[OrderWorkflow])
        assert len(caplog.messages) == 5
        settings = worker.config(active_config=True)
        assert settings["sticky_queue_schedule_to_start_timeout"] == timedelta(seconds=10)
        assert settings["max_heartbeat_throttle_interval"] == timedelta(seconds=60)
        assert settings["build_id"] is None
        caplog.clear()
        Worker(
            client,
            task_queue=new_id("queue"),
            workflows=[OrderWorkflow],
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=3),
            max_heartbeat_throttle_interval=timedelta(seconds=2),
            max_workflow_task_external_storage_concurrency=1,
            graceful_shutdown_timeout=timedelta(seconds=5),
            build_id="orders-1",
        )
        assert not caplog.messages


@pytest.mark.extended
async def test_two_catalogs_on_one_queue_are_refused(stack: Stack, environ: dict[str, str]) -> None:
    """Either worker would get the other's runs; the same catalog may have two workers."""
    async with scripted(environ) as variables:
        queue = new_id("queue")
        first, same, second = [
            await connect(stack, HoldfastPlugin(catalog, environ=variables)) for catalog in (CATALOG, CATALOG, OTHER)
        ]
        async with Worker(first, task_queue=queue), Worker(same, task_queue=queue):
            await ask(first, queue)  # both are open
            with pytest.raises(SettingsError, match="already serves the task queue"):
                await Worker(second, task_queue=queue).run()
        with (
            pytest.warns(UserWarning, match="present from both client and worker"),
            pytest.raises(SettingsError, match="twice"),
        ):
            Worker(first, task_queue=queue, plugins=[HoldfastPlugin(OTHER, environ=variables)])


@activity.defn(name="notify")
async def notify(text: str) -> None:
    """Notify somebody."""


@workflow.defn(name="AgentRunWorkflow")
class Namesake:
    """A workflow of the program's with the name of Holdfast's."""

    @workflow.run
    async def run(self) -> None:
        """Do nothing."""


@pytest.mark.extended
async def test_a_worker_that_cannot_run_agents_says_why(stack: Stack, environ: dict[str, str]) -> None:
    """A name that Holdfast's histories contain, a client without the plugin, and a missing database are refused."""
    client = await connect(stack, HoldfastPlugin(CATALOG, environ=environ))
    with pytest.raises(SettingsError, match="both have AgentRunWorkflow, notify"):
        Worker(client, task_queue="q", workflows=[Namesake], activities=[notify])
    with pytest.raises(SettingsError, match="pass HoldfastPlugin to the client"):
        Worker(await connect(stack), task_queue="q", plugins=[HoldfastPlugin(CATALOG, environ=environ)])
    without = HoldfastPlugin(CATALOG, environ={**environ, "DATABASE_URL": ""})
    with pytest.raises(SettingsError, match="DATABASE_URL is not set"):
        async with Worker(await connect(stack, without), task_queue=new_id("queue")):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    "runner", [UnsandboxedWorkflowRunner(), pytest.param(SandboxedWorkflowRunner(), marks=pytest.mark.extended)]
)
async def test_only_the_named_task_queue_runs_agents(
    stack: Stack, environ: dict[str, str], runner: WorkflowRunner
) -> None:
    """A client's other workers stay free of them, with any runner."""
    client = await connect(stack, HoldfastPlugin(CATALOG, task_queue="agents", environ=environ))
    worker = Worker(client, task_queue="orders", workflows=[OrderWorkflow], workflow_runner=runner)
    assert worker.config(active_config=True)["workflows"] == [OrderWorkflow]

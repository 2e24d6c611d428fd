"""A worker that a program already has runs agents: its own workflows stay as they were, and runs are as anywhere."""

import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
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
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Worker

from holdfast import Agent, Catalog, Client, HoldfastPlugin, tool
from holdfast.config.stack_file import Stack
from holdfast.testing import Script, ScriptedLLM, call, say, steps
from tests.support.rig import PATIENCE, environ_of


@tool(effect="idempotent")
def charge(cents: int) -> str:
    """Charge a card."""
    return f"charged {cents}"


CATALOG = Catalog(agents=[Agent(name="cashier", instructions="Charge.")], tools=[charge])


@activity.defn
async def price(order: str) -> int:
    """Return the price of an order."""
    return len(order) * 100


@workflow.defn
class OrderWorkflow:
    """A workflow of the program's own."""

    @workflow.run
    async def run(self, order: str) -> int:
        """Return the price of an order."""
        return await workflow.execute_activity(price, order, start_to_close_timeout=timedelta(seconds=30))


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


@pytest.fixture
def environ(stack: Stack, state_folder: Path) -> dict[str, str]:
    """The variables of a worker beside the session's servers, without an LLM."""
    return {**environ_of(stack), "DATABASE_URL": stack.database_url, "HOLDFAST_HOME": str(state_folder)}


@asynccontextmanager
async def scripted(environ: Mapping[str, str], script: Script) -> AsyncIterator[dict[str, str]]:
    """Run a scripted LLM, and yield the variables that name it, too."""
    with ScriptedLLM(script) as llm:
        yield {**environ, "OPENAI_BASE_URL": llm.base_url, "OPENAI_API_KEY": "none"}


async def connect(stack: Stack, *plugins: Plugin, **options: Any) -> TemporalClient:
    """Connect a program's own client."""
    return await TemporalClient.connect(stack.temporal_address, plugins=plugins, **options)


def new_queue() -> str:
    """Return a new task queue."""
    return f"orders-{uuid4().hex[:8]}"


@pytest.mark.parametrize("codec", [None, Deflating()])
async def test_one_worker_runs_a_programs_workflow_and_an_agent(
    stack: Stack, environ: dict[str, str], codec: PayloadCodec | None
) -> None:
    """The program's payloads pass through its own codec, and the run's do not: each is read where it belongs."""
    queue, thread = new_queue(), f"run-{uuid4().hex[:8]}"
    async with scripted(environ, steps([call("charge", cents=700), say("Done.")])) as variables:
        client = await connect(
            stack, HoldfastPlugin(CATALOG, environ=variables), data_converter=DataConverter(payload_codec=codec)
        )
        async with Worker(client, task_queue=queue, workflows=[OrderWorkflow], activities=[price]):
            order = await client.execute_workflow(
                OrderWorkflow.run, "book", id=f"order-{uuid4().hex[:8]}", task_queue=queue
            )
            assert order == 400
            async with Client.connect(client, task_queue=queue) as holdfast:
                run = await holdfast.start("Charge 7.00.", thread=thread, by="alice")
                result = await run.result(until="attention", timeout=PATIENCE)
                assert result.status == "waiting_approval"
                await run.decide(result.pending[0], "approve", by="bob")
                assert (await run.result(timeout=PATIENCE)).text == "Done."
            plain = await connect(stack)
            history = await plain.get_workflow_handle(thread).fetch_history()
            assert b"binary/deflated" not in history.events[0].SerializeToString()

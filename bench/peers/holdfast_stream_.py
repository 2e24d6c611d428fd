"""Holdfast with streams in PostgreSQL, as `worker.py` has by default, and a reader as the gateway's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.environment import open_contenders
from bench.figures import HOLDFAST
from bench.peers.contender import Contender, Setup
from bench.peers.holdfast_ import Runs
from bench.peers.shown import RECORDED, RESTARTED, TEXT, Piece
from bench.peers.temporal_ import wait_until_started
from holdfast.client.connect import connect_stack
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import LLMReplied
from holdfast.core.streams.chunks import Chunk
from holdfast.streaming.hub import listening
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.publisher import publishing
from holdfast.streaming.reading import read_stream


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    stack = Stack.model_validate(setup.stack)
    async with (
        publishing(PostgresStreams(stack.database_url)) as publisher,
        open_contenders(stack, Path(setup.home), setup.llm_url, publisher=publisher) as (client, contenders),
    ):
        yield Runs(client, contenders[HOLDFAST], stack.database_url)


async def read(setup: Setup, name: str) -> AsyncIterator[Piece]:
    """Read a run's stream: a chunk `superseded` and the event of the reply replace the chunks before them."""
    stack = Stack.model_validate(setup.stack)
    client = await connect_stack(stack)
    await wait_until_started(client, name)
    threads = Threads(client, task_queue=HOLDFAST)
    async with listening(PostgresStreams(stack.database_url)) as hub:
        async for each in read_stream(threads, hub, name, patient=True):
            if isinstance(each, Chunk):
                if each.kind == "superseded":
                    yield Piece(RESTARTED)
                elif each.kind == "text":
                    yield Piece(TEXT, each.text)
            elif each["type"] == "llm_replied":
                message = LLMReplied.model_validate(each).message
                yield Piece(RECORDED, message.text if message else "")

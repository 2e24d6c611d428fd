"""Holdfast, set up by `bench.stage` just as for the bench beside the floor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from bench.figures import HOLDFAST
from bench.peers.contender import Contender, Setup, table_bytes
from bench.peers.temporal_ import TemporalRuns
from bench.stage import Contender as Stage
from bench.stage import open_contenders
from holdfast.runtime.config.stack_file import Stack


class Runs(TemporalRuns):
    """Runs of Holdfast: history, and tables beside it."""

    def __init__(self, client: Client, stage: Stage, database_url: str) -> None:
        super().__init__(client, workflow="", task_queue="", arguments=lambda steps: [steps], limit=0)
        self._stage = stage
        self._database_url = database_url

    async def run(self, name: str, steps: int) -> None:
        """Start it as `bench.stage` does."""
        await (await self._stage.start(steps, name)).result()

    async def stored(self, name: str) -> int:
        """Bytes of history and of all tables."""
        return await super().stored(name) + await table_bytes(self._database_url)


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """The worker of `bench.stage`; the floor's, which comes with it, has nothing to do."""
    stack = Stack.model_validate(setup.stack)
    async with open_contenders(stack, Path(setup.home), setup.llm_url) as (client, contenders):
        yield Runs(client, contenders[HOLDFAST], stack.database_url)

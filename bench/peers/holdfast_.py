"""Holdfast, set up by `bench.environment` as for the comparison with the floor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from bench.environment import Contender as Agent
from bench.environment import open_contenders
from bench.figures import HOLDFAST
from bench.peers.contender import Contender, Setup, table_bytes
from bench.peers.temporal_ import TemporalRuns
from holdfast.config.stack_file import Stack


class Runs(TemporalRuns):
    """Runs of Holdfast, which store history and tables."""

    def __init__(self, client: Client, agent: Agent, database_url: str) -> None:
        super().__init__(client, workflow="", task_queue="", arguments=lambda steps: [steps], limit=0)
        self._agent = agent
        self._database_url = database_url

    async def run(self, name: str, steps: int) -> None:
        """See `Contender`."""
        await (await self._agent.start(steps, name)).result()

    async def stored(self, name: str) -> int:
        """Return the bytes of history and of all tables."""
        return await super().stored(name) + await table_bytes(self._database_url)


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the workers of `bench.environment`; the floor's stays idle."""
    stack = Stack.model_validate(setup.stack)
    async with open_contenders(stack, Path(setup.home), setup.llm_url) as (client, contenders):
        yield Runs(client, contenders[HOLDFAST], stack.database_url)

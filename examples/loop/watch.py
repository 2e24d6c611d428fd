"""The demo's view of its loop: where it stands, and the events of its iterations as they happen."""

from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from examples.stage.run import ANSWER_SECONDS, Run
from holdfast.log.events import AgentEvent, RunFinished

JSON = dict[str, Any]


class Watch:
    """One loop, and the runs of its iterations.

    Args:
        client: Connected to the demo's server.
        loop: The loop's id.
    """

    def __init__(self, client: Client, loop: str) -> None:
        self._client = client
        self._loop = client.get_workflow_handle(loop)
        self.state: JSON = {"status": "running", "iterations": []}
        """As `starter.py show` has it; the last that a worker has told."""
        self.runs: list[Run] = []
        """By the number of their iteration."""

    @property
    def status(self) -> str:
        """The loop's status: `running`, `dormant` while it is paused, or how it ended."""
        return str(self.state["status"])

    @property
    def iterations(self) -> list[JSON]:
        """The newest iterations, oldest first."""
        return list(self.state["iterations"])

    @property
    def current(self) -> JSON | None:
        """The iteration under way."""
        return next((each for each in self.iterations if each["outcome"] is None), None)

    async def news(self) -> list[tuple[int, AgentEvent]]:
        """Ask where the loop stands; returns what is new: the iteration's number, and the event.

        While no worker is there to answer, nothing is.
        """
        with suppress(RPCError):
            self.state = await self._loop.query("state", rpc_timeout=ANSWER_SECONDS)
        begun = [each for each in self.iterations if each["number"] >= len(self.runs)]
        self.runs += [Run(self._client, each["thread"]) for each in begun]
        return [
            (number, event)
            for number, run in enumerate(self.runs)
            if not (run.events and isinstance(run.events[-1], RunFinished))
            for event in await run.news()
        ]

    async def close(self) -> None:
        """Wait until every run is closed, and read its log once more: from here on nothing changes.

        Raises:
            DemoFailed: One does not close.
        """
        for run in self.runs:
            await run.close()

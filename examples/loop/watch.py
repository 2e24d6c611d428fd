"""The demo's live view of its loop: its state, and the events of its iterations."""

from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast import AgentEvent, RunFinished
from holdfast.examples.shared.run import ANSWER_SECONDS, Run

JSON = dict[str, Any]


class Watch:
    """One loop, and the runs of its iterations.

    Args:
        client: A client of the demo's server.
        loop: The loop's id.
    """

    def __init__(self, client: Client, loop: str) -> None:
        self._client = client
        self._loop = client.get_workflow_handle(loop)
        self.state: JSON = {"status": "running", "iterations": []}
        """The loop's latest state, as `starter.py show` prints it."""
        self.runs: list[Run] = []
        """The runs, in order of iterations."""

    @property
    def status(self) -> str:
        """The loop's status: `running`, `paused`, or its outcome."""
        return str(self.state["status"])

    @property
    def iterations(self) -> list[JSON]:
        """The newest iterations, oldest first."""
        return list(self.state["iterations"])

    @property
    def current(self) -> JSON | None:
        """The running iteration; None if none is running."""
        return next((each for each in self.iterations if each["outcome"] is None), None)

    async def news(self) -> list[tuple[int, AgentEvent]]:
        """Read the loop's state; return the new events with the numbers of their iterations.

        Returns nothing while no worker responds.
        """
        with suppress(RPCError):
            self.state = await self._loop.query("state", rpc_timeout=ANSWER_SECONDS)
        new = [each for each in self.iterations if each["number"] >= len(self.runs)]
        self.runs += [Run(self._client, each["thread"]) for each in new]
        return [
            (number, event)
            for number, run in enumerate(self.runs)
            if not (run.events and isinstance(run.events[-1], RunFinished))
            for event in await run.news()
        ]

    async def close(self) -> None:
        """Wait until every run is closed, and read its final log.

        Raises:
            DemoFailed: A run does not close.
        """
        for run in self.runs:
            await run.close()

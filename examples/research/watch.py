"""The demo's live view of its tree of runs: the events of the lead and its sub-agents."""

import asyncio

from temporalio.client import Client

from holdfast import AgentEvent, RunFinished, SubagentStarted
from holdfast.examples.shared.run import Run


class Tree:
    """A run, and the sub-agents that it starts.

    Args:
        client: A client of the demo's server.
        root: The thread of the root.
    """

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self.root = Run(client, root)
        self.children: dict[str, Run] = {}
        """Sub-agents by thread, in start order."""

    @property
    def runs(self) -> list[Run]:
        """All runs, root first."""
        return [self.root, *self.children.values()]

    @property
    def ended(self) -> bool:
        """True if the root has ended."""
        return _ended(self.root)

    async def news(self) -> list[tuple[str, AgentEvent]]:
        """Return the events recorded since the last call, with their threads; those of sub-agents first."""
        running = [run for run in self.children.values() if not _ended(run)]
        below = await asyncio.gather(*(run.news() for run in running))
        above = await self.root.news()
        for event in above:
            if isinstance(event, SubagentStarted):
                self.children.setdefault(event.thread, Run(self._client, event.thread))
        of_children = [(run.thread, event) for run, events in zip(running, below, strict=True) for event in events]
        return [*of_children, *((self.root.thread, event) for event in above)]

    async def close(self) -> None:
        """Wait until every run is closed, and read its final log.

        Raises:
            DemoFailed: A run does not close.
        """
        await asyncio.gather(*(run.close() for run in self.runs))


def _ended(run: Run) -> bool:
    return bool(run.events) and isinstance(run.events[-1], RunFinished)

"""The replies that the open sub-agents of a run are writing, merged into the view of the run.

Each sub-agent is a thread of its own, whose stream is read beside that of the run. What is read here is only shown.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress

from holdfast.client.threads import Threads
from holdfast.core.streams.chunks import Chunk
from holdfast.core.streams.drafts import Draft
from holdfast.errors import HoldfastError
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

MOST = 12
"""The most sub-agents whose replies are followed at a time: those that started first."""


class SubagentDrafts:
    """What each followed sub-agent is writing. `following_subagents` opens it.

    Args:
        threads: The threads.
        hub: The streams of this process; None to follow nothing.
    """

    def __init__(self, threads: Threads, hub: Hub | None) -> None:
        self._threads = threads
        self._hub = hub
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._drafts: dict[str, Draft] = {}

    @property
    def drafts(self) -> Mapping[str, Draft]:
        """The reply of each followed sub-agent, by its thread; empty between two replies."""
        return self._drafts

    def follow(self, threads: Collection[str]) -> None:
        """Follow these sub-agents, and no others. Returns at once."""
        wanted = list(threads)[:MOST] if self._hub else []
        for thread in self._tasks.keys() - set(wanted):
            self._tasks.pop(thread).cancel()
            del self._drafts[thread]
        for thread in wanted:
            if thread not in self._tasks:
                self._drafts[thread] = draft = Draft()
                self._tasks[thread] = asyncio.create_task(self._read(thread, draft))

    async def close(self) -> None:
        """Follow nothing any more."""
        tasks = list(self._tasks.values())
        self.follow(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, thread: str, draft: Draft) -> None:
        with suppress(HoldfastError):  # the row of the sub-agent shows why it cannot be read
            async for each in read_stream(self._threads, self._hub, thread):
                if isinstance(each, Chunk):
                    draft.add(each)
                else:
                    draft.event(each)
        draft.clear()


@asynccontextmanager
async def following_subagents(threads: Threads, hub: Hub | None) -> AsyncIterator[SubagentDrafts]:
    """Follow the sub-agents of a run for a block."""
    drafts = SubagentDrafts(threads, hub)
    try:
        yield drafts
    finally:
        await drafts.close()

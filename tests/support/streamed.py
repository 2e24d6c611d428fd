"""Workers that stream, and readers that see all of a reply before it is recorded."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from holdfast.client.threads import Threads
from holdfast.core.agents.catalog import Catalog
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.streaming.hub import Hub, listening
from holdfast.streaming.publisher import publishing
from holdfast.streaming.reading import read_stream
from holdfast.testing import Reply
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import PATIENCE, Rig, StartRig


@asynccontextmanager
async def streamed(rig: StartRig, agents: Catalog, script: Any, **options: Any) -> AsyncIterator[tuple[Rig, Hub]]:
    """Run a worker that streams, and read its streams."""
    transport = options.pop("transport", None) or InMemoryStreams()
    async with (
        publishing(transport) as publisher,
        listening(transport) as hub,
        rig(agents, script, publisher=publisher, **options) as worker,
    ):
        yield worker, hub


def stream_of(worker: Rig, hub: Hub | None, thread: str, cursor: str = "-1") -> AsyncIterator[Any]:
    """Follow a thread."""
    threads = Threads(worker.client, task_queue=worker.task_queue)
    return read_stream(threads, hub, thread, Cursor.parse(cursor), patient=True)


class Seen:
    """Lets a reply end only when a reader has seen all of it: otherwise its event may come first."""

    def __init__(self) -> None:
        self._chars = 0
        self._condition = threading.Condition()

    def reply(self, reply: Reply) -> Reply:
        """Return a reply whose stream ends when it has been seen."""
        parts = [reply.text or "", *(arguments for _, arguments in reply.calls)]
        words = len(reply.calls) + sum(len(part.split()) for part in parts)
        chars = sum(map(len, parts))

        def pause(number: int) -> None:
            if number == words + 1:
                self.wait(chars)

        return replace(reply, pause=pause)

    def wait(self, chars: int) -> None:
        """Wait until so many characters of the reply have been seen."""
        with self._condition:
            self._condition.wait_for(lambda: self._chars >= chars, PATIENCE)

    def finish(self) -> None:
        """Let the reply end, however much of it has been seen."""
        with self._condition:
            self._chars = 10**9
            self._condition.notify_all()

    def see(self, each: Any) -> None:
        """Take what a reader sees."""
        if isinstance(each, Chunk):
            self.add("", each.kind, each.text)
        else:
            self.add(each["type"], "event", "")

    def add(self, event: str, kind: str, text: str) -> None:
        """Take an event of a type, or a piece of a kind with its text."""
        with self._condition:
            if kind == "superseded" or event == "llm_replied":
                self._chars = 0
            self._chars += len(text)
            self._condition.notify_all()


async def read_all(
    worker: Rig, hub: Hub | None, thread: str, cursor: str = "-1", *, seen: Seen | None = None
) -> list[Any]:
    """Follow a thread to its end."""
    items = []
    async with asyncio.timeout(PATIENCE):
        async for each in stream_of(worker, hub, thread, cursor):
            items.append(each)
            if seen:
                seen.see(each)
    return items


def id_of(each: Any) -> str:
    """Return the id of an event or a chunk."""
    return each.id if isinstance(each, Chunk) else str(each["position"])


def drafts(items: list[Any]) -> dict[int, str]:
    """Return the text that a reader has joined at each reply, by the reply's position."""
    texts, text = {}, ""
    for each in items:
        if isinstance(each, Chunk):
            text = "" if each.kind == "superseded" else text + (each.text if each.kind == "text" else "")
        elif each["type"] == "llm_replied":
            texts[each["position"]], text = text, ""
    return texts

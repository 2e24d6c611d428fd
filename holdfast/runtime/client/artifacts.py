"""The artifacts that a thread's own log refers to."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.log.events import LLMReplied, ToolCallFinished
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.reader import Note
from holdfast.runtime.reading.states import decode_lines


@dataclass(frozen=True)
class ArtifactReference:
    """An event's reference to an artifact."""

    address: str
    position: int
    """The position of the event."""


async def artifacts_of(threads: Threads, thread: str, *, note: Note | None = None) -> AsyncIterator[ArtifactReference]:
    """Yield the references of a thread's events to artifacts, oldest first. An artifact may have several.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        note: Called with a message when no worker answers; None to raise instead.
    """
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=note)):
        if isinstance(event, LLMReplied | ToolCallFinished) and event.artifact:
            yield ArtifactReference(event.artifact, event.position)

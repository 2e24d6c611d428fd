"""Text that is too long for the log: an artifact holds all of it, the log its head, its tail and the address."""

import asyncio
from dataclasses import dataclass

from holdfast.stores import ArtifactStore
from holdfast.transcript.transcript import clip


@dataclass(frozen=True)
class Clipped:
    """A text as it enters the log."""

    content: str
    artifact: str = ""
    """Address of the complete text; empty if `content` is complete."""
    size: int = 0
    """Bytes of the complete text; 0 if `content` is complete."""


async def clip_to(store: ArtifactStore, text: str, limit: int, *, thread: str) -> Clipped:
    """Clip `text` if it is longer than `limit` characters, and store all of it as an artifact."""
    if len(text) <= limit:
        return Clipped(text)
    content = await asyncio.to_thread(text.encode, "utf-8", "replace")
    address = await store.put(content, thread=thread)
    return Clipped(clip(text, limit, address=address), address, len(content))

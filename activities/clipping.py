"""What is too long for the log goes into an artifact, whole; the log gets its head and tail, and its address."""

import asyncio
from dataclasses import dataclass

from holdfast.stores import ArtifactStore
from holdfast.transcript.transcript import clip


@dataclass(frozen=True)
class Clipped:
    """A text as it enters the log."""

    content: str
    artifact: str = ""
    """Address of the whole; empty where `content` is the whole."""
    size: int = 0
    """Bytes of the whole; 0 where `content` is the whole."""


async def clip_to(store: ArtifactStore, text: str, limit: int, *, thread: str) -> Clipped:
    """Keep `text` in an artifact if it is longer than `limit` characters."""
    if len(text) <= limit:
        return Clipped(text)
    content = await asyncio.to_thread(text.encode, "utf-8", "replace")
    address = await store.put(content, thread=thread)
    return Clipped(clip(text, limit, address=address), address, len(content))

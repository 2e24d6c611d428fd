"""What is too long for the log goes into an artifact, whole; the log gets its head and tail, and its address."""

import asyncio
from dataclasses import dataclass

from holdfast.stores import ArtifactStore
from holdfast.tools import Tool, tool
from holdfast.transcript import clip

PART_BYTES = 4_000
"""What `read_artifact` returns where the LLM does not say."""

MAX_PART_BYTES = 100_000
"""What it returns at the most, whatever the LLM says."""


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


def read_artifact_tool(store: ArtifactStore) -> Tool:
    """The tool that lets an agent read what was clipped."""

    @tool(effect="read")
    async def read_artifact(address: str, offset: int = 0, limit: int = PART_BYTES) -> str:
        """Read a part of a long result of which you were shown the head and the tail only.

        Args:
            address: As the clipped result gives it: sha256:…
            offset: The first byte to read.
            limit: How many bytes to read; 100,000 at the most.
        """
        size = await store.size(address)
        start = max(0, offset)
        part = await store.get(address, start, min(max(1, limit), MAX_PART_BYTES))
        return f"[bytes {start:,} to {start + len(part):,} of {size:,}]\n{part.decode('utf-8', 'replace')}"

    return read_artifact

"""`read_artifact`: the tool that reads a part of a result that was clipped in the transcript."""

from holdfast.stores import ArtifactStore
from holdfast.tools.decorator import Tool, tool

PART_BYTES = 4_000
"""The default length of a part."""

MAX_PART_BYTES = 100_000
"""The most bytes of a part; a larger limit from the LLM is cut to this."""


def read_artifact_tool(store: ArtifactStore) -> Tool:
    """Build the tool that lets an agent read clipped results."""

    @tool(effect="read")
    async def read_artifact(address: str, offset: int = 0, limit: int = PART_BYTES) -> str:
        """Read a part of a long result of which you were shown the head and the tail only.

        Args:
            address: As the clipped result gives it: sha256:…
            offset: The first byte to read.
            limit: How many bytes to read; at most 100,000.
        """
        size = await store.size(address)
        start = max(0, offset)
        part = await store.get(address, start, min(max(1, limit), MAX_PART_BYTES))
        return f"[bytes {start:,} to {start + len(part):,} of {size:,}]\n{part.decode('utf-8', 'replace')}"

    return read_artifact

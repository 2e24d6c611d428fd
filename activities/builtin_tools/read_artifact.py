"""`read_artifact`: the tool that reads a part of a result that was clipped."""

from holdfast.stores import ArtifactStore
from holdfast.tools.decorator import Tool, tool

PART_BYTES = 4_000
"""What `read_artifact` returns where the LLM does not say."""


MAX_PART_BYTES = 100_000
"""What it returns at the most, whatever the LLM says."""


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

"""`read_artifact`: the tool that reads a part of a result that was clipped in the transcript."""

from holdfast.activities.own_artifacts import OwnArtifacts
from holdfast.stores import ArtifactStore, ThreadStore
from holdfast.tools.decorator import Labelled, Tool, tool

PART_BYTES = 4_000
"""The default length of a part."""

MAX_PART_BYTES = 100_000
"""The most bytes of a part; a larger limit from the LLM is cut to this."""


def read_artifact_tool(store: ArtifactStore, threads: ThreadStore) -> Tool:
    """Build the tool that lets an agent read clipped results.

    Args:
        store: Where they are.
        threads: The permanent record, which shows whether the agent's thread refers to one.
    """
    own = OwnArtifacts(threads)

    @tool(effect="read")
    async def read_artifact(address: str, offset: int = 0, limit: int = PART_BYTES) -> str | Labelled:
        """Read a part of a long result of which you were shown the head and the tail only.

        Args:
            address: As the clipped result gives it: sha256:…
            offset: The first byte to read.
            limit: How many bytes to read; at most 100,000.
        """
        mine = await own.require(address)
        size = await store.size(address)
        start = max(0, offset)
        part = await store.get(address, start, min(max(1, limit), MAX_PART_BYTES))
        text = f"[bytes {start:,} to {start + len(part):,} of {size:,}]\n{part.decode('utf-8', 'replace')}"
        return text if mine else Labelled(text, "web")  # what another run of its tree has read

    return read_artifact

"""Artifacts in memory."""

from holdfast.core.base.canonical import address_of
from holdfast.errors import ArtifactAltered, ArtifactNotFound


class InMemoryArtifacts:
    """A `holdfast.core.stores.ArtifactStore` for one worker process. It keeps every artifact until the process ends."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store `content` and return its address."""
        address = address_of(content)
        self._contents.setdefault(address, bytes(content))
        return address

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read the content, or a part of it."""
        content = self._at(address)
        if address_of(content) != address:
            raise ArtifactAltered(f"artifact {address} was altered in memory: its content has another digest")
        return content[offset : None if limit is None else offset + limit]

    async def size(self, address: str) -> int:
        """Return the size of the content in bytes."""
        return len(self._at(address))

    def _at(self, address: str) -> bytes:
        if address not in self._contents:
            raise ArtifactNotFound(f"there is no artifact {address[:100]!r} in this process's memory")
        return self._contents[address]

"""A user's catalog with stores of its own, each in files below the folder in OWN_STORES."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.core.base.canonical import address_of
from holdfast.core.memory.semantic import ItemNotFound, MemoryItem, NewMemory, Recalled, checked
from holdfast.errors import ArtifactNotFound, RecordConflict, RecordGap


class FileThreads:
    """A file of JSON lines per thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __len__(self) -> int:
        """Return 0, which Holdfast never uses: an empty store is still a store."""
        return 0

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        kept = await self.read(thread)
        if start > len(kept):
            raise RecordGap(f"{thread} has no event before position {start}; append from position {len(kept)} on")
        for position, (old, new) in enumerate(zip(kept[start:], lines, strict=False), start):
            if old != new:
                raise RecordConflict(f"{thread} has another event at position {position}; nothing was appended")
        with self._file(thread).open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines[len(kept) - start :]))

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        file = self._file(thread)
        return file.read_bytes().splitlines()[start:] if file.exists() else []

    async def length(self, thread: str) -> int:
        return len(await self.read(thread))

    def _file(self, thread: str) -> Path:
        return self._folder / f"{quote(thread, safe='')}.jsonl"


class FileArtifacts:
    """A file per artifact."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, content: bytes, *, thread: str) -> str:
        address = address_of(content)
        (self._folder / address).write_bytes(content)
        return address

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        file = self._folder / address
        if not file.exists():
            raise ArtifactNotFound(f"no artifact has the address {address}")
        return file.read_bytes()[offset : None if limit is None else offset + limit]

    async def size(self, address: str) -> int:
        return len(await self.get(address))


class FileMemories:
    """All memories in one JSON file, searched by words."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "memories.json"

    async def remember(self, new: NewMemory, *, key: str) -> MemoryItem:
        items = self._items()
        item = MemoryItem(**checked(new).model_dump(), id=f"m-{len(items)}", created_at=datetime.now(UTC))
        self._file.write_text(json.dumps([each.model_dump(mode="json") for each in [*items, item]]))
        return item

    async def recall(self, query: str, scopes: Sequence[str] | None, *, limit: int = 5) -> Recalled:
        matching = [item for item in self._items() if query in item.text and (scopes is None or item.scope in scopes)]
        return Recalled(items=tuple(matching[:limit]))

    async def history(self, id: str, scopes: Sequence[str] | None) -> list[MemoryItem]:
        if not (matches := [item for item in self._items() if item.id == id]):
            raise ItemNotFound(f"no memory has the id {id}")
        return matches

    async def forget(self, id: str, scopes: Sequence[str] | None, **_: Any) -> MemoryItem:
        raise NotImplementedError

    async def standing(self, scopes: Sequence[str], chars: int) -> list[MemoryItem]:
        return []

    async def purge(self, limit: int = 100) -> int:
        return 0

    def _items(self) -> list[MemoryItem]:
        return [MemoryItem(**each) for each in json.loads(self._file.read_text())] if self._file.exists() else []


@tool(effect="idempotent")
def measure(what: str) -> str:
    """Measure something, at length."""
    return f"{what} is long. " * 1_000


def in_folder(folder: Path) -> Catalog:
    """Return the catalog, with its stores below a folder."""
    agent = Agent(
        name="clerk",
        instructions="",
        policy=Policy(rules=(allow(),)),
        limits=Limits(tool_result_chars=500),
        tools=[measure],
    )
    return Catalog(
        agents=[agent],
        threads=FileThreads(folder),
        artifacts=FileArtifacts(folder),
        memories=FileMemories(folder),
    )


catalog = in_folder(Path(os.environ.get("OWN_STORES", "/nowhere")))

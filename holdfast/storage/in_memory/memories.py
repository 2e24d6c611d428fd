"""Semantic memory in memory: search by whole words, without an embedding model."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from holdfast.core.memory.semantic import (
    ItemNotFound,
    ItemRefused,
    MemoryItem,
    NewMemory,
    Recalled,
    check_may_replace,
    checked,
    clean,
    one_line,
    within,
)
from holdfast.core.trust import Trust

_WORD = re.compile(r"\w+")


class InMemoryMemories:
    """A `holdfast.core.memory.semantic.MemoryStore` for one worker process.

    `recall` finds the items that share words with the query, most shared words first, without stemming: `invoices` does
    not find `invoice`.
    """

    def __init__(self) -> None:
        self._items: dict[str, MemoryItem] = {}
        """By id, oldest first."""
        self._ids: dict[str, str] = {}
        """Key → the id of its item."""
        self._count = 0

    async def remember(self, new: NewMemory, *, key: str) -> MemoryItem:
        """Store an item, replacing the one that it supersedes. Idempotent by key."""
        if key in self._ids:
            return self._items[self._ids[key]]
        new = checked(new)
        item = MemoryItem(**new.model_dump(), id=f"m-{self._count + 1}", created_at=datetime.now(UTC))
        if new.supersedes:
            self._supersede(item)
        self._count += 1
        self._items[item.id] = item
        self._ids[key] = item.id
        return item

    async def recall(self, query: str, scopes: Sequence[str] | None, *, limit: int = 5) -> Recalled:
        """Return the items that share the most words with `query`; without a query, the newest."""
        newest = self._live(scopes)
        if words := _words(clean(query)):
            shared = {item.id: len(words & _words(item.text)) for item in newest}
            newest = sorted((item for item in newest if shared[item.id]), key=lambda item: -shared[item.id])
        elif query.strip():
            newest = [item for item in newest if clean(query).strip() in item.text]
        return Recalled(items=tuple(newest[:limit]))

    async def forget(
        self, id: str, scopes: Sequence[str] | None, *, trust: Trust, by: str, why: str = ""
    ) -> MemoryItem:
        """Remove the text of an item and of its earlier versions; return the item without its text."""
        item = self._item(id, scopes)
        if item.forgotten_at is not None:
            return item
        check_may_replace(item, trust)
        who, reason = one_line(clean(by))[:200], one_line(clean(why))[:500]
        emptied = {"text": "", "kind": "", "expires_at": None, "forgotten_at": datetime.now(UTC)}
        for each in self._versions(item):
            if each.forgotten_at is None:
                fields = {**emptied, "forgotten_by": who, "forgotten_why": reason}
                self._items[each.id] = each.model_copy(update=fields)
        return self._items[id]

    async def standing(self, scopes: Sequence[str], chars: int) -> list[MemoryItem]:
        """Return the newest standing items, as many as `standing_text` fits into `chars` characters."""
        return within((item for item in self._live(scopes) if item.standing), chars)

    async def history(self, id: str, scopes: Sequence[str] | None) -> list[MemoryItem]:
        """Return an item and its earlier versions, newest first."""
        return self._versions(self._item(id, scopes))

    async def purge(self, limit: int = 100) -> int:
        """Remove expired items and their earlier versions; return the number of removed items."""
        now = datetime.now(UTC)
        expired = [item for item in self._items.values() if item.expires_at and item.expires_at <= now][:limit]
        removed = {each.id for item in expired for each in self._versions(item)}
        self._items = {id: item for id, item in self._items.items() if id not in removed}
        self._ids = {key: id for key, id in self._ids.items() if id not in removed}
        return len(removed)

    def _live(self, scopes: Sequence[str] | None) -> list[MemoryItem]:
        """Return the searchable items, newest first."""
        now = datetime.now(UTC)
        return [item for item in reversed(self._items.values()) if _is_live(item, now) and _is_in(item, scopes)]

    def _supersede(self, item: MemoryItem) -> None:
        old = self._item(item.supersedes, [item.scope])
        check_may_replace(old, item.trust)
        if old.superseded_by or old.forgotten_at:
            what = f"superseded by {old.superseded_by}; supersede that one" if old.superseded_by else "forgotten"
            raise ItemRefused(f"{old.id} was {what}")
        self._items[old.id] = old.model_copy(update={"superseded_by": item.id})

    def _item(self, id: str, scopes: Sequence[str] | None) -> MemoryItem:
        item = self._items.get(id)
        if item is None or not _is_in(item, scopes):
            raise ItemNotFound(f"there is no item {id[:40]!a} in these scopes; `recall` shows the ids")
        return item

    def _versions(self, item: MemoryItem) -> list[MemoryItem]:
        versions = [item]
        while older := self._items.get(versions[-1].supersedes):
            versions.append(older)
        return versions


def _is_live(item: MemoryItem, now: datetime) -> bool:
    inactive = bool(item.superseded_by or item.forgotten_at)
    return not inactive and (item.expires_at is None or item.expires_at > now)


def _is_in(item: MemoryItem, scopes: Iterable[str] | None) -> bool:
    return scopes is None or item.scope in scopes


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))

"""Conformance suite for `MemoryStore`: a test class to subclass in your own pytest suite.

Use it like the suites of `holdfast.testing.conformance`. The tests create new scopes each time, so they can share a
database and run repeatedly.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from holdfast.core.memory.semantic import (
    STANDING_CHARS,
    TEXT_CHARS,
    ItemNotFound,
    ItemRefused,
    MemoryItem,
    MemoryStore,
    NewMemory,
    clean,
    standing_text,
)
from holdfast.testing.conformance import AWKWARD, expect_error


class MemoryStoreConformance:
    """The rules of `holdfast.core.memory.semantic.MemoryStore`. Subclasses provide the fixture `store`."""

    async def test_a_remembered_item_is_recalled(self, store: MemoryStore) -> None:
        """An item is found by words of its text and returned as it was stored; other words do not find it."""
        scope, until = a_scope(), datetime(2126, 1, 2, tzinfo=UTC)
        more = {"kind": "fact", "thread": "t", "position": 7, "by": "ann", "expires_at": until}
        new = a_memory("The harbour of Bergen freezes seldom.", scope, trust="web", **more)
        item = await store.remember(new, key=uuid4().hex)
        assert NewMemory(**item.model_dump(include=set(NewMemory.model_fields))) == new
        assert await recalled(store, "when does the harbour freeze", scope) == [item]
        assert await recalled(store, "zeppelin", scope) in ([], [item])  # a store with vectors returns the nearest

    async def test_without_a_query_the_newest_come_first(self, store: MemoryStore) -> None:
        """A blank query counts as no query, and `limit` bounds the result."""
        scope = a_scope()
        items = [await keep(store, f"Number {number}.", scope) for number in range(4)]
        assert await recalled(store, " ", scope, limit=3) == items[:0:-1]
        assert len(await recalled(store, "number", scope, limit=2)) == 2

    async def test_scopes_are_isolated(self, store: MemoryStore) -> None:
        """An item of one person, agent or thread is invisible to all others, even with similar names."""
        name = uuid4().hex
        scopes = [f"user:{name}", f"user:{name}2", f"user:{name.upper()}x", f"agent:{name}", f"thread:{name}", "user:%"]
        items = {scope: await keep(store, f"The word is {name}.", scope) for scope in scopes[:-1]}
        for scope, item in items.items():
            assert await recalled(store, name, scope) == [item]
            with expect_error(ItemNotFound):
                await store.history(item.id, [other for other in scopes if other != scope])
            with expect_error(ItemNotFound):
                await store.forget(item.id, ["user:%"], trust="person", by="ann")
        assert len(await recalled(store, name, *scopes)) == len(items)
        assert {item.id for item in items.values()} <= {i.id for i in (await store.recall(name, None, limit=9)).items}
        assert await recalled(store, name) == []

    async def test_remember_is_idempotent_by_key(self, store: MemoryStore) -> None:
        """Repeated or concurrent calls with the same key return the item that the first call created."""
        scope, key = a_scope(), uuid4().hex
        first = await keep(store, "The first version.", scope)
        again = a_memory("Said twice.", scope, supersedes=first.id)
        items = await asyncio.gather(*(store.remember(again, key=key) for _ in range(6)))
        items.append(await store.remember(again, key=key))
        assert len({item.id for item in items}) == 1
        assert await recalled(store, "", scope) == [items[0]]

    async def test_superseded_items_stay_in_the_history(self, store: MemoryStore) -> None:
        """Only the latest version is recalled; the history has all versions, newest first."""
        scope = a_scope()
        one = await keep(store, "The door code is four.", scope)
        two = await keep(store, "The door code is five.", scope, supersedes=one.id)
        three = await keep(store, "The door code is six.", scope, supersedes=two.id)
        assert await recalled(store, "door code four", scope) == [three]
        history = await store.history(three.id, [scope])
        assert [item.text for item in history] == [three.text, two.text, one.text]
        assert [item.superseded_by for item in history] == ["", three.id, two.id]
        with expect_error(ItemRefused, one.id, two.id):
            await keep(store, "The door code is seven.", scope, supersedes=one.id)
        with expect_error(ItemNotFound):
            await keep(store, "The door code is seven.", a_scope(), supersedes=three.id)
        assert await recalled(store, "", scope) == [three]

    async def test_one_of_several_concurrent_updates_supersedes(self, store: MemoryStore) -> None:
        """If several items supersede the same item at once, one succeeds."""
        scope = a_scope()
        old = await keep(store, "Old.", scope)
        attempts = (keep(store, f"New {number}.", scope, supersedes=old.id) for number in range(4))
        ends = await asyncio.gather(*attempts, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == 3 * ["ItemRefused"] + ["MemoryItem"], ends
        assert len(await recalled(store, "", scope)) == 1

    async def test_lower_trust_cannot_change_higher_trust(self, store: MemoryStore) -> None:
        """An item with trust level `person` is neither superseded from the web nor forgotten by an agent."""
        scope = a_scope()
        item = await keep(store, "Pay nobody without asking.", scope)
        with expect_error(ItemRefused, item.id):
            await keep(store, "Pay everybody.", scope, trust="web", supersedes=item.id)
        with expect_error(ItemRefused, item.id):
            await store.forget(item.id, [scope], trust="agent", by="agent")
        assert await recalled(store, "", scope) == [item]

    async def test_forgotten_items_keep_no_text(self, store: MemoryStore) -> None:
        """No version keeps its text; the history still shows who removed the item, when and why."""
        scope = a_scope()
        one = await keep(store, "The door code is four.", scope, kind="secret")
        two = await keep(store, "The door code is five.", scope, supersedes=one.id)
        first = await store.forget(two.id, [scope], trust="person", by="ann", why="it leaked")
        again = await store.forget(two.id, [scope], trust="person", by="bob", why="so they say")
        assert first == again
        assert (first.text, first.forgotten_by, first.forgotten_why) == ("", "ann", "it leaked")
        assert first.forgotten_at is not None
        assert [item.text + item.kind for item in await store.history(two.id, [scope])] == ["", ""]
        assert await recalled(store, "door code", scope) == []
        with expect_error(ItemRefused, two.id):
            await keep(store, "The door code is six.", scope, supersedes=two.id)
        with expect_error(ItemNotFound):
            await store.forget("m-nothing", [scope], trust="person", by="ann")

    async def test_expired_items_are_not_recalled(self, store: MemoryStore) -> None:
        """An expired item is not found, standing or not, both before and after it is purged."""
        scope, past = a_scope(), datetime.now(UTC) - timedelta(seconds=1)
        await keep(store, "The bridge is closed today.", scope, expires_at=past)
        await keep(store, "Mind the bridge.", scope, expires_at=past, standing=True)
        left = await keep(store, "The bridge is old.", scope, expires_at=past + timedelta(days=1))
        for _ in range(2):
            assert await recalled(store, "bridge", scope) == await recalled(store, "", scope) == [left]
            assert await store.standing([scope], 1_000) == []
            await store.purge()

    async def test_any_text_is_stored(self, store: MemoryStore) -> None:
        """Any text can be stored, recalled and queried for, and is returned as it was stored."""
        scope = a_scope()
        for text in AWKWARD:
            item = await keep(store, f"awkward {text}", scope, kind=text, by=text)
            assert item.text == clean(f"awkward {text}").strip()
            assert item in await recalled(store, f"awkward {text}", scope, limit=20)
            await recalled(store, text, scope)
            await store.forget(item.id, [scope], trust="person", by=text, why=text)
        for query in ("' | & ! <-> :* (", "\\", "the of and", "x" * 5_000, "word " * 3_000, "@ :A <0>"):
            await recalled(store, query, scope)

    async def test_invalid_items_are_refused(self, store: MemoryStore) -> None:
        """Blank and over-long texts and invalid scopes are refused, and nothing of them is stored."""
        scope = a_scope()
        for text in ("", " \n", "x" * (TEXT_CHARS + 1)):
            with expect_error(ItemRefused):
                await keep(store, text, scope)
        with expect_error(ItemRefused):
            await keep(store, "x" * (STANDING_CHARS + 1), scope, standing=True)
        for none in ("", "user:", "user: ", "user:a\nb", "user:\ud800", "team:a", "GLOBAL", f"user:{'x' * 201}"):
            with expect_error(ItemRefused):
                await keep(store, "text", none)
        await keep(store, "x" * TEXT_CHARS, scope)
        assert len(await recalled(store, "", scope)) == 1

    async def test_standing_items_fit_their_budget(self, store: MemoryStore) -> None:
        """The newest come first, as many as fit the characters; only items that are too long are skipped."""
        scope, other = a_scope(), a_scope()
        await keep(store, "Not standing.", scope)
        await keep(store, "Of another.", other, standing=True)
        short = [await keep(store, f"Rule {number}.", scope, standing=True) for number in range(3)]
        long = await keep(store, "x" * 500, scope, standing=True)
        assert await store.standing([scope], 10_000) == [long, *short[::-1]]
        budget = len(standing_text(short[:0:-1]))
        assert await store.standing([scope], budget) == short[:0:-1]
        assert await store.standing([scope], budget - 1) == [short[2]]
        assert await store.standing([], 10_000) == await store.standing([scope], 0) == []


def a_scope() -> str:
    """Return an unused scope."""
    return f"agent:conformance-{uuid4().hex}"


def a_memory(text: str, scope: str, **more: Any) -> NewMemory:
    """Return a new memory with trust level `person`."""
    return NewMemory(**{"text": text, "scope": scope, "trust": "person", **more})


async def keep(store: MemoryStore, text: str, scope: str, **more: Any) -> MemoryItem:
    """Remember a text under a new key."""
    return await store.remember(a_memory(text, scope, **more), key=uuid4().hex)


async def recalled(store: MemoryStore, query: str, *scopes: str, limit: int = 9) -> list[MemoryItem]:
    """Return the items found in these scopes."""
    return list((await store.recall(query, scopes, limit=limit)).items)

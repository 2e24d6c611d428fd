"""What every `MemoryStore` must do, as tests to subclass in a pytest suite of your own.

They are run as those of `holdfast.testing.conformance` are. They use scopes of their own, so one database serves all of
them, run after run.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from holdfast.memory.semantic import (
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
from holdfast.testing.conformance import AWKWARD, refused


class MemoryStoreConformance:
    """The rules of `holdfast.memory.semantic.MemoryStore`. Give a fixture `store`."""

    async def test_what_is_remembered_is_recalled(self, store: MemoryStore) -> None:
        """An item comes back as it was given, by words of its text; whatever nobody has said of it is not found."""
        scope, until = a_scope(), datetime(2126, 1, 2, tzinfo=UTC)
        more = {"kind": "fact", "thread": "t", "position": 7, "by": "ann", "expires_at": until}
        new = a_memory("The harbour of Bergen freezes seldom.", scope, trust="web", **more)
        item = await store.remember(new, key=uuid4().hex)
        assert NewMemory(**item.model_dump(include=set(NewMemory.model_fields))) == new
        assert await recalled(store, "when does the harbour freeze", scope) == [item]
        assert await recalled(store, "zeppelin", scope) in ([], [item])  # what has vectors finds the nearest

    async def test_without_a_query_the_newest_come_first(self, store: MemoryStore) -> None:
        """A blank query is none, and no more come than were asked for."""
        scope = a_scope()
        items = [await keep(store, f"Number {number}.", scope) for number in range(4)]
        assert await recalled(store, " ", scope, limit=3) == items[:0:-1]
        assert len(await recalled(store, "number", scope, limit=2)) == 2

    async def test_scopes_are_kept_apart(self, store: MemoryStore) -> None:
        """What is remembered for one person, agent or thread is nobody else's, however alike the names are."""
        name = uuid4().hex
        scopes = [f"user:{name}", f"user:{name}2", f"user:{name.upper()}x", f"agent:{name}", f"thread:{name}", "user:%"]
        items = {scope: await keep(store, f"The word is {name}.", scope) for scope in scopes[:-1]}
        for scope, item in items.items():
            assert await recalled(store, name, scope) == [item]
            with refused(ItemNotFound):
                await store.history(item.id, [other for other in scopes if other != scope])
            with refused(ItemNotFound):
                await store.forget(item.id, ["user:%"], trust="person", by="ann")
        assert len(await recalled(store, name, *scopes)) == len(items)
        assert {item.id for item in items.values()} <= {i.id for i in (await store.recall(name, None, limit=9)).items}
        assert await recalled(store, name) == []

    async def test_the_same_key_is_one_item(self, store: MemoryStore) -> None:
        """A call that is made again, or several times at once, gives the item that the first has made."""
        scope, key = a_scope(), uuid4().hex
        first = await keep(store, "The first version.", scope)
        again = a_memory("Said twice.", scope, supersedes=first.id)
        items = await asyncio.gather(*(store.remember(again, key=key) for _ in range(6)))
        items.append(await store.remember(again, key=key))
        assert len({item.id for item in items}) == 1
        assert await recalled(store, "", scope) == [items[0]]

    async def test_what_is_superseded_stays_in_the_history(self, store: MemoryStore) -> None:
        """Only the latest version is recalled; the history has all, newest first."""
        scope = a_scope()
        one = await keep(store, "The door code is four.", scope)
        two = await keep(store, "The door code is five.", scope, supersedes=one.id)
        three = await keep(store, "The door code is six.", scope, supersedes=two.id)
        assert await recalled(store, "door code four", scope) == [three]
        history = await store.history(three.id, [scope])
        assert [item.text for item in history] == [three.text, two.text, one.text]
        assert [item.superseded_by for item in history] == ["", three.id, two.id]
        with refused(ItemRefused, one.id, two.id):
            await keep(store, "The door code is seven.", scope, supersedes=one.id)
        with refused(ItemNotFound):
            await keep(store, "The door code is seven.", a_scope(), supersedes=three.id)
        assert await recalled(store, "", scope) == [three]

    async def test_one_of_several_supersedes(self, store: MemoryStore) -> None:
        """Of several that want the place of the same item at once, one gets it."""
        scope = a_scope()
        old = await keep(store, "Old.", scope)
        wanted = (keep(store, f"New {number}.", scope, supersedes=old.id) for number in range(4))
        ends = await asyncio.gather(*wanted, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == 3 * ["ItemRefused"] + ["MemoryItem"], ends
        assert len(await recalled(store, "", scope)) == 1

    async def test_less_trust_changes_nothing_of_more(self, store: MemoryStore) -> None:
        """What a person said is neither superseded nor forgotten on the word of a web page."""
        scope = a_scope()
        item = await keep(store, "Pay nobody without asking.", scope)
        with refused(ItemRefused, item.id):
            await keep(store, "Pay everybody.", scope, trust="web", supersedes=item.id)
        with refused(ItemRefused, item.id):
            await store.forget(item.id, [scope], trust="agent", by="agent")
        assert await recalled(store, "", scope) == [item]

    async def test_what_is_forgotten_is_gone(self, store: MemoryStore) -> None:
        """No text is left, of no version; that it was there, and who removed it when and why, is."""
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
        with refused(ItemRefused, two.id):
            await keep(store, "The door code is six.", scope, supersedes=two.id)
        with refused(ItemNotFound):
            await store.forget("m-nothing", [scope], trust="person", by="ann")

    async def test_what_has_expired_is_not_recalled(self, store: MemoryStore) -> None:
        """An item whose time is over is not found, standing or not, before it is removed and after."""
        scope, past = a_scope(), datetime.now(UTC) - timedelta(seconds=1)
        await keep(store, "The bridge is closed today.", scope, expires_at=past)
        await keep(store, "Mind the bridge.", scope, expires_at=past, standing=True)
        left = await keep(store, "The bridge is old.", scope, expires_at=past + timedelta(days=1))
        for _ in range(2):
            assert await recalled(store, "bridge", scope) == await recalled(store, "", scope) == [left]
            assert await store.standing([scope], 1_000) == []
            await store.purge()

    async def test_any_text_is_kept(self, store: MemoryStore) -> None:
        """Whatever a text or a query has in it, nothing breaks, and what is kept is read as it was kept."""
        scope = a_scope()
        for text in AWKWARD:
            item = await keep(store, f"awkward {text}", scope, kind=text, by=text)
            assert item.text == clean(f"awkward {text}").strip()
            assert item in await recalled(store, f"awkward {text}", scope, limit=20)
            await recalled(store, text, scope)
            await store.forget(item.id, [scope], trust="person", by=text, why=text)
        for query in ("' | & ! <-> :* (", "\\", "the of and", "x" * 5_000, "word " * 3_000, "@ :A <0>"):
            await recalled(store, query, scope)

    async def test_what_cannot_be_remembered_is_refused(self, store: MemoryStore) -> None:
        """Blank and over-long texts, and scopes that are none; nothing is kept of them."""
        scope = a_scope()
        for text in ("", " \n", "x" * (TEXT_CHARS + 1)):
            with refused(ItemRefused):
                await keep(store, text, scope)
        with refused(ItemRefused):
            await keep(store, "x" * (STANDING_CHARS + 1), scope, standing=True)
        for none in ("", "user:", "user: ", "user:a\nb", "user:\ud800", "team:a", "GLOBAL", f"user:{'x' * 201}"):
            with refused(ItemRefused):
                await keep(store, "text", none)
        await keep(store, "x" * TEXT_CHARS, scope)
        assert len(await recalled(store, "", scope)) == 1

    async def test_standing_items_fit_their_room(self, store: MemoryStore) -> None:
        """The newest come first, as many as can be told in so many characters; one too long does not hide the rest."""
        scope, other = a_scope(), a_scope()
        await keep(store, "Not standing.", scope)
        await keep(store, "Of another.", other, standing=True)
        short = [await keep(store, f"Rule {number}.", scope, standing=True) for number in range(3)]
        long = await keep(store, "x" * 500, scope, standing=True)
        assert await store.standing([scope], 10_000) == [long, *short[::-1]]
        room = len(standing_text(short[:0:-1]))
        assert await store.standing([scope], room) == short[:0:-1]
        assert await store.standing([scope], room - 1) == [short[2]]
        assert await store.standing([], 10_000) == await store.standing([scope], 0) == []


def a_scope() -> str:
    """A scope that nobody has used."""
    return f"agent:conformance-{uuid4().hex}"


def a_memory(text: str, scope: str, **more: Any) -> NewMemory:
    """What a person says is to be remembered."""
    return NewMemory(**{"text": text, "scope": scope, "trust": "person", **more})


async def keep(store: MemoryStore, text: str, scope: str, **more: Any) -> MemoryItem:
    """Remember it, by a call of its own."""
    return await store.remember(a_memory(text, scope, **more), key=uuid4().hex)


async def recalled(store: MemoryStore, query: str, *scopes: str, limit: int = 9) -> list[MemoryItem]:
    """What is found in these scopes."""
    return list((await store.recall(query, scopes, limit=limit)).items)

"""The in-memory stores, which `holdfast.testing.agent` uses and catalogs may use."""

import pytest

from holdfast import InMemoryArtifacts, InMemoryMemories, InMemoryThreads
from holdfast.core.memory.semantic import MemoryStore
from holdfast.core.stores import ArtifactStore, SetsAside, ThreadStore
from holdfast.testing import ArtifactStoreConformance, MemoryStoreConformance, ThreadStoreConformance
from holdfast.testing.conformance import a_thread, record


class TestInMemoryThreads(ThreadStoreConformance):
    @pytest.fixture
    def store(self) -> ThreadStore:
        """Return a store for this test."""
        return InMemoryThreads()

    async def test_a_log_is_set_aside(self, store: ThreadStore) -> None:
        """The whole log is copied to the first free id; the thread ends at the first difference of the new branch."""
        assert isinstance(store, SetsAside)
        thread, before, after = a_thread(), record("a", "b", "c"), record("a", "x")
        for number in (1, 2):
            await store.append(thread, await store.length(thread), before[await store.length(thread) :])
            aside = await store.set_aside(thread, 0, after)
            assert aside == f"{thread}~reset-{number}"
            assert (await store.read(aside), await store.read(thread)) == (before, before[:1])


class TestInMemoryArtifacts(ArtifactStoreConformance):
    @pytest.fixture
    def store(self) -> ArtifactStore:
        """Return a store for this test."""
        return InMemoryArtifacts()

    async def alter(self, store: ArtifactStore, address: str, content: bytes) -> None:
        """Replace the content at an address."""
        assert isinstance(store, InMemoryArtifacts)
        store._contents[address] = content


class TestInMemoryMemories(MemoryStoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return a store for this test."""
        return InMemoryMemories()

"""The shared reading of the inbox: which runs it asks, and what it shows while it asks."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.client.pending import RowVersion
from holdfast.client.threads import JSON, Threads
from holdfast.errors import NoWorker, ServerUnreachable
from holdfast.gateway.page import inbox as inbox_module
from holdfast.gateway.page.inbox import ROUND, Inbox


class Place:
    """Threads that wait, each with one request, and the order in which they were asked."""

    def __init__(self, count: int) -> None:
        self.rows = {f"t-{n}": RowVersion("r", "waiting_approval", 1, 1) for n in range(count)}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.silent: set[str] = set()
        self.unreachable = False

    async def pending(self, thread: str) -> list[JSON]:
        """Answer for a run."""
        self.asked.append(thread)
        await self.gate.wait()
        if thread in self.silent:
            raise NoWorker("nobody answers")
        return [{"thread": thread, "request": str(self.rows[thread].step)}]

    async def state(self, thread: str) -> JSON:
        """Answer for a blocked run: there is none."""
        raise NoWorker(thread)

    async def list_waiting(self, _: Threads) -> dict[str, RowVersion]:
        """Answer as the visibility store."""
        if self.unreachable:
            raise ServerUnreachable("it does not answer")
        return dict(self.rows)

    async def read(self, inbox: Inbox) -> list[str]:
        """Return the threads that the next reading asks."""
        self.asked.clear()
        await inbox.look()
        if inbox._task:
            await asyncio.wait({inbox._task})
            await asyncio.sleep(0)
        return self.asked


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place with 200 runs that wait."""
    place = Place(200)

    async def no_blocked(*_: Any, **__: Any) -> tuple[list[JSON], str]:
        return [], ""

    monkeypatch.setattr(inbox_module, "list_waiting", place.list_waiting)
    monkeypatch.setattr(inbox_module, "list_page", no_blocked)
    monkeypatch.setattr(inbox_module, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(inbox_module, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(inbox_module, "BRIEF_SECONDS", 0)
    return place


async def test_a_run_is_asked_when_its_row_changes(place: Place) -> None:
    """A reading asks the runs that are new or have changed, and a share of the others, so that each is asked again."""
    inbox = Inbox(cast(Threads, place))
    assert len(await place.read(inbox)) == 200
    assert len(await place.read(inbox)) == ROUND
    place.rows["t-7"] = RowVersion("r", "waiting_approval", 2, 1)
    place.rows["new"] = RowVersion("r", "waiting_approval", 1, 1)
    assert {"t-7", "new"} <= set(await place.read(inbox))
    assert len(place.asked) == ROUND + 2
    again: set[str] = set()
    for _ in range(200 // ROUND + 1):
        again |= set(await place.read(inbox))
    assert again == set(place.rows)
    del place.rows["t-7"]
    await place.read(inbox)
    assert "t-7" not in {each["thread"] for each in (await inbox.look()).requests}


async def test_nobody_waits_for_all_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who look first see how many runs have not been read, and the requests as they come."""
    inbox = Inbox(cast(Threads, place))
    place.gate.clear()
    with monkeypatch.context() as patch:
        patch.setattr(inbox_module, "FIRST_SECONDS", 3_600.0)
        assert (await inbox.look(brief=True)).requests == ()  # a page that loads the rest by itself
    first = await inbox.look()
    assert (len(first.requests), len(first.missing or ())) == (0, 200)
    place.gate.set()
    await place.read(inbox)
    reading = await inbox.look()
    assert (len(reading.requests), reading.missing) == (200, ())


async def test_a_decided_request_stays_out_until_its_run_was_asked(place: Place) -> None:
    """An answer from before a decision does not bring the request back, and the run is asked in the next reading."""
    inbox = Inbox(cast(Threads, place))
    place.gate.clear()
    await inbox.look()
    inbox.forget("t-0", "1")  # decided while its run is being asked
    place.gate.set()
    await place.read(inbox)
    assert "t-0" not in {each["thread"] for each in (await inbox.look()).requests}
    assert "t-0" in await place.read(inbox)
    inbox.forget("t-1", "1")
    assert "t-1" in await place.read(inbox)


async def test_silent_runs_delay_no_others(place: Place) -> None:
    """Runs that never answer are named, are asked again a share at a time, and after all others."""
    inbox = Inbox(cast(Threads, place))
    place.silent = {f"t-{n}" for n in range(100)}
    await place.read(inbox)
    assert set((await inbox.look()).unread) == place.silent
    place.rows["new"] = RowVersion("r", "waiting_approval", 1, 1)
    asked = await place.read(inbox)
    assert asked[0] == "new"
    assert [each in place.silent for each in asked] == [False] * (ROUND + 1) + [True] * ROUND


async def test_an_unknown_inbox_is_not_an_empty_one(place: Place) -> None:
    """If Temporal does not answer, the reading fails, rather than that it shows nothing."""
    inbox = Inbox(cast(Threads, place))
    place.unreachable = True
    with pytest.raises(ServerUnreachable):
        await inbox.look()
    place.unreachable = False
    await place.read(inbox)
    assert len((await inbox.look()).requests) == 200


async def test_an_old_reading_is_not_shown_as_the_present(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody has looked for a while, the first who looks waits a moment for the next reading; later ones do not."""
    monkeypatch.setattr(inbox_module, "BRIEF_SECONDS", 3_600.0)
    inbox = Inbox(cast(Threads, place))
    await place.read(inbox)
    for old, shown in ((3_600.0, 200), (-1.0, 201)):
        monkeypatch.setattr(inbox_module, "OLD_SECONDS", old)
        place.rows["new"] = RowVersion("r", "waiting_approval", 1, 1)
        assert len((await inbox.look(brief=True)).requests) == shown

"""What `verify` says of a thread with a run that only a newer release can read."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.audit.evidence import sources
from holdfast.audit.evidence.sources import Log, from_histories
from holdfast.client.threads import Threads
from holdfast.core.temporal.history import READING
from holdfast.errors import FeaturesUnknown, HistoryUnreadable


class Reader:
    """Finds a thread of two Temporal runs."""

    async def find(self, _: str) -> Any:
        """Return the newest run."""
        return SimpleNamespace(run_id="r2", status=None)


THREADS = cast(Threads, SimpleNamespace(reader=Reader(), runs=SimpleNamespace(client=None)))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Return the error with which each run is read, by its id."""
    errors: dict[str, Exception] = {}

    async def runs_back(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for run_id in ("r2", "r1"):
            yield SimpleNamespace(run_id=run_id, chain="r1")

    def add(_: Log, run: Any) -> None:
        if run.run_id in errors:
            raise errors[run.run_id]

    monkeypatch.setattr(sources, "runs_back", runs_back)
    monkeypatch.setattr(sources, "_add_run", add)
    return errors


def newer() -> HistoryUnreadable:
    """Return the error of a run whose level this release lacks."""
    error = HistoryUnreadable("event 1 of the history cannot be read")
    error.__cause__ = FeaturesUnknown("this run has feature level 9: upgrade it here")
    return error


async def test_an_earlier_fault_is_found_all_the_same(
    read: dict[str, Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older run shows as altered stays altered."""
    monkeypatch.setattr(sources, "converter_for", lambda *_: object())
    read |= {"r1": HistoryUnreadable("it is forged"), "r2": newer()}
    log = await from_histories(THREADS, "t")
    assert log.newer
    assert log.fault is not None
    assert "it is forged" in log.fault.reason
    assert [each.why for each in log.unchecked] == ["this run has feature level 9: upgrade it here"]


@pytest.mark.parametrize("sealed", [True, False])
async def test_only_a_sealed_level_counts(
    sealed: bool, read: dict[str, Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the fleet key, anybody with access to Temporal could have claimed the level, to hide a fault."""
    monkeypatch.setattr(sources, "converter_for", lambda *_: object() if sealed else READING)
    read["r2"] = newer()
    log = await from_histories(THREADS, "t")
    assert (log.newer, log.fault is None) == (sealed, sealed)

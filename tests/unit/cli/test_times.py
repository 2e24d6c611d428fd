"""Times on this machine's clock."""

import time
from collections.abc import Iterator

import pytest

from holdfast.cli.text import clock


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process is in that time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"], indirect=True)
def test_the_ends_of_the_calendar_are_shown(zone: str) -> None:
    """A tool that says `Cannot` until the end of time does not make its run unreadable east of UTC."""
    assert clock("9999-12-31T23:59:59+00:00").startswith("9999-12-31 ")
    assert clock("0001-01-01T00:00:00+00:00").endswith((" 00:00:00", " 09:18:59"))
    assert (
        clock("2026-01-02T03:04:05+00:00")
        == {
            "Asia/Tokyo": "2026-01-02 12:04:05",
            "America/New_York": "2026-01-01 22:04:05",
        }[zone]
    )

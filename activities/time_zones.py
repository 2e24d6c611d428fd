"""The offsets of time zones, from the machine's time zone data: a run records those of the hours in its policies."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from holdfast.core.authority.hours import ZoneOffsets

YEARS = 10
"""Years ahead for which changes of the offset are read; after them, the last offset stays."""


class ZoneUnknown(Exception):
    """This machine has no data of a time zone; the message names it."""


def zone_offsets(names: Iterable[str]) -> tuple[ZoneOffsets, ...]:
    """Return the offsets of time zones, each once and without UTC, from the last year to ten years ahead. Reads files.

    Raises:
        ZoneUnknown: The machine has no data of a zone.
    """
    year = datetime.now(UTC).year
    return tuple(_offsets(name, year) for name in dict.fromkeys(names) if name != "UTC")


@lru_cache(maxsize=64)
def _offsets(name: str, year: int) -> ZoneOffsets:
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        raise ZoneUnknown(
            f"the time zone {name!r}, of which this worker has no data: correct the name, or install the package tzdata"
        ) from None
    day, end = datetime(year - 1, 1, 1, tzinfo=UTC), datetime(year + YEARS, 1, 1, tzinfo=UTC)
    offsets = [(int(day.timestamp()), _offset(zone, day))]
    while day < end:
        following = day + timedelta(days=1)
        if _offset(zone, following) != offsets[-1][1]:
            offsets.append((_change(zone, day, following), _offset(zone, following)))
        day = following
    return ZoneOffsets(name=name, offsets=tuple(offsets))


def _offset(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> int:
    """Return the second at which the offset changes between two times."""
    old, low, high = _offset(zone, before), int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        same = _offset(zone, datetime.fromtimestamp(middle, UTC)) == old
        low, high = (middle, high) if same else (low, middle)
    return high

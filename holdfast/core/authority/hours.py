"""Hours of the week in a time zone, in which calls may start: `later("deploy_*", until=Hours(…))`.

1. The only clock is the run's own. The offsets of a time zone are data that the run records when its agent is loaded
   (`ZoneOffsets`), so a replay on a machine with other time zone data opens and closes at the same times.
2. A window that ends at or before the time at which it begins ends on the next day: 22:00 to 06:00. It belongs to the
   day on which it begins.
3. Hours in a zone whose offsets are unknown never begin.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Self

from pydantic import field_validator, model_validator

from holdfast.core.base.cron import read_weekdays
from holdfast.core.base.models import Definition, Frozen

ZONE = r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}"
"""Matches the names of time zones."""

DAYS_AHEAD = 15
"""Days in which hours begin for certain: those of one week may fall into the hour that a change of clocks skips."""

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00", re.ASCII)
_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ZoneOffsets(Frozen):
    """The offsets of a time zone from UTC, as a worker's time zone data had them."""

    name: str
    """The zone, such as `Europe/Berlin`."""
    offsets: tuple[tuple[int, int], ...]
    """Pairs of a time, in seconds since 1970 UTC, and the offset in seconds from then on; oldest first. The first
    offset also counts before its time."""

    def offset(self, at: datetime) -> timedelta:
        """Return the offset at a time in UTC."""
        seconds = (at - _EPOCH).total_seconds()
        known = [offset for since, offset in self.offsets if since <= seconds] or [self.offsets[0][1]]
        return timedelta(seconds=known[-1])

    def changes(self, after: datetime, before: datetime) -> Iterator[datetime]:
        """Yield the times between these two at which the offset changes."""
        for since, _ in self.offsets:
            at = _EPOCH + timedelta(seconds=since)
            if after < at < before:
                yield at


UTC_OFFSETS = ZoneOffsets(name="UTC", offsets=((0, 0),))


class Hours(Definition):
    """Hours of the week: `Hours(begin="08:00", end="18:00", days="mon-fri", zone="Europe/Berlin")`."""

    begin: str = "00:00"
    """The time of day at which the hours begin, as HH:MM."""
    end: str = "24:00"
    """The time of day at which they end; on the next day, if it is not later than `begin`."""
    days: str = "mon-sun"
    """The days on which they begin, as in cron: `mon-fri`, `sat,sun`."""
    zone: str = "UTC"
    """The name of the time zone, such as `Europe/Berlin`."""

    @field_validator("begin", "end")
    @classmethod
    def _is_time(cls, time: str) -> str:
        if not _TIME.fullmatch(time):
            raise ValueError(f"{time[:20]!r} is no time of day; write it as 08:00")
        return time

    @field_validator("days")
    @classmethod
    def _are_days(cls, days: str) -> str:
        _weekdays(days)
        return days

    @field_validator("zone")
    @classmethod
    def _is_zone(cls, zone: str) -> str:
        if len(zone) > 60 or not re.fullmatch(ZONE, zone, re.ASCII):
            raise ValueError(f"{zone[:40]!r} is no name of a time zone; write it as Europe/Berlin")
        return zone

    @model_validator(mode="after")
    def _begins(self) -> Self:
        if self.begin == "24:00":
            raise ValueError("begin: 24:00 is the end of a day; write 00:00")
        return self

    @property
    def words(self) -> str:
        """The hours in a few words: `08:00-18:00 mon-fri Europe/Berlin`."""
        return f"{self.begin}-{self.end} {self.days} {self.zone}"

    def next_opening(self, at: datetime, zones: Iterable[ZoneOffsets]) -> datetime | None:
        """Return when the hours begin next, in UTC; `at` itself during the hours; None if the zone is unknown.

        Args:
            at: The time.
            zones: The offsets of the zones that the run has recorded.
        """
        known = (*zones, UTC_OFFSETS)
        zone = next((each for each in known if each.name == self.zone and each.offsets), None)
        at = at.astimezone(UTC)
        if zone is None or self._include(at, zone):
            return at if zone else None
        last = at + DAYS_AHEAD * _DAY
        beginnings = chain(self._beginnings(at, zone), zone.changes(at, last))
        return min((each for each in beginnings if each > at and self._include(each, zone)), default=last)

    def _include(self, at: datetime, zone: ZoneOffsets) -> bool:
        local = at.replace(tzinfo=None) + zone.offset(at)
        return any(begin <= local < begin + self._length for begin in self._days_from(local - _DAY, 2))

    def _beginnings(self, at: datetime, zone: ZoneOffsets) -> Iterator[datetime]:
        """Yield the times in UTC at which the hours may begin, some of them twice if the clocks change."""
        offsets = {timedelta(seconds=offset) for _, offset in zone.offsets}
        for begin in self._days_from(at.replace(tzinfo=None) - _DAY, DAYS_AHEAD + 2):
            for offset in sorted(offsets):
                time = (begin - offset).replace(tzinfo=UTC)
                if zone.offset(time) == offset:
                    yield time

    def _days_from(self, local: datetime, count: int) -> Iterator[datetime]:
        """Yield the local times at which the hours begin on some days in a row."""
        days = _weekdays(self.days)
        first = local.replace(hour=0, minute=0, second=0, microsecond=0)
        for number in range(count):
            day = first + number * _DAY
            if day.isoweekday() % 7 in days:
                yield day + _of_day(self.begin)

    @property
    def _length(self) -> timedelta:
        length = _of_day(self.end) - _of_day(self.begin)
        return length if length > timedelta(0) else length + _DAY


@lru_cache(maxsize=256)
def _weekdays(days: str) -> tuple[int, ...]:
    return read_weekdays("*" if days.strip().lower() == "mon-sun" else days)  # in cron, a week begins on Sunday


def _of_day(time: str) -> timedelta:
    hours, minutes = time.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))

"""Cron expressions as Temporal's calendars, and back."""

from collections.abc import Sequence

from temporalio.client import ScheduleCalendarSpec, ScheduleRange

from holdfast.core.base.cron import Cron, read_cron


def calendar_of(cron: Cron) -> ScheduleCalendarSpec:
    """Return the calendar of a cron expression, with the expression as its comment."""
    return ScheduleCalendarSpec(
        minute=_ranges(cron.minutes),
        hour=_ranges(cron.hours),
        day_of_month=_ranges(cron.days),
        month=_ranges(cron.months),
        day_of_week=_ranges(cron.weekdays),
        comment=cron.text,
    )


def cron_of(calendar: ScheduleCalendarSpec) -> str | None:
    """Return the expression in a calendar's comment; None if it does not match the calendar, which anybody can edit."""
    try:
        cron = read_cron(calendar.comment or "")
    except ValueError:
        return None
    wanted = (cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays)
    fields = (calendar.minute, calendar.hour, calendar.day_of_month, calendar.month, calendar.day_of_week)
    same = tuple(map(_numbers, fields)) == wanted and _numbers(calendar.second) == (0,) and not calendar.year
    return cron.text if same else None


def _ranges(numbers: Sequence[int]) -> list[ScheduleRange]:
    ranges: list[ScheduleRange] = []
    for number in numbers:
        if ranges and number == ranges[-1].end + 1:
            ranges[-1] = ScheduleRange(ranges[-1].start, number)
        else:
            ranges.append(ScheduleRange(number, number))
    return ranges


def _numbers(ranges: Sequence[ScheduleRange]) -> tuple[int, ...]:
    spans = (range(each.start, max(each.start, each.end) + 1, each.step or 1) for each in ranges)
    return tuple(sorted({number for span in spans for number in span}))

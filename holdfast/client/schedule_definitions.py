"""Definitions of schedules: validate them, write them as Temporal schedules, and read them back."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleDescription,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.converter import WorkflowSerializationContext

from holdfast.client.calendars import calendar_of, cron_of
from holdfast.client.start_options import check_task, issued
from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.authority.summaries import summary
from holdfast.core.base.cron import read_cron
from holdfast.core.base.durations import span_text
from holdfast.core.base.text import code, one_line, quoted
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.mac.seals import TIME, launcher_prefix
from holdfast.core.nodes import Nodes
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW
from holdfast.core.schedule.launching import ScheduledInput
from holdfast.errors import HoldfastError, ScheduleInvalid

Overlap = Literal["skip", "queue", "cancel", "allow"]
"""When a run is due while the last one is open: skip it · start it afterwards, at most one · cancel the open one ·
start it concurrently."""

OVERLAPS: dict[Overlap, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "queue": ScheduleOverlapPolicy.BUFFER_ONE,
    "cancel": ScheduleOverlapPolicy.CANCEL_OTHER,
    "allow": ScheduleOverlapPolicy.ALLOW_ALL,
}

SHORTEST_INTERVAL, LONGEST_INTERVAL = 60, 366 * 86_400
"""Seconds."""

LONGEST_CATCHUP = 30 * 86_400
"""Seconds."""

REASON_CHARS = 2_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")
_TIMED = re.compile(rf".*{TIME}")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The task, the user and the times of a schedule."""

    task: Content
    cron: str | None = None
    """A cron expression; None with `every`, or for times that somebody has set in Temporal."""
    every: float | None = None
    """Seconds from one run to the next, counted from midnight UTC of 1970-01-01; None with `cron`."""
    tz: str = "UTC"
    """The IANA name of the time zone of `cron`."""
    until: datetime | None = None
    overlap: Overlap = "skip"
    catchup: float | None = None
    """Seconds by which a run that was due while Temporal was down may start late. None for the shortest time from one
    run to the next, so that only the last missed run starts."""
    agent: str | None = None
    workspace: str | None = None
    by: str = ""
    by_proven: bool = True
    reason: str = ""
    budget: Budget | None = None
    context: dict[str, Any] | None = None
    """The typed context of each run, as JSON."""
    nodes: Nodes = ()
    """The nodes that may execute the runs; empty for those of the agent."""
    when_blocked: WhenBlocked | None = None


def check_schedule_name(name: str) -> str:
    """Return the name if a schedule can have it.

    Raises:
        ScheduleInvalid: A schedule cannot have this name.
    """
    if not _NAME.fullmatch(name) or _TIMED.fullmatch(name):
        raise ScheduleInvalid(
            f"{one_line(name, 60)!a} cannot name a schedule: use 1 to 100 ASCII letters, digits and ._:/@-, with a "
            "letter or digit first, and no time at the end"
        )
    return name


def checked(given: Definition) -> Definition:
    """Validate a definition, and fill in its defaults.

    Raises:
        ScheduleInvalid: Its times or options cannot be used; the message names the option.
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
    """
    if (given.cron is None) == (given.every is None):
        raise ScheduleInvalid("say when: either `cron`, such as '0 7 * * 1-5', or `every`, an interval")
    if given.overlap not in get_args(Overlap):
        raise ScheduleInvalid(f"`overlap` {one_line(given.overlap, 30)!r}: it is one of {', '.join(get_args(Overlap))}")
    if len(given.reason) > REASON_CHARS:
        raise ScheduleInvalid(f"`reason`: it has at most {REASON_CHARS:,} characters")
    if given.until and given.until.tzinfo is None:
        raise ScheduleInvalid(f"`until` {given.until.isoformat()}: it has no time zone")
    if given.until and given.until <= datetime.now(UTC):
        raise ScheduleInvalid(f"`until` {given.until.isoformat()}: this is over")
    gap = _gap(given)
    catchup = gap if given.catchup is None else given.catchup
    if not 10 <= catchup <= LONGEST_CATCHUP:
        raise ScheduleInvalid(f"`catchup`: it is from 10s to {span_text(LONGEST_CATCHUP)}")
    if catchup > gap and given.overlap in ("cancel", "allow"):
        raise ScheduleInvalid(
            f"`catchup` {span_text(catchup)} with `overlap` {given.overlap} would start every missed run at once; use "
            f"skip or queue, or at most {span_text(gap)}"
        )
    text = None if given.cron is None else read_cron(given.cron).text
    return replace(given, task=check_task(given.task), cron=text, catchup=catchup, tz=_zone(given))


def _gap(given: Definition) -> float:
    """Return the shortest time from one run to the next, in seconds."""
    if given.cron is not None:
        try:
            return read_cron(given.cron).shortest_gap
        except ValueError as error:
            raise ScheduleInvalid(f"`cron` {error}") from None
    assert given.every is not None
    if not SHORTEST_INTERVAL <= given.every <= LONGEST_INTERVAL:
        limits = f"from {span_text(SHORTEST_INTERVAL)} to {span_text(LONGEST_INTERVAL)}"
        raise ScheduleInvalid(f"`every` {span_text(given.every)}: an interval is {limits}")
    return given.every


def _zone(given: Definition) -> str:
    zone = given.tz or "UTC"
    if given.cron is None and zone != "UTC":
        raise ScheduleInvalid("`tz`: an interval has no time zone; leave this out, or use `cron`")
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        raise ScheduleInvalid(
            f"`tz` {one_line(zone, 40)!r}: there is no such time zone; write it as Europe/Berlin"
        ) from None
    return zone


def schedule_of(name: str, given: Definition, *, task_queue: str) -> Schedule:
    """Return the Temporal schedule of a checked definition. Its client seals the launcher's input."""
    begin = ScheduledInput(
        task=given.task,
        by=given.by,
        by_proven=given.by_proven,
        agent=given.agent,
        workspace=given.workspace,
        reason=given.reason,
        budget=given.budget,
        context=given.context,
        nodes=given.nodes,
        when_blocked=given.when_blocked,
        until=given.until,
    )
    every = timedelta(seconds=given.every) if given.every is not None else None
    assert given.catchup is not None
    return Schedule(
        action=ScheduleActionStartWorkflow(
            SCHEDULED_WORKFLOW,
            issued(begin),
            id=launcher_prefix(name),
            task_queue=task_queue,
            static_summary=f"{name}: {summary(given.task)}",
            static_details=_details(name, given),
        ),
        spec=ScheduleSpec(
            calendars=[calendar_of(read_cron(given.cron))] if given.cron is not None else [],
            intervals=[ScheduleIntervalSpec(every)] if every else [],
            end_at=given.until,
            time_zone_name=given.tz,
        ),
        policy=SchedulePolicy(overlap=OVERLAPS[given.overlap], catchup_window=timedelta(seconds=given.catchup)),
    )


async def begin_of(client: Client, found: ScheduleDescription) -> ScheduledInput:
    """Return the sealed launcher's input of a schedule; if it cannot be read, an input whose `malformed` gives the
    reason.
    """
    action = found.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=action.id)
    converter = client.data_converter.with_context(place)
    if len(action.args) != 1:
        return ScheduledInput(malformed=f"{len(action.args)} arguments, not one")
    try:
        (begin,) = await converter.decode(list(action.args), [ScheduledInput])
    except HoldfastError as error:
        return ScheduledInput(malformed=str(error))
    assert isinstance(begin, ScheduledInput)
    return begin


def definition_of(begin: ScheduledInput, found: ScheduleDescription) -> Definition:
    """Return a schedule's definition: its task from the sealed input, its times from Temporal."""
    spec, policy = found.schedule.spec, found.schedule.policy
    only = [*spec.calendars, *spec.intervals][0] if len(spec.calendars) + len(spec.intervals) == 1 else None
    overlaps: dict[int, Overlap] = {value: name for name, value in OVERLAPS.items()}
    return Definition(
        task=begin.task,
        cron=cron_of(only) if isinstance(only, ScheduleCalendarSpec) else None,
        every=only.every.total_seconds() if isinstance(only, ScheduleIntervalSpec) and not only.offset else None,
        tz=spec.time_zone_name or "UTC",
        until=begin.until,
        overlap=overlaps.get(policy.overlap, "skip"),
        catchup=policy.catchup_window.total_seconds() if policy.catchup_window else None,
        agent=begin.agent,
        workspace=begin.workspace,
        by=begin.by,
        by_proven=begin.by_proven,
        reason=begin.reason,
        budget=begin.budget,
        context=begin.context,
        nodes=begin.nodes,
        when_blocked=begin.when_blocked,
    )


def _details(name: str, given: Definition) -> str:
    """Return the description of a launcher for the Web UI, in Markdown."""
    why = f": {code(one_line(given.reason, 200))}" if given.reason else ""
    lines = [f"Schedule: `{code(name)}`, of `{code(given.by or 'nobody by name')}`{why}  "]
    lines += [f"Agent: {f'`{code(given.agent)}`' if given.agent else 'the first of the catalog'}  ", ""]
    return "\n".join([*lines, quoted(text_of(given.task), 4_000)])

"""The record for SQL: a row per event, which the view `holdfast.log` shows.

Blocks (`holdfast.runtime.stores.blocks`) are compressed with LZMA, which SQL cannot read. So the transaction that
stores events also writes a row for each.

1. The rows are a copy, and prove nothing: no digest covers them. `verify` checks the record.
2. A thread's rows begin with its first event and have no gap. Rows that an older release did not write are added by the
   next append, or by `holdfast migrate`.
3. Nothing in an event keeps it out of the record: what jsonb refuses is replaced, and long texts are cut.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg.types.json import Jsonb

TEXT_CHARS = 4_000
"""The most characters of a text in a body; the record has all of them."""

MOST_NESTED = 40
"""How deep a body may be nested."""

CATCH_UP = 2_000
"""The most rows that one append adds for events stored before; `holdfast migrate` adds any number."""

COLUMNS = "position, at, type, step, agent, call, tool, request, status, actor, body"
"""Those of a row, after its thread."""

AT_ONCE = 500
"""Rows that one statement adds."""

_INSERT = f"""
    INSERT INTO holdfast.event_rows (thread, {COLUMNS})
    SELECT %s, {COLUMNS} FROM jsonb_to_recordset(%s) AS added (
        position integer, at timestamptz, type text, step integer, agent text, call integer, tool text, request text,
        status text, actor text, body jsonb
    )
"""  # noqa: S608  # constants
"""One parameter for all rows. COPY cannot be sent together with other statements, and so costs a round trip more."""

_LAST = "SELECT position + 1, step, agent FROM holdfast.event_rows WHERE thread = %s ORDER BY position DESC LIMIT 1"
_CALLS = (
    "SELECT call, tool FROM holdfast.event_rows WHERE thread = %s AND type = 'tool_call_requested' AND call = ANY(%s)"
)
_REQUESTS = (
    "SELECT request, call, tool FROM holdfast.event_rows WHERE thread = %s "
    "AND type IN ('approval_requested', 'reconcile_requested') AND request = ANY(%s)"
)

WrittenT = TypeVar("WrittenT")

log = structlog.get_logger(__name__)


@dataclass
class Carried:
    """What the columns of an event take from events before it."""

    length: int = 0
    """How many rows the thread has."""
    step: int = 0
    agent: str | None = None
    tools: dict[int, str] = field(default_factory=dict)
    """Number of a call → its tool."""
    requests: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    """Id of a request → the call that it is about, and its tool."""


async def carried_of(connection: psycopg.AsyncConnection, thread: int) -> Carried:
    """Read how far the rows of a thread lead."""
    row = await (await connection.execute(_LAST, [thread])).fetchone()
    return Carried(*row) if row else Carried()


async def with_bodies(thread: str, write: Callable[[bool], Awaitable[WrittenT]]) -> WrittenT:
    """Have a transaction add rows with the events' bodies, or without them where the database refuses one.

    Args:
        thread: The thread's id.
        write: Does it in a transaction of its own, with bodies or without.
    """
    try:
        return await write(True)
    except psycopg.DataError as error:
        log.warning("event_bodies_left_out", thread=thread, reason=str(error).strip())
        return await write(False)


async def insert_rows(
    connection: psycopg.AsyncConnection, thread: int, lines: Sequence[bytes], carried: Carried, *, bodies: bool = True
) -> None:
    """Add the rows of the events that follow those a thread has. `carried` moves on with them.

    Args:
        connection: In a transaction that holds the thread's lock.
        thread: The thread's number.
        lines: The events' lines, from position `carried.length` on.
        carried: Of the rows before.
        bodies: Add the events' bodies, too.

    Raises:
        psycopg.DataError: The database refuses a body, and has ended the transaction.
    """
    events = [event_of(line) for line in lines]
    await _look_back(connection, thread, events, carried)
    rows = list(rows_of(events, carried, bodies=bodies))
    for begin in range(0, len(rows), AT_ONCE):
        await connection.execute(_INSERT, [thread, Jsonb(rows[begin : begin + AT_ONCE])])


def rows_of(events: Sequence[dict[str, Any]], carried: Carried, *, bodies: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the columns of each event, from the position on, as JSON."""
    for event in events:
        kind = _text(event.get("type")) or "unknown"
        if kind == "llm_replied":
            carried.step += 1
        if kind == "agent_loaded":
            carried.agent = _text(_part(event, "spec").get("name"))
        asked = _part(event, "request")
        call = _number(event.get("number", asked.get("number")))
        tool = _text(_part(event, "call").get("name") or asked.get("tool") or event.get("tool"))
        request = _text(asked.get("id") or event.get("request")) or None
        if kind == "tool_call_requested" and call is not None and tool:
            carried.tools[call] = tool
        if asked and request:
            carried.requests[request] = (call, tool)
        if call is None and request:
            call, tool = carried.requests.get(request, (None, None))
        if call is not None and tool is None:
            tool = carried.tools.get(call)
        status = _text(event.get("status") or event.get("outcome") or event.get("verdict"))
        at = _time(event.get("at"))
        yield {
            "position": carried.length,
            "at": at.isoformat() if at else None,
            "type": kind,
            "step": carried.step,
            "agent": carried.agent,
            "call": call,
            "tool": tool,
            "request": request,
            "status": status,
            "actor": _text(event.get("by")) or None,
            "body": fit(event) if bodies else {},
        }
        carried.length += 1


def fit(value: Any, depth: int = 0) -> Any:
    """Return a JSON value as jsonb takes it: without what it refuses, and with long texts cut."""
    if isinstance(value, str):
        cut = value[:TEXT_CHARS].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        return cut if len(value) <= TEXT_CHARS else f"{cut}… ({len(value) - TEXT_CHARS:,} more characters)"
    if depth >= MOST_NESTED:
        return "…"
    if isinstance(value, dict):
        return {fit(str(key)): fit(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [fit(each, depth + 1) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"{value:e}" if value.bit_length() < 1_000 else "…"
    return value


async def _look_back(
    connection: psycopg.AsyncConnection, thread: int, events: Sequence[dict[str, Any]], carried: Carried
) -> None:
    """Read the tools of calls and requests that these events name, and that began before them."""
    if not carried.length:
        return
    numbers = {number for event in events if (number := _number(event.get("number"))) is not None}
    requests = {request for event in events if (request := _text(event.get("request")))}
    if numbers := numbers - carried.tools.keys():
        carried.tools |= dict(await (await connection.execute(_CALLS, [thread, list(numbers)])).fetchall())
    if requests := requests - carried.requests.keys():
        for request, *about in await (await connection.execute(_REQUESTS, [thread, list(requests)])).fetchall():
            carried.requests[request] = (about[0], about[1])


def event_of(line: bytes) -> dict[str, Any]:
    """Decode a line, as far as it is an event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _part(event: dict[str, Any], name: str) -> dict[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _text(value: Any) -> str | None:
    return fit(value) if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return None

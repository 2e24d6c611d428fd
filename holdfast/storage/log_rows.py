"""The record for SQL: the columns of each event in the view `holdfast.log`.

Blocks (`holdfast.storage.blocks`) are compressed with LZMA, which SQL cannot read. So the row of a block also has the
columns of its events for the view (the "SQL rows"), as one JSON value, which PostgreSQL compresses.

1. SQL rows are a copy, and prove nothing: no digest covers them. `verify` checks the record.
2. A thread's SQL rows begin with its first event and have no gap. The next append, or `holdfast migrate`, adds those
   that an older release did not write.
3. No content of an event can keep it out of the record: values that jsonb rejects are replaced, and long texts are cut.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.types.json import Jsonb
from pydantic import TypeAdapter, ValidationError

TEXT_CHARS = 4_000
"""The most characters of a text in a body; the record has the full text."""

MOST_NESTED = 40
"""The maximum nesting of a body."""

MOST_OPEN = 200
"""The most open calls, and the most open requests, in the context for the next block."""

_COLUMNS = ("at", "position", "type")
_UNSHOWN = ("digest", "schema_version")
"""Fields omitted from a body, because only the record can vouch for them."""

WrittenT = TypeVar("WrittenT")


@dataclass
class RowContext:
    """Context from earlier events for the columns of an event."""

    step: int = 0
    agent: str | None = None
    tools: dict[str, str] = field(default_factory=dict)
    """Number of an open call → its tool."""
    requests: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    """Id of a request about an open call → the call's number and tool."""


_CARRIED = TypeAdapter(RowContext)


def carried_from(value: Any) -> RowContext | None:
    """Decode the context in a block's row; None if the block has no SQL rows yet.

    An altered value decodes to an empty context: it must not keep events out of the record.
    """
    if value is None:
        return None
    try:
        return _CARRIED.validate_python(value)
    except ValidationError:
        return RowContext()


class LogRows(NamedTuple):
    """The SQL columns of a block's row."""

    log_rows: Jsonb | None
    """The columns of each event, as a list; None if not written yet."""
    carried: Jsonb | None
    """The context for the next block."""
    origins: list[str] | None
    """The original threads of forks among the events; None for no fork."""


NOT_YET = LogRows(None, None, None)


async def with_bodies(thread: str, write: Callable[[bool], Awaitable[WrittenT]]) -> WrittenT:
    """Write SQL rows with the events' bodies, or without them if the database rejects a body.

    Args:
        thread: The thread's id.
        write: Writes them in its own transaction; its argument says whether with bodies.
    """
    try:
        return await write(True)
    except psycopg.DataError as error:
        import structlog  # its import takes 50 ms, which commands that log nothing should not pay

        structlog.get_logger(__name__).warning("event_bodies_left_out", thread=thread, reason=str(error).strip())
        return await write(False)


def log_rows_of(position: int, lines: Sequence[bytes], carried: RowContext, *, bodies: bool = True) -> LogRows:
    """Return the SQL columns of a block's row, and update `carried` for the next block.

    Args:
        position: The position of the first line.
        lines: The block's lines.
        carried: The context from the block before.
        bodies: Whether to add the events' bodies.
    """
    events = [event_of(line) for line in lines]
    rows = list(rows_of(position, events, carried, bodies=bodies))
    ended = {str(row["call"]) for row in rows if row["type"] == "tool_call_finished" and "call" in row}
    tools = [item for item in carried.tools.items() if item[0] not in ended]
    requests = [item for item in carried.requests.items() if str(item[1][0]) not in ended]
    carried.tools, carried.requests = dict(tools[-MOST_OPEN:]), dict(requests[-MOST_OPEN:])
    forks = [event for event in events if event.get("type") == "run_forked"]
    origins = {_text(name) for event in forks for name in (_part(event, "point").get("thread"), event.get("origin"))}
    return LogRows(Jsonb(rows), Jsonb(asdict(carried)), sorted(filter(None, origins)) or None)


def rows_of(
    position: int, events: Sequence[dict[str, Any]], carried: RowContext, *, bodies: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each event as JSON, without empty ones."""
    for index, event in enumerate(events, position):
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
            carried.tools[str(call)] = tool
        if asked and request:
            carried.requests[request] = (call, tool)
        if call is None and request:
            call, tool = carried.requests.get(request, (None, None))
        if call is not None and tool is None:
            tool = carried.tools.get(str(call))
        at = _time(event.get("at"))
        columns = {
            "position": index,
            "at": at.isoformat() if at else None,
            "type": kind,
            "step": carried.step,
            "agent": carried.agent,
            "call": call,
            "tool": tool,
            "request": request,
            "status": _text(event.get("status") or event.get("outcome") or event.get("verdict")),
            "actor": _text(event.get("by")) or None,
            "body": fit({name: event[name] for name in event if name not in _COLUMNS + _UNSHOWN}) if bodies else {},
        }
        yield {name: value for name, value in columns.items() if value is not None}


def fit(value: Any, depth: int = 0) -> Any:
    """Return a JSON value that jsonb accepts: rejected characters and numbers replaced, and long texts cut."""
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


def event_of(line: bytes) -> dict[str, Any]:
    """Decode a line; empty if it is not an event."""
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

"""A line of the record as a row, and back: the same bytes, in less space.

1. An event's line is rebuilt from columns and the rest of its JSON. That is exact because the line is canonical;
   a line that does not come back byte for byte is kept as it came.
2. What compresses is compressed. The body's first byte says how it is kept, so older rows stay readable.
"""

import json
import zlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.model import canonical

_DEFLATED = 1
_REBUILT = 2
_LEVEL = 6
_RAW = -15
"""Deflate without zlib's header and checksum: 6 bytes that the digest makes needless."""
_WORTH = 0.9
"""Smaller than this share of the original, or it is not worth the time to decompress."""

_COLUMNS = ("at", "digest", "position")
_VERSION = 1
"""The schema version that goes without saying. Rows depend on it: it stays 1 when the schema moves on."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A row of `holdfast.events`, but for its thread."""

    position: int
    at: int | None
    digest: bytes | None
    body: bytes


def pack(position: int, line: bytes) -> Row:
    """The row for a line, whatever it holds."""
    row = _columns(position, line)
    form = _REBUILT if row else 0
    row = row or Row(position, None, None, line)
    deflated = zlib.compress(row.body, _LEVEL, _RAW)
    if len(deflated) <= _WORTH * len(row.body):
        return row._replace(body=bytes([form | _DEFLATED]) + deflated)
    return row._replace(body=bytes([form]) + row.body)


def unpack(row: Row) -> bytes:
    """The line that `pack` was given.

    Raises:
        ValueError: The row was damaged.
    """
    try:
        form, body = row.body[0], row.body[1:]
        if form & _DEFLATED:
            body = zlib.decompress(body, _RAW)
        return _rebuild(row._replace(body=body)) if form & _REBUILT else body
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError, zlib.error) as error:
        raise ValueError(f"damaged row: {error}") from error


def _columns(position: int, line: bytes) -> Row | None:
    """The line taken apart; None if it could not be put together again."""
    try:
        event = json.loads(line)
        at = (datetime.fromisoformat(event["at"]) - EPOCH) // timedelta(microseconds=1)
        rest = {name: value for name, value in event.items() if name not in _COLUMNS}
        if rest["schema_version"] == _VERSION:
            del rest["schema_version"]
        row = Row(position, at, bytes.fromhex(event["digest"]), canonical(rest))
        return row if _rebuild(row) == line else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None  # no event, or none of ours


def _rebuild(row: Row) -> bytes:
    if row.at is None or row.digest is None:
        raise ValueError("a column is empty")
    at = (EPOCH + timedelta(microseconds=row.at)).isoformat().replace("+00:00", "Z")
    columns = {"at": at, "digest": row.digest.hex(), "position": row.position, "schema_version": _VERSION}
    return canonical(columns | json.loads(row.body))

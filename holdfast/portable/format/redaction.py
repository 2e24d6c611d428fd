"""A log without its bodies: each event's digest, type, time and actor; whole events only where they have no body.

The digests still show what the whole log was, and anybody who has an event's line can show that it is part of it. The
chain can be computed only where an event was kept whole.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.base.canonical import canonical, digest

WITHOUT_BODY: Final = frozenset(
    ("run_continued", "message_taken", "tool_call_started", "refusals_counted", "wait_polled")
)
"""Types of events without words of people, LLMs or tools: numbers, ids, digests and times alone."""

_KEPT: Final = ("at", "digest", "position", "schema_version", "type")
_ACTOR: Final = "by"


def redacted(line: bytes) -> bytes:
    """Return the line that stands in for an event's line: canonical JSON with `redacted`, or the line itself."""
    event = json.loads(line)
    if event["type"] in WITHOUT_BODY:
        return line
    kept = {name: event[name] for name in _KEPT if name in event}
    if isinstance(event.get(_ACTOR), str):
        kept[_ACTOR] = event[_ACTOR]
    return canonical({**kept, "redacted": True})


def is_redacted(event: Mapping[str, Any]) -> bool:
    """Whether a parsed line stands in for an event."""
    return event.get("redacted") is True


def shape_fault(event: Mapping[str, Any]) -> str:
    """Return what a redacted line has that it must not have; empty if nothing."""
    extra = sorted(event.keys() - {*_KEPT, _ACTOR, "redacted"})
    missing = sorted({"digest", "position", "type"} - event.keys())
    if extra or missing:
        return f"it was altered: it {'has ' + extra[0] if extra else 'lacks ' + missing[0]}"
    return ""


def redacted_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the ledger with its outcome's digest in place of the outcome."""
    outcome = row["outcome"]
    return {**row, "outcome": None if outcome is None else f"sha256:{digest(outcome)}"}

"""What the permanent record has of a thread."""

import asyncio
import json
from typing import Final

from holdfast.log.events import AgentEvent
from holdfast.log.stored_lines import read_lines, run_events
from holdfast.stores import ThreadStore

_BEGIN_OR_END: Final = ("run_started", "run_forked", "run_imported", "run_finished")


async def read_thread(store: ThreadStore, thread: str, start: int = 0, stop: int | None = None) -> list[AgentEvent]:
    """Read and check the recorded events of a thread, from position `start` up to `stop`.

    Raises:
        RecordUnreadable: An event does not decode, or was altered.
    """
    events: list[AgentEvent] = []
    head: str | None = None
    while stop is None or start + len(events) < stop:
        lines = await store.read(thread, start + len(events))
        if not lines:
            break
        page = await asyncio.to_thread(read_lines, thread, start + len(events), lines, head=head)
        events += run_events(thread, page)
        head = events[-1].digest
    return events if stop is None else events[: stop - start]


async def begins_and_ends(store: ThreadStore, thread: str, start: int = 0) -> list[str]:
    """How runs of a thread began and ended from position `start` on: the types of these events, of an end its outcome.

    Raises:
        ThreadForgotten: Its content was removed.
    """
    found: list[str] = []
    while lines := await store.read(thread, start):
        events = map(json.loads, lines)
        found += [str(each.get("outcome") or each["type"]) for each in events if each["type"] in _BEGIN_OR_END]
        start += len(lines)
    return found

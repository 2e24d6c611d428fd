"""Reads the events before a place in a feed that are needed to continue it there."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.client.threads import Threads
from holdfast.core.log.events import AgentEvent, UserMessageReceived
from holdfast.core.log.upcasters import decode_event
from holdfast.errors import EventsMissing
from holdfast.gateway.feeds.conversation import Conversation, resumes_from
from holdfast.gateway.http.pages import note

WINDOW = 128
"""The number of events that are read at first; four times as many if these are too few."""


def decoded(event: dict[str, Any]) -> AgentEvent:
    """Decode an event from its JSON.

    Raises:
        EventUnreadable: This release cannot read it.
    """
    return decode_event(json.dumps(event))


async def past_of(threads: Threads, thread: str, position: int) -> list[AgentEvent]:
    """Return the events up to a position from the last one with which a conversation can resume (`resumes_from`)."""
    events, index = await _back_to(threads, thread, position, resumes_from)
    return events[index or 0 :]


async def last_turn(threads: Threads, thread: str, position: int) -> int:
    """Return the position at which the conversation opened with a message for the last time, up to a position; 0 if
    that cannot be read.
    """
    while True:
        events, index = await _back_to(threads, thread, position, _last_message)
        if index is None:
            return 0
        message, conversation = events[index], Conversation()
        if isinstance(message, UserMessageReceived) and message.task:
            return max(0, message.position - 1)  # the run's start
        conversation.replay(await past_of(threads, thread, message.position - 1))
        if not conversation.open:
            return message.position
        position = message.position - 1


def _last_message(events: Sequence[AgentEvent]) -> int | None:
    found = (index for index in range(len(events) - 1, -1, -1) if isinstance(events[index], UserMessageReceived))
    return next(found, None)


async def _back_to(
    threads: Threads, thread: str, position: int, find: Callable[[Sequence[AgentEvent]], int | None]
) -> tuple[list[AgentEvent], int | None]:
    """Read more and more events up to a position until one is found; earlier ones may be gone."""
    window = WINDOW
    while True:
        after, events = max(-1, position - window), list[AgentEvent]()
        try:
            async for event in threads.events(thread, after=after, note=note):
                if event["position"] > position:
                    break
                events.append(decoded(event))
        except EventsMissing as error:
            if error.stop is None:
                raise
            after, events = -1, []
            async for event in threads.events(thread, after=error.stop - 1, note=note):
                if event["position"] > position:
                    break
                events.append(decoded(event))
        index = find(events)
        if index is not None or after == -1:
            return events, index
        window *= 4

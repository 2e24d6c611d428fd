"""Streams the reply that is being written to an open page of its run, as server-sent events.

1. A reader needs the scopes that deltas need in the API: `read` and `transcript`. A stream ends with its session.
2. What is sent is a preview: its text, with invisible characters written out, and its ids. No event, and nothing that a
   decision could refer to. The page shows the event as soon as it is recorded.
3. It reads what the pages that show the run read anyway (`cached_log`), and the chunks that all readers share.
"""

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import Threads
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.following import ENDS
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.page.cached_log import CachedLog
from holdfast.gateway.page.guards import HEADERS
from holdfast.gateway.page.state_cache import StateCache
from holdfast.gateway.page.views.drafts import DraftView
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.stream import EventStream, frame
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import LOOK_BACK, read_stream

PAGES, PAGES_EACH = 256, 32
"""The most pages with a stream, and the most of one person. The others show a reply when it is recorded."""
AHEAD = 8
"""The most frames that are read ahead of a page."""


class Drafts:
    """The streams of replies to open pages.

    Args:
        threads: The threads.
        hub: The streams of replies; None for none.
        cache: The readings of runs that pages share.
        log: The events of these runs.
    """

    def __init__(self, threads: Threads, hub: Hub | None, cache: StateCache, log: CachedLog) -> None:
        self._threads = threads
        self._hub = hub
        self._cache = cache
        self._log = log
        self._slots = Slots("followed pages", PAGES, PAGES_EACH)

    def shows(self, visit: Visit) -> bool:
        """Whether a person may see replies while they are written."""
        return self._hub is not None and "transcript" in visit.caller.scopes

    async def stream(self, visit: Visit) -> Response:
        """Stream the reply after an id; 204 if there is none to come, so that a browser does not reconnect."""
        visit.require("read")
        visit.require("transcript")
        thread, cursor = visit.thread(), _cursor(visit.request)
        state = await self._cache.state(thread)
        head = int(state["events"]) - 1
        if self._hub is None or (state["status"] in CLOSED and head <= cursor.after):
            return Response(status_code=204, headers=HEADERS)
        if cursor.after < head - LOOK_BACK:  # the page has been away for long: it refreshes by itself
            cursor = Cursor(head - LOOK_BACK)
        self._slots.acquire(visit.caller.name)
        visit.request.state.cleanup.close()  # from here on it counts as a stream, not as a request
        return EventStream(
            self._frames(thread, cursor),
            thread,
            followers=self._slots,
            caller=visit.caller.name,
            headers=HEADERS,
            ahead=AHEAD,
            is_open=visit.is_open,
        )

    async def _frames(self, thread: str, cursor: Cursor) -> AsyncIterator[str]:
        view = DraftView()
        async for each in read_stream(self._threads, self._hub, thread, cursor, followers=self._log):
            if isinstance(each, Chunk):
                if (shown := view.add(each)) is not None:
                    yield frame(*shown, id=each.id)
            elif each["type"] in ENDS:
                view.clear()
                yield frame("ended", _ended(each), id=str(each["position"]))
        yield frame("end", {})


def _ended(event: dict[str, Any]) -> dict[str, Any]:
    return {"position": event["position"], "replied": event["type"] == "llm_replied"}


def _cursor(request: Request) -> Cursor:
    """Return the last id that a page has: the browser sends the header when it reconnects.

    Raises:
        HTTPProblem: 422: it is none.
    """
    try:
        return Cursor.parse(request.headers.get("last-event-id") or request.query_params.get("after", ""))
    except ValueError as error:
        raise HTTPProblem(422, str(error)) from None

"""The routes of feeds: a thread for clients of AG-UI and of Vercel's AI SDK.

1. `GET` follows a thread, and continues after the `Last-Event-ID`. `POST` does what the client asks for, exactly as the
   route of a start, a message or a decision would, with the same scopes, and then follows what comes of it.
2. Both need the scopes `read` and `transcript`; a `POST` also `start`, `say` or `decide`, by what it asks for.
3. A stream ends when the agent waits for a person.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from holdfast.client.idempotent_starts import recorded_starts
from holdfast.client.threads import Threads
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.errors import TaskDiffers, ThreadNotFound
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.bodies import AGENT_NAME, MessageBody, StartBody
from holdfast.gateway.callers import Scope
from holdfast.gateway.descriptions import ON_THREAD, body_of, content, problems
from holdfast.gateway.feeds.ag_ui import AgUi
from holdfast.gateway.feeds.claims import RUN_ID, AgUiBody, Claim, UiMessagesBody, read_ag_ui, read_ui_messages
from holdfast.gateway.feeds.feed import Encoder, Feed, Sent
from holdfast.gateway.feeds.looking_back import decoded, last_turn, past_of
from holdfast.gateway.feeds.place import PATTERN, Place
from holdfast.gateway.feeds.ui_messages import UiMessages
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.routes.interventions import Actions
from holdfast.gateway.routes.starts import own_id, start_exactly
from holdfast.gateway.stream import EventStream, frame
from holdfast.streaming.followers import Followers
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

LastId = Annotated[
    str, Header(alias="Last-Event-ID", pattern=PATTERN, description="The id of the last event that the client has.")
]
Agent = Annotated[str | None, Query(pattern=AGENT_NAME, description="For a new thread: the agent's name.")]


Responses = dict[int | str, dict[str, Any]]


class _Protocol(NamedTuple):
    """A protocol, with its path below `/threads/{thread}`."""

    path: str
    name: str
    title: str
    body: type[BaseModel]
    read: Callable[[bytes, str], Claim]
    encoder: Callable[[str, str], Encoder]
    replays_turn: bool
    """Whether a client without an id gets the last turn, unless it is over; if not, the whole thread."""


AG_UI = _Protocol("ag-ui", "ag_ui", "AG-UI", AgUiBody, read_ag_ui, AgUi, replays_turn=False)
UI_MESSAGES = _Protocol(
    "ui-messages",
    "ui_messages",
    "UI messages (AI SDK)",
    UiMessagesBody,
    read_ui_messages,
    lambda thread, run: UiMessages(thread),
    replays_turn=True,
)


def feeds_router(
    threads: Threads,
    authenticator: Authenticator,
    followers: Slots,
    actions: Actions,
    hub: Hub | None,
    followed: Followers,
) -> APIRouter:
    """Return the routes of feeds.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        followers: The streams.
        actions: Sends decisions and messages.
        hub: The streams of replies; None for recorded replies alone.
        followed: The threads that this process follows.
    """
    routes = APIRouter()
    for protocol in (AG_UI, UI_MESSAGES):
        _add(routes, protocol, _Feeds(protocol, threads, followers, actions, hub, followed), authenticator)
    return routes


def _add(routes: APIRouter, protocol: _Protocol, feeds: "_Feeds", authenticator: Authenticator) -> None:
    reads = Depends(authenticator.for_thread("read"))
    schema = {"type": "object", "description": f"One event of {protocol.title}, as server-sent events."}
    streamed: Responses = {200: content("text/event-stream", schema)}

    async def follow_feed(
        request: Request,
        access: Annotated[Access, reads],
        last: LastId = "",
        run: Annotated[str, Query(pattern=f"^$|{RUN_ID}", description="The run's id in the events.")] = "",
    ) -> Response:
        return await feeds.follow(request, access, last, run)

    async def send_to_feed(request: Request, access: Annotated[Access, reads], agent: Agent = None) -> Response:
        return await feeds.send(request, access, agent)

    over: Responses = {204: {"description": "Nothing has happened since, and the agent waits for a person."}}
    routes.add_api_route(
        f"/threads/{{thread}}/{protocol.path}",
        follow_feed,
        methods=["GET"],
        name=f"follow_{protocol.name}",
        description=f"Follow the thread as {protocol.title}, until the agent waits for a person.",
        responses={**streamed, **over, **problems(*ON_THREAD)},
        response_model=None,
        response_class=StreamingResponse,
    )
    routes.add_api_route(
        f"/threads/{{thread}}/{protocol.path}",
        send_to_feed,
        methods=["POST"],
        name=f"send_{protocol.name}",
        description=f"Start the thread, send a message or decide, as {protocol.title} does, and follow the thread.",
        responses={**streamed, **problems(*ON_THREAD)},
        openapi_extra=body_of(protocol.body),
        response_model=None,
        response_class=StreamingResponse,
    )


class _Feeds:
    """Answers the requests of one protocol."""

    def __init__(
        self,
        protocol: _Protocol,
        threads: Threads,
        followers: Slots,
        actions: Actions,
        hub: Hub | None,
        followed: Followers,
    ) -> None:
        self._protocol = protocol
        self._threads = threads
        self._followers = followers
        self._actions = actions
        self._hub = hub
        self._followed = followed

    async def follow(self, request: Request, access: Access, last: str, run: str) -> Response:
        """Follow a thread."""
        _require(access, "transcript")
        thread, encoder = access.thread, self._protocol.encoder(access.thread, run)
        head = await self._head(thread)
        place = _place(last)
        if place.cursor.after > head:
            raise HTTPProblem(422, f"Last-Event-ID: the thread has no event {place.cursor.after}")
        if not last and self._protocol.replays_turn:
            turn = await last_turn(self._threads, thread, head)
            latest = Feed(encoder, Place(Cursor(head)), await past_of(self._threads, thread, head))
            if latest.closed:
                return Response(status_code=204)
            place = Place(Cursor(turn - 1))
        feed = Feed(encoder, place, await past_of(self._threads, thread, place.cursor.after))
        if feed.closed and place.cursor.after == head:
            return Response(status_code=204)  # so that a browser does not reconnect
        with _Slot(self._followers, access) as slot:
            return slot.stream(request, self._frames(thread, feed, place, until=head), encoder)

    async def send(self, request: Request, access: Access, agent: str | None) -> Response:
        """Do what a client asks for, and follow the thread from there."""
        claim = self._protocol.read(await request.body(), access.thread)
        _require(access, "transcript")
        if claim.answers:
            _require(access, "decide")
        thread, encoder = access.thread, self._protocol.encoder(access.thread, claim.run)
        with _Slot(self._followers, access) as slot:
            head, new = await self._act(access, claim, agent)
            start = head if new else await last_turn(self._threads, thread, head) - 1
            feed = Feed(encoder, Place(Cursor(start)), await past_of(self._threads, thread, start))
            for text in (feed.conversation.text, feed.conversation.reasoning):
                text.withdraw_claimed(claim.ids)
            frames = self._frames(thread, feed, Place(Cursor(start)), until=head, news=new)
            return slot.stream(request, frames, encoder)

    async def _act(self, access: Access, claim: Claim, agent: str | None) -> tuple[int, bool]:
        """Do what a client asks for; return the position of the last event before that, and whether anything was new.

        A client that repeats a request, because it had no response, gets the whole turn.
        """
        thread, by = access.thread, access.caller.name
        try:
            head = await self._head(thread)
        except ThreadNotFound:
            if claim.message is None:
                raise
            await self._start(access, claim.message, agent)
            return -1, True
        new = False
        for body, signature in claim.answers:
            new |= await _unless_duplicate(self._actions.decide(thread, body, by=by, signature=signature))
        if claim.message is None or (claim.first and await self._is_start(access, claim.message, agent)):
            return head, new
        _require(access, "say")
        return head, await _unless_duplicate(self._actions.say(thread, claim.message, by=by, id=claim.message_id))

    async def _start(self, access: Access, message: MessageBody, agent: str | None) -> None:
        """Start a thread with a message."""
        _require(access, "start")
        body = StartBody(task=message.message, agent=agent)
        try:
            await start_exactly(self._threads, own_id(access.thread, access.caller), body, access.caller)
        except TaskDiffers:
            detail = f"{access.thread!r} was just started otherwise; send the message again"
            raise HTTPProblem(409, detail, outcome="exists") from None

    async def _is_start(self, access: Access, message: MessageBody, agent: str | None) -> bool:
        """Whether a message is the start of the thread, sent again."""
        first = await anext(recorded_starts(self._threads, access.thread))
        return (first.task, first.by, first.agent) == (message.message, access.caller.name, agent)

    async def _head(self, thread: str) -> int:
        """Return the position of the last event."""
        return int((await self._threads.state(thread, note=note))["events"]) - 1

    async def _frames(
        self, thread: str, feed: Feed, place: Place, *, until: int, news: bool = False
    ) -> AsyncIterator[str]:
        """Yield the feed after a place as server-sent events, until the conversation is closed.

        Args:
            thread: The thread id.
            feed: The feed.
            place: The place.
            until: The position of the last event when the request came: an earlier close is not the end.
            news: Whether something will come, so that a conversation that is closed yet is not the end.
        """
        frames = read_stream(self._threads, self._hub, thread, place.cursor, patient=True, followers=self._followed)
        async for each in frames:
            if isinstance(each, Chunk):
                for sent in feed.chunk(each):
                    yield _written(sent)
                continue
            event = decoded(each)
            for sent in feed.event(event):
                yield _written(sent)
                news = False
            if feed.closed and event.position >= until and not news:
                break
        if not feed.closed:
            for failure in feed.encoder.failed("the run was ended from outside", "ended"):
                yield frame("", failure)
        if feed.encoder.last:
            yield feed.encoder.last


class _Slot:
    """A slot of a stream, which the stream releases once there is one."""

    def __init__(self, followers: Slots, access: Access) -> None:
        self._followers = followers
        self._access = access
        self._passed_on = False

    def __enter__(self) -> "_Slot":
        self._followers.acquire(self._access.caller.name)
        return self

    def __exit__(self, *failure: object) -> None:
        if not self._passed_on:
            self._followers.release(self._access.caller.name)

    def stream(self, request: Request, frames: AsyncIterator[str], encoder: Encoder) -> EventStream:
        """Return the stream, which has the slot from here on."""
        self._passed_on = True
        request.state.cleanup.close()  # from here on it counts as a stream, not as a request
        return EventStream(
            frames,
            self._access.thread,
            followers=self._followers,
            caller=self._access.caller.name,
            problem=lambda detail: "".join(frame("", each) for each in encoder.failed(detail, "gateway")),
            headers=encoder.headers,
        )


async def _unless_duplicate(sending: Awaitable[object]) -> bool:
    """Send something; return whether it is new. What is sent again counts once."""
    try:
        await sending
    except HTTPProblem as problem:
        if problem.outcome != "duplicate":
            raise
        return False
    return True


def _place(last: str) -> Place:
    try:
        return Place.parse(last) if last else Place()
    except ValueError as error:
        raise HTTPProblem(422, f"Last-Event-ID: {error}") from None


def _require(access: Access, *scopes: Scope) -> None:
    for scope in scopes:
        if scope not in access.caller.scopes:
            raise HTTPProblem(403, f"this requires the scope {scope}, which {access.caller.name} does not have")


def _written(sent: Sent) -> str:
    return frame("", sent.event, id=sent.id)

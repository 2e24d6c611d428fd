"""Whatever arrives of a reply, in however many attempts: readers end with the text that is recorded."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.activities.llm_calls.reply_streams import WatchedReply
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.deltas import deltas_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.responses import Responses
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.drafts import Draft
from holdfast.core.streams.following import Following
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.streaming.publisher import Publisher
from holdfast.streaming.transport import Attempt, Wanted
from tests.support.chat_streams import chat_streams
from tests.support.examples import examples
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.neutral import BY_NAME
from tests.support.runs import agent_spec
from tests.support.wire_streams import encoded, events_of

ADAPTERS: dict[str, Any] = {"chat": ChatCompletions(), "responses": Responses(), "anthropic": AnthropicMessages()}
APIS = pytest.mark.parametrize("api", ADAPTERS)
THREAD = "t"

ERRORS = {
    "chat": [b'data: {"error": {"message": "overloaded", "code": 529}}\n\n', b"event: error\ndata: {}\n\n"],
    "responses": [b'data: {"type": "error", "code": "server_error", "message": "overloaded"}\n\n'],
    "anthropic": [b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'],
}
NOISE = [b": keep-alive\n\n", b"\n\n", b'data: {"choices": []}\n\n', b"event: ping\n\n", b'data: {"type": "ping"}\n\n']
BODIES = [b"<html>busy</html>", b'{"error": {"message": "overloaded", "code": 529}}', b"", b'{"choices": []}']


def events(draw: Any, api: str) -> list[bytes]:
    """Return the events of a reply's stream."""
    reply = draw(BY_NAME[api].replies)
    return draw(chat_streams(reply)) if api == "chat" else [encoded(event) for event in draw(events_of(api, reply))]


@st.composite
def bodies(draw: st.DrawFn, api: str) -> bytes:
    """Return the body of an attempt: a stream that may be cut, damaged or end with an error, or something else."""
    parts = events(draw, api)
    at, to = draw(st.integers(0, len(parts) - 1)), draw(st.integers(0, len(parts)))
    match draw(st.sampled_from(["whole", "cut", "error", "twice", "moved", "lost", "noise", "other"])):
        case "cut":
            body = b"".join(parts)
            return body[: draw(st.integers(0, len(body)))]
        case "error":
            parts.insert(to, draw(st.sampled_from(ERRORS[api])))
        case "twice":
            parts.insert(to, parts[at])
        case "moved":
            parts.insert(to, parts.pop(at))
        case "lost":
            del parts[at]
        case "noise":
            parts.insert(to, draw(st.sampled_from(NOISE)))
        case "other":
            return draw(st.sampled_from(BODIES))
    return b"".join(parts)


class Reader:
    """A reader of the thread, who looks at the transport now and then."""

    def __init__(self, transport: InMemoryStreams, *, patient: bool) -> None:
        self._transport = transport
        self._patient = patient
        self._following = Following(Cursor(0))
        self._attempts: dict[int, dict[int, Chunk]] = {}
        self.draft = Draft()
        self.ids: list[str] = []

    @property
    def attempt(self) -> int:
        """The attempt that was shown last."""
        return self._following.attempt

    async def look(self) -> None:
        """Read everything again, the latest first, and show what is new."""
        for _, chunk in reversed(await self._transport.read([Wanted(THREAD, -1, 1, 0, 0)])):
            self._attempts.setdefault(chunk.attempt, {})[chunk.chunk] = chunk
            if self._patient:
                continue
            self._show()
        self._show()

    def _show(self) -> None:
        for chunk in self._following.chunks(self._attempts):
            self.draft.add(chunk)
            self.ids.append(chunk.id)


def read(api: str, body: bytes, parsed: Any) -> LLMReply | None:
    """Read a body as `call_llm` does; None if it is no reply."""
    try:
        return read_reply(body, adapter=ADAPTERS[api], spec=agent_spec(), tools={}, step_id="c", parsed=parsed)
    except NotAReply:
        return None


async def attempt_all(
    api: str, attempts: Sequence[bytes], size: int, readers: Sequence[Reader], transport: InMemoryStreams
) -> tuple[AssistantMessage | None, int, bool]:
    """Make attempts until one is a reply: return its message, its number, and whether a piece of it was streamed."""
    publisher = Publisher(transport)
    for number, body in enumerate(attempts, 1):

        async def find(number: int = number) -> Attempt:
            return Attempt(THREAD, 1, 0, number)

        live = publisher.reply(find, NO_SECRETS)
        watched = WatchedReply(ADAPTERS[api], live)
        for at in range(0, len(body), size):
            watched.watch(body[at : at + size])
            await asyncio.sleep(0)
            await publisher.flush()
            await readers[0].look()
        reply = read(api, body, watched.answer(body))
        if reply is None:
            live.stop()
            continue
        began = live.finding is not None
        watched.end(reply.message)
        await publisher.flush()
        last = live.attempt.number if live.attempt else 0
        for reader in readers:
            await reader.look()
        return reply.message, last, began
    return None, 0, False


def written(draft: Draft) -> tuple[str, dict[int, str]]:
    """Return the text, and the arguments of calls that have some."""
    return draft.text, {number: call.arguments for number, call in draft.calls.items() if call.arguments}


@APIS
@settings(max_examples=examples(25, 1_000), deadline=None)
@given(st.data())
def test_the_joined_deltas_of_the_last_attempt_are_the_recorded_reply(api: str, drawn: st.DataObject) -> None:
    """Streams are cut, repeated, reordered, in error or something else, and the call is made again: a reader who was
    there all the time and one who comes late end with the recorded text and arguments, each word once.
    """
    attempts = [*drawn.draw(st.lists(bodies(api), max_size=3)), b"".join(events(drawn.draw, api))]
    size = drawn.draw(st.sampled_from([7, 64, 512]))
    transport = InMemoryStreams()
    early, late = Reader(transport, patient=False), Reader(transport, patient=True)
    message, last, began = asyncio.run(attempt_all(api, attempts, size, (early, late), transport))
    expected = Draft()
    for number, delta in enumerate(deltas_of(message), 1):
        if delta.kind != "reasoning":
            expected.add(Chunk(position=1, attempt=1, chunk=number, **delta._asdict()))
    assert len(set(early.ids)) == len(early.ids)
    for reader in (early, late):
        if began and message is not None and any(written(expected)):
            assert reader.attempt == last
            assert written(reader.draft) == written(expected)

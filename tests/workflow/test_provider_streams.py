"""Replies of the three APIs are seen while they are written, also if the provider pauses them or breaks off."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from holdfast import Agent, Budget, Catalog, Secrets, tool
from holdfast.activities.llm_calls.reply_streams import ReplyStreams
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.responses import Responses
from holdfast.core.log.events import LLMCallLost, LLMReplied
from holdfast.core.streams.chunks import Chunk
from holdfast.endpoints.endpoints import open_endpoints
from holdfast.streaming.hub import Hub
from holdfast.streaming.publisher import Publisher
from holdfast.testing import say
from tests.support.fake_llms import Answer, FakeLLMs
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import Rig, StartRig, check_thread, events_of
from tests.support.streamed import Seen, drafts, read_all, streamed

LLMS = {"anthropic_messages": "anthropic/claude", "responses": "openai/gpt", "chat_completions": "chat/small"}
APIS = pytest.mark.parametrize("api", LLMS)
FIRST, *OTHERS = LLMS
AN_API = pytest.mark.parametrize("api", [FIRST, *(pytest.param(api, marks=pytest.mark.extended) for api in OTHERS)])
WORDS = "Every word of this reply comes once."


@tool(effect="read")
def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


class Written(Seen):
    """What readers have seen of a reply, without its reasoning."""

    def see(self, each: Any) -> None:
        """Take what a reader sees."""
        if not isinstance(each, Chunk) or each.kind != "reasoning":
            super().see(each)


@asynccontextmanager
async def working(rig: StartRig, llms: FakeLLMs, *order: str, **options: Any) -> AsyncIterator[tuple[Rig, Hub]]:
    """Run a worker that streams from the fake endpoints, and read its streams."""
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look], llm=order)])
    settings = llms.settings()
    async with (
        open_endpoints(settings, dev=False, say=print) as endpoints,
        streamed(rig, catalog, lambda _: say("no"), llm=endpoints, default_llm="small", **options) as (worker, hub),
    ):
        yield worker, hub


def kinds_of(items: list[Any]) -> set[str]:
    """Return the kinds of the chunks that a reader saw."""
    return {each.kind for each in items if isinstance(each, Chunk)}


@AN_API
async def test_what_a_reader_joins_is_what_is_recorded(rig: StartRig, api: str) -> None:
    """Text, reasoning and arguments arrive before the reply's event, in one attempt, and joined they are the reply."""
    seen, arguments = Written(), json.dumps({"at": 1})
    first = Answer(text="I look. ", call=("look", {"at": 1}), held=lambda: seen.wait(len("I look. ") + len(arguments)))
    last = Answer(text=WORDS, held=lambda: seen.wait(len(WORDS)))
    with FakeLLMs(**{api: [first, last]}) as llms:
        async with working(rig, llms, LLMS[api]) as (worker, hub):
            run = await worker.start()
            items = await read_all(worker, hub, run.id, seen=seen)
            replied = [each for each in await check_thread(worker.client, run) if isinstance(each, LLMReplied)]
        assert all(received.json["stream"] for received in llms.received)
    assert drafts(items) == {each.position: each.message.text for each in replied if each.message}
    written = [each for each in items if isinstance(each, Chunk) and each.kind == "arguments"]
    assert {(each.call, each.tool) for each in written} == {(0, "look")}
    assert replied[0].message
    assert "".join(each.text for each in written) == replied[0].message.tool_calls[0].arguments
    assert "superseded" not in kinds_of(items)
    assert ("reasoning" in kinds_of(items)) is (api != "chat_completions")
    assert replied[0].usage.prompt_tokens == 100
    assert replied[0].usage.completion_tokens == 10


@pytest.mark.extended
async def test_a_paused_turn_is_streamed_as_one_attempt(rig: StartRig) -> None:
    """Each of its requests asks for a stream; their pieces have one order, and calls one numbering."""
    seen = Written()
    texts = ["I search. ", "Once more. ", WORDS]
    answers = [
        Answer(text=texts[0], call=("look", {"at": 1}), pause=True),
        Answer(text=texts[1], pause=True),
        Answer(text=texts[2], call=("look", {"at": 2}), held=lambda: seen.wait(len("".join(texts)) + 2 * 9)),
        Answer(text="done"),
    ]
    with FakeLLMs(anthropic_messages=answers) as llms:
        async with working(rig, llms, "anthropic/claude") as (worker, hub):
            run = await worker.start()
            items = await read_all(worker, hub, run.id, seen=seen)
            replied = [each for each in await check_thread(worker.client, run) if isinstance(each, LLMReplied)]
        assert [received.json["stream"] for received in llms.received] == [True] * 4
    assert drafts(items)[replied[0].position] == "".join(texts)
    chunks = [each for each in items if isinstance(each, Chunk) and each.position == replied[0].position]
    assert [each.chunk for each in chunks] == list(range(1, len(chunks) + 1))
    assert {each.attempt for each in chunks} == {1}
    written = ["".join(each.text for each in chunks if each.call == number) for number in (0, 1)]
    assert written == ['{"at": 1}', '{"at": 2}']
    assert replied[0].usage.prompt_tokens == 300


@pytest.mark.extended
@pytest.mark.parametrize("budget", [None, Budget(tokens=100_000)])
@pytest.mark.parametrize("error", [True, False])
async def test_an_llm_that_breaks_off_is_superseded_by_the_next_one(
    rig: StartRig, budget: Budget | None, error: bool
) -> None:
    """The first LLM of an order fails after it has begun to write, with an error in its stream or without: a reader
    drops its words, the next LLM answers, the log says why, and the broken attempt is charged.
    """
    seen = Written()
    broken = Answer(text="Never mind these words.", breaks=7, error=error, held=lambda: seen.wait(5))
    with FakeLLMs(
        anthropic_messages=[broken], responses=[Answer(text=WORDS, held=lambda: seen.wait(len(WORDS)))]
    ) as llms:
        async with working(rig, llms, "anthropic/claude", "openai/gpt") as (worker, hub):
            run = await (worker.start(budget=budget) if budget else worker.start())
            items = await read_all(worker, hub, run.id, seen=seen)
            events = await check_thread(worker.client, run)
        assert len(llms.received) == 2
    (replied,) = [each for each in events if isinstance(each, LLMReplied)]
    assert drafts(items) == {replied.position: WORDS}
    texts = [each.text for each in items if isinstance(each, Chunk) and each.kind in ("text", "superseded")]
    assert "".join(texts[: texts.index("")]).startswith("Never")
    assert replied.endpoint == "openai"
    assert [each.llm for each in replied.passed_over] == ["anthropic/claude"]
    why = replied.passed_over[0].message
    assert "overloaded" in why if error else why
    lost = [each for each in events if isinstance(each, LLMCallLost)]
    assert len(lost) == (1 if budget else 0)
    assert all(each.request_tokens for each in lost)


@pytest.mark.extended
async def test_an_api_that_cannot_stream_is_asked_once(rig: StartRig) -> None:
    """The same attempt repeats the request without `stream`, and later requests do not ask."""

    def refuse(received: Any) -> Answer:
        if received.json.get("stream"):
            return Answer(status=400, message="Unknown parameter: 'stream'")
        return answers.pop(0)

    for api, llm in LLMS.items():
        answers = [Answer(call=("look", {"at": 1})), Answer(text=WORDS)]
        with FakeLLMs(**{api: refuse}) as llms:
            async with working(rig, llms, llm) as (worker, _):
                run = await worker.start()
                assert (await run.result())["result"] == WORDS
                assert all(each.attempt == 1 for each in await events_of(run) if isinstance(each, LLMReplied))
            assert [each.json.get("stream") for each in llms.of(api)] == [True, None, None]


async def test_an_address_whose_one_api_cannot_stream_is_asked_for_streams_of_another() -> None:
    """A server may have all three APIs, and stream one of them."""
    client = openai.AsyncOpenAI(api_key="none", base_url="http://localhost:1/v1")
    streams = ReplyStreams(Publisher(InMemoryStreams()), Secrets({}))
    streams.disable(Responses(), client, "it answers 400")
    assert streams.asking(b'{"input":[]}', Responses(), client) == b'{"input":[]}'
    assert b'"stream":true' in streams.asking(b'{"messages":[]}', ChatCompletions(), client)


@pytest.mark.extended
@APIS
async def test_a_stream_that_nobody_asked_for_is_read(rig: StartRig, api: str) -> None:
    """Some proxies always stream."""
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look], llm=LLMS[api])])
    with FakeLLMs(**{api: [Answer(call=("look", {"at": 1}), streams=True), Answer(text=WORDS, streams=True)]}) as llms:
        settings = llms.settings()
        async with (
            open_endpoints(settings, dev=False, say=print) as endpoints,
            rig(catalog, lambda _: say("no"), llm=endpoints, default_llm="small") as worker,
        ):
            run = await worker.start()
            assert (await run.result())["result"] == WORDS
            replied = [each for each in await check_thread(worker.client, run) if isinstance(each, LLMReplied)]
    assert [each.usage.prompt_tokens for each in replied] == [100, 100]


@AN_API
async def test_secrets_are_redacted_across_the_borders_of_pieces(rig: StartRig, api: str) -> None:
    """A secret that the LLM repeats reaches no reader, however the provider cuts it."""
    secrets, shown, seen = Secrets({"KEY": "correct horse battery staple"}), "It is [secret KEY] now.", Written()
    answer = Answer(text="It is correct horse battery staple now.", held=lambda: seen.wait(len(shown)))
    with FakeLLMs(**{api: [answer]}) as llms:
        async with working(rig, llms, LLMS[api], secrets=secrets) as (worker, hub):
            run = await worker.start()
            items = await read_all(worker, hub, run.id, seen=seen)
    assert drafts(items).popitem()[1] == shown

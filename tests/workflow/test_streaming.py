"""Replies are seen while they are written, and nothing of a run depends on it."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast import Agent, Budget, Catalog, LLMCall, LLMResult, Middleware, ProceedLLM, Secrets, tool
from holdfast.core.log.events import LLMReplied
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.streaming.transport import Attempt
from holdfast.testing import Conversation, Reply, call, fail, raw, say, steps, together
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import PATIENCE, StartRig, events_of
from tests.support.streamed import Seen, drafts, id_of, read_all, stream_of, streamed

STREAM = (("Content-Type", "text/event-stream"),)
WORDS = "Every word of this reply comes once."


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


def catalog(**agent: Any) -> Catalog:
    """Return an agent that looks."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look], **agent)])


async def history_of(run: Any) -> list[str]:
    """Return the types of the events in a run's history, without its workflow tasks, whose number depends on time."""
    await run.result()
    names = [EventType.Name(event.event_type) for event in (await run.fetch_history()).events]
    return [name for name in names if "WORKFLOW_TASK" not in name]


async def test_what_a_reader_joins_is_the_recorded_text_and_history_is_the_same(rig: StartRig) -> None:
    """Each reply's chunks precede its event, joined they are its text, and streaming adds no event to history."""
    replies = [together(call("look", at="a"), call("look", at="b"), text="I look."), say(WORDS)]
    seen, kinds = Seen(), []
    script = steps(replies)
    async with streamed(rig, catalog(), steps([seen.reply(each) for each in replies])) as (worker, hub):
        for reader in (hub, None):
            run = await worker.start()
            items = await read_all(worker, reader, run.id, seen=seen)
            kinds.append(await history_of(run))
            worker.llm.script = script
            if reader is None:
                assert not any(isinstance(each, Chunk) for each in items)
                continue
            texts = {
                each.position: each.message.text
                for each in await events_of(run)
                if isinstance(each, LLMReplied) and each.message
            }
            assert drafts(items) == texts
            written = [each for each in items if isinstance(each, Chunk) and each.kind == "arguments"]
            assert {(each.call, each.tool) for each in written} == {(0, "look"), (1, "look")}
            assert "".join(each.text for each in written if each.call == 1) == '{"at": "b"}'
            cursors = [Cursor.parse(id_of(each)) for each in items]
            order = [(each.position, each.attempt or 10**9, each.chunk) for each in cursors]
            assert sorted(order) == order
        assert all(request.json()["stream"] for request in worker.llm.requests)
    async with rig(catalog(), script) as worker:
        run = await worker.start()
        await run.result()
        kinds.append(await history_of(run))
        assert "stream" not in worker.llm.requests[0].json(), "nobody can read it"
    assert kinds[0] == kinds[1] == kinds[2]


async def test_a_word_is_seen_before_the_next_is_written_and_a_cut_reader_resumes(rig: StartRig) -> None:
    """The server writes a word only when a reader has seen the one before; a reader that resumes at any id gets the
    rest; one that leaves cancels nothing.
    """
    seen = threading.Semaphore(0)
    held = replace(say(WORDS), pause=lambda number: seen.acquire(timeout=PATIENCE))
    async with streamed(rig, catalog(), lambda conversation: held) as (worker, hub):
        run = await worker.start()
        items: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            seen.release()
            async for each in stream_of(worker, hub, run.id):
                items.append(each)
                if isinstance(each, Chunk):
                    seen.release()
                    if len(drafts([*items, {"type": "llm_replied", "position": 0}])[0]) > 10:
                        break
        seen.release(100)
        rest = await read_all(worker, hub, run.id, id_of(items[-1]))
        assert drafts([*items, *rest]).popitem()[1] == WORDS
        everything = [id_of(each) for each in (*items, *rest)]
        assert len(set(everything)) == len(everything)
        assert [each["position"] for each in (*items, *rest) if not isinstance(each, Chunk)] == [
            event.position for event in await events_of(run)
        ]


async def test_a_lost_attempt_is_superseded(rig: StartRig) -> None:
    """A stream that breaks in the middle is no reply: readers are told to drop its words, and see each word once."""
    cut = b'data: {"choices": [{"index": 0, "delta": {"content": "Every wor"}}]}\n\n'
    broken = replace(raw(cut), headers=STREAM)
    tried: list[int] = []
    seen = Seen()

    def script(conversation: Conversation) -> Reply:
        tried.append(1)
        return broken if len(tried) == 1 else seen.reply(say(WORDS))

    async with streamed(rig, catalog(), script) as (worker, hub):
        run = await worker.start()
        items = await read_all(worker, hub, run.id, seen=seen)
        assert drafts(items).popitem()[1] == WORDS
        superseded = [each.attempt for each in items if isinstance(each, Chunk) and each.kind == "superseded"]
        assert superseded == [2]
        (reply,) = [each for each in await events_of(run) if isinstance(each, LLMReplied)]
        assert reply.attempt == 2
        assert reply.message is not None
        assert reply.message.text == WORDS


class Unusable(InMemoryStreams):
    """A transport that never answers."""

    async def claim(self, wanted: Attempt) -> Attempt:
        """Never return."""
        await asyncio.Event().wait()
        return wanted


@pytest.mark.extended
async def test_an_attempt_that_fails_after_it_began_may_have_cost_something(rig: StartRig) -> None:
    """An error in place of a reply is free; one after the provider has begun to write is not."""
    error = b'data: {"error": {"message": "overloaded"}}\n\n'
    thought = b'data: {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}}]}\n\n'
    replies = [say(WORDS), *(replace(raw(body), headers=STREAM) for body in (thought + error, error))]
    agents = catalog(budget=Budget(tokens=100_000))
    async with streamed(rig, agents, lambda _: replies.pop()) as (worker, _):
        run = await worker.start()
        await run.result()
        outages = [getattr(each, "outage", None) for each in await events_of(run)]
    assert sum(each.costly or 0 for each in outages if each) == 1


@pytest.mark.extended
async def test_a_run_does_not_wait_for_a_transport_that_hangs(rig: StartRig) -> None:
    """The reply is recorded and the run ends while the transport still hangs."""
    async with streamed(rig, catalog(), steps([call("look", at="a"), say(WORDS)]), transport=Unusable()) as (worker, _):
        run = await worker.start()
        async with asyncio.timeout(PATIENCE):
            await run.result()
        replies = [each for each in await events_of(run) if isinstance(each, LLMReplied) and each.message]
        assert [each.message.text for each in replies if each.message][-1] == WORDS


@pytest.mark.extended
async def test_an_endpoint_that_cannot_stream_is_asked_once(rig: StartRig) -> None:
    """The same attempt repeats the request without `stream`, and later requests do not ask."""

    def script(conversation: Conversation) -> Reply:
        if conversation.request.get("stream"):
            return fail(400, "Unsupported parameter: 'stream'")
        return call("look", at="a") if not conversation.replies else say(WORDS)

    async with streamed(rig, catalog(), script) as (worker, _):
        run = await worker.start()
        await run.result()
        assert [request.json().get("stream") for request in worker.llm.requests] == [True, None, None]
        assert all(each.attempt == 1 for each in await events_of(run) if isinstance(each, LLMReplied))


async def test_secrets_are_redacted_across_the_borders_of_chunks(rig: StartRig) -> None:
    """A secret that the LLM repeats reaches no reader, however it is cut."""
    secrets, shown, seen = Secrets({"KEY": "correct horse battery staple"}), "It is [secret KEY].", Seen()
    pause = seen.reply(say(shown)).pause
    assert pause is not None
    # The secret has two words more than the text in its place.
    reply = replace(say("It is correct horse battery staple."), pause=lambda number: pause(number - 2))
    async with streamed(rig, catalog(), lambda conversation: reply, secrets=secrets) as (worker, hub):
        run = await worker.start()
        items = await read_all(worker, hub, run.id, seen=seen)
        assert drafts(items).popitem()[1] == shown


class Guard(Middleware):
    """Replaces each reply."""

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Withhold the reply's text."""
        result = await proceed()
        assert result.message is not None
        return replace(result, message=result.message.model_copy(update={"content": "withheld"}))


class Watcher(Middleware):
    """Only looks at replies."""

    streams = True

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Return the reply as it is."""
        return await proceed()


async def test_middleware_that_may_withhold_a_reply_is_not_bypassed(rig: StartRig) -> None:
    """With middleware around LLM calls, replies are streamed only if it says that it leaves them as they are."""
    for layer, streams in ((Guard(), False), (Watcher(), True)):
        agents = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=())], middleware=[layer])
        seen = Seen()
        async with streamed(rig, agents, steps([seen.reply(say(WORDS))])) as (worker, hub):
            run = await worker.start()
            items = await read_all(worker, hub, run.id, seen=seen)
            assert any(isinstance(each, Chunk) for each in items) is streams
            assert drafts(items).popitem()[1] == (WORDS if streams else "")

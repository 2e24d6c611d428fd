"""Endpoints that violate the API, on a real server: they send no reply, or do not count its tokens."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.reading.runs import Retrying, retrying
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.run.rules.compaction import INSTRUCTION
from holdfast.core.tools.secrets import Secrets
from holdfast.testing import Conversation, Reply, call, raw, say
from tests.support.rig import Rig, StartRig, check_thread, eventually

CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.")])

SECRET = "sk-0123456789abcdef"


def retryable_success(body: Any) -> Reply:
    """Return a response with status 200 and that body, to be retried at once."""
    return replace(raw(body), headers=(("retry-after-ms", "20"),))


def half_completion(conversation: Conversation) -> Reply:
    """Return the first half of a completion."""
    message = {"role": "assistant", "content": f"Reply {conversation.replies + 1}."}
    return retryable_success(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()[:40])


async def retried(r: Rig, thread: str, attempts: int) -> Retrying:
    """Wait until Temporal has retried the LLM call this many times, and return the retry."""

    async def ask() -> list[Retrying]:
        return retrying(await r.client.get_workflow_handle(thread).describe())

    (found,) = await eventually(ask, lambda found: bool(found) and found[0].attempt > attempts and found[0].reason)
    assert isinstance(found, Retrying)
    return found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>\n  <h1>Bad\x1b gateway</h1></html>", "no reply of this API: <html> <h1>Bad"),
        (b'{"id": "1", "choices": [{"mess', 'no reply of this API: {"id": "1"'),
        (b"null", "no reply of this API: null"),
        ({"id": "1"}, "no reply of this API"),
        ({"error": {"message": "overloaded", "code": 529}}, "the provider reports an error: overloaded"),
        (b'data: {"choices": []}\n\ndata: [DONE]\n\n', "the stream ended before the reply did"),
    ],
)
async def test_a_success_without_a_reply_is_an_outage(rig: StartRig, body: Any, words: str) -> None:
    """Temporal retries it, the event names it among the failed attempts, and the LLM gets the same request again."""
    bodies = [body, body]
    async with rig(CATALOG, lambda _: retryable_success(bodies.pop()) if bodies else say("at last")) as r:
        run = await r.start()
        assert (await run.result())["result"] == "at last"
        events = await check_thread(r.client, run)
        (replied,) = [event for event in events if event.type == "llm_replied"]
        assert replied.attempt == 3
        assert replied.outage
        assert [each.cause for each in replied.outage.last] == ["NotAReply"] * 2
        assert words in replied.outage.last[0].message
        assert f"{r.llm.base_url}/: 200, application/json" in replied.outage.last[0].message
        assert len({request.body for request in r.llm.requests}) == 1


@pytest.mark.slow
async def test_an_endpoint_that_sends_garbage_for_long_delays_the_run_alone(rig: StartRig) -> None:
    """Thirty failed attempts add nothing to history, end and block nothing, and the run resumes after the recovery."""
    async with rig(CATALOG, half_completion) as r:
        run = await r.start()
        early = await retried(r, run.id, 2)
        assert "NotAReply" not in early.reason
        assert '{"choices": [{"message"' in early.reason
        length = (await run.describe()).history_length
        state = await run.query("state")
        await retried(r, run.id, 30)
        assert (await run.describe()).history_length == length
        assert (await run.query("state"))["events"] == state["events"]
        assert state["status"] == "running"
        r.llm.script = lambda _: say("back again")
        assert (await run.result())["result"] == "back again"
        (replied,) = [event for event in await check_thread(r.client, run) if event.type == "llm_replied"]
        assert replied.outage
        assert replied.outage.failed >= 30
        assert len(replied.outage.last) == 10


async def test_the_shown_part_of_a_body_is_short_and_has_no_secret(rig: StartRig) -> None:
    """A megabyte with the key in it is redacted before it is cut, so that no cut leaves a part of the key."""
    bodies = [b"." * start + SECRET.encode() + b" " + b"x" * 1_000_000 for start in range(190, 230, 4)]
    secrets = Secrets({}, more=[("OPENAI_API_KEY", SECRET)])
    async with rig(CATALOG, lambda _: retryable_success(bodies.pop()) if bodies else say("done"), secrets=secrets) as r:
        run = await r.start()
        await run.result()
        (replied,) = [event for event in await check_thread(r.client, run) if event.type == "llm_replied"]
        assert replied.outage
        assert len(replied.outage.last) == 10
        for failure in replied.outage.last:
            assert 290 < len(failure.message) <= 300
            assert "sk" not in failure.message


# Tokens that the endpoint does not count.


@tool(effect="read")
def look(at: int) -> str:
    """Look at something, at length."""
    return f"[{at}] " + "so it is, " * 40


def without_usage(reply: Reply) -> Reply:
    """Return the same reply, from an endpoint that reports no usage."""
    tool_calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in reply.calls]
    return raw({"choices": [{"message": {"content": reply.text, "tool_calls": tool_calls}}]})


def looking(conversation: Conversation) -> Reply:
    """Look at ten things; a summary gives their number."""
    seen = [int(number) for number in re.findall(r"\[(\d+)\]", json.dumps(conversation.messages))]
    if conversation.last_user_message == INSTRUCTION:
        return without_usage(say(f"[{max(seen)}]"))
    looked = max(seen, default=0)
    return without_usage(call("look", at=looked + 1) if looked < 10 else say(f"looked at {looked}"))


def observer(compaction_tokens: int) -> Catalog:
    """Return an agent that may look."""
    limits = Limits(compaction_tokens=compaction_tokens)
    agent = Agent(
        name="clerk", instructions="Work.", policy=Policy(rules=(allow("look"),)), limits=limits, tools=[look]
    )
    return Catalog(agents=[agent])


@pytest.mark.extended
async def test_a_transcript_is_compacted_without_the_endpoints_count(rig: StartRig) -> None:
    """If the endpoint reports no `usage`, tokens are estimated, and the context is compacted in time."""
    async with rig(observer(800), looking) as r:
        run = await r.start()
        assert (await run.result())["result"] == "looked at 10"
        events = await check_thread(r.client, run)
        assert sum(event.type == "context_compacted" for event in events) >= 2
        assert max(len(request.body) for request in r.llm.requests) < 2 * 4 * 800
        replied = [event for event in events if event.type == "llm_replied"]
        bodies = [request.body for request in r.llm.requests if INSTRUCTION[:50].encode() not in request.body]
        assert [event.usage.prompt_tokens for event in replied] == [-(-len(body) // 4) for body in bodies]
        assert all(event.usage.completion_tokens > 0 for event in replied)


@pytest.mark.extended
async def test_an_image_is_not_estimated_by_its_bytes(rig: StartRig) -> None:
    """An image of half a megabyte does not trigger a compaction if the endpoint does not count."""
    image = ImageBlock(media_type="image/png", data="iVBO" * 125_000)
    async with rig(observer(10_000), looking) as r:
        run = await r.start((TextBlock(text="Compare with this."), image))
        assert (await run.result())["result"] == "looked at 10"
        events = await check_thread(r.client, run)
        assert not [event for event in events if event.type == "context_compacted"]

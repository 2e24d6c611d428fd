"""Agents at the three APIs, and fallback orders, on a real server with fake endpoints."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Agent, Budget, Catalog, tool
from holdfast.core.llm.options import LLMOptions
from holdfast.core.log.events import AgentEvent, LLMReplied
from holdfast.endpoints.endpoints import open_endpoints
from holdfast.testing import say
from tests.support.fake_llms import Answer, FakeLLMs
from tests.support.rig import Rig, StartRig, check_thread


@tool(effect="read")
def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


def catalog_of(*llms: str, **more: Any) -> Catalog:
    """Return a catalog of one agent with these LLMs in order."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look], llm=llms, **more)])


@asynccontextmanager
async def working(rig: StartRig, llms: FakeLLMs, catalog: Catalog, **more: str) -> AsyncIterator[Rig]:
    """Run a worker whose endpoints are the fake ones, for a block."""
    settings = llms.settings(**more)
    async with (
        open_endpoints(settings, dev=False, say=print) as endpoints,
        rig(catalog, lambda _: say("not asked"), llm=endpoints, default_llm=settings.default_llm) as r,
    ):
        yield r


def replies_in(events: list[AgentEvent]) -> list[LLMReplied]:
    """Return the LLM's replies."""
    return [event for event in events if isinstance(event, LLMReplied)]


async def test_a_thread_continues_at_the_next_provider_when_one_fails(rig: StartRig) -> None:
    """A thread crosses three APIs in its middle. Each reply names its endpoint and the LLMs passed over, with why. What
    one LLM sealed goes to no other, and each request begins with the one before at the same LLM.
    """
    down = Answer(status=529, message="overloaded")
    with FakeLLMs(
        anthropic_messages=[Answer(call=("look", {"at": 1})), Answer(call=("look", {"at": 2})), down, down],
        responses=[Answer(call=("look", {"at": 3})), Answer(status=401, message="wrong key sk-openai-key-0000")],
        chat_completions=[Answer(call=("look", {"at": 4})), Answer(text="done")],
    ) as llms:
        order = ("anthropic/claude", "openai/gpt", "chat/small")
        async with working(rig, llms, catalog_of(*order)) as r:
            run = await r.start()
            assert (await run.result())["result"] == "done"
            events = await check_thread(r.client, run)
    replied = replies_in(events)
    assert [event.endpoint for event in replied] == ["anthropic", "anthropic", "openai", "chat", "chat"]
    assert [[each.llm for each in event.passed_over] for event in replied] == [
        [],
        [],
        ["anthropic/claude"],
        ["anthropic/claude", "openai/gpt"],
        ["anthropic/claude", "openai/gpt"],
    ]
    assert replied[2].passed_over[0].cause == "InternalServerError"
    assert "529: overloaded" in replied[2].passed_over[0].message
    assert replied[3].passed_over[1].rejected
    assert replied[2].outage
    assert [failure.llm for failure in replied[2].outage.last] == ["anthropic/claude"] * 2
    assert replied[0].usage.cached_tokens == 50
    for received in llms.of("responses"):
        assert b"signed-by" not in received.body
    for received in llms.of("chat_completions"):
        assert b"signed-by" not in received.body
        assert b"sealed-by" not in received.body
        assert all(f"seen {at}".encode() in received.body for at in (1, 2, 3))
    _, second, *_ = llms.of("anthropic_messages")
    assert b"signed-by-claude-1" in second.body
    assert second.body.startswith(llms.of("anthropic_messages")[0].body.removesuffix(b"]}"))
    first, later = llms.of("chat_completions")
    assert later.body.startswith(first.body.removesuffix(b"]}"))
    recorded = json.dumps([event.model_dump(mode="json") for event in events])
    assert "sk-ant-key" not in recorded


async def test_each_endpoint_gets_its_own_key(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Messages API gets its key and version in its headers; no endpoint gets a key or header of another."""
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Inside: hunter22\nX-Api-Key: hunter22")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    down = Answer(status=403, message="no")
    with FakeLLMs(anthropic_messages=[down], responses=[down], chat_completions=[down, Answer(text="done")]) as llms:
        named = {"router": {"api": "chat", "base_url": f"{llms.root}/v1", "key": "ROUTER"}}
        catalog = catalog_of("anthropic/claude", "openai/gpt", "router/some/llm", "chat/small")
        more = {"HOLDFAST_LLM_ENDPOINTS": json.dumps(named), "ROUTER": "router-key-2222"}
        async with working(rig, llms, catalog, **more) as r:
            run = await r.start()
            assert (await run.result())["result"] == "done"
            (replied,) = replies_in(await check_thread(r.client, run))
    messages, gpt, router, small = llms.received
    assert len(replied.passed_over) == 3
    assert messages.headers["x-api-key"] == "sk-ant-key-11111"
    assert messages.headers["anthropic-version"]
    assert "authorization" not in messages.headers
    assert gpt.headers["authorization"] == small.headers["authorization"] == "Bearer sk-openai-key-0000"
    assert router.headers["authorization"] == "Bearer router-key-2222"
    assert router.json["model"] == "some/llm"
    for foreign in (messages, router):
        assert "hunter22" not in str(foreign.headers)
        assert "org-1" not in str(foreign.headers)


@pytest.mark.extended
async def test_a_request_that_is_wrong_itself_falls_through_to_no_other(rig: StartRig) -> None:
    """A malformed request blocks the run, as with one LLM; so do keys that every provider rejects, each named."""
    with FakeLLMs(
        anthropic_messages=[Answer(status=400, message="bad field"), Answer(status=401, message="bad key")],
        chat_completions=[Answer(status=403, message="no entry")],
    ) as llms:
        async with working(rig, llms, catalog_of("anthropic/claude", "chat/small")) as r:
            run = await r.start()
            blocked = await _blocked(run)
            assert blocked == "400: bad field"
            assert len(llms.received) == 1
            again = await r.start()
            blocked = await _blocked(again)
            assert "anthropic/claude: 401: bad key" in blocked
            assert "chat/small: 403: no entry" in blocked


async def _blocked(run: Any) -> str:
    from tests.support.rig import status_of

    state = await status_of(run, "blocked")
    return str(state["blocked"]["message"])


@pytest.mark.extended
async def test_a_paused_turn_is_continued_as_one_reply(rig: StartRig) -> None:
    """If the Messages API pauses a turn, it gets its blocks back, and the log has one reply with the tokens of all
    requests.
    """
    with FakeLLMs(anthropic_messages=[Answer(pause=True), Answer(pause=True), Answer(text="found")]) as llms:
        async with working(rig, llms, catalog_of("anthropic/claude")) as r:
            run = await r.start()
            assert (await run.result())["result"] == "found"
            (replied,) = replies_in(await check_thread(r.client, run))
    assert replied.usage.prompt_tokens == 300
    assert replied.usage.completion_tokens == 30
    first, second, third = (received.json["messages"] for received in llms.received)
    assert second[: len(first)] == first
    assert [block["type"] for block in second[-1]["content"]] == ["thinking", "server_tool_use"]
    assert [block["type"] for block in third[-1]["content"]] == ["thinking", "server_tool_use"] * 2


@pytest.mark.extended
async def test_a_short_rate_limit_is_waited_for_and_a_long_one_is_not(rig: StartRig) -> None:
    """An LLM that asks for a moment is called again; one that asks for an hour is passed over, in later runs too."""
    moment = Answer(status=429, message="slow down", headers={"retry-after-ms": "10"})
    hour = Answer(status=429, message="slow down", headers={"retry-after": "3600"})
    with FakeLLMs(
        anthropic_messages=[moment, Answer(text="one"), hour],
        chat_completions=[Answer(text="two"), Answer(text="three")],
    ) as llms:
        async with working(rig, llms, catalog_of("anthropic/claude", "small")) as r:
            runs = [await r.start()]
            await runs[0].result()
            runs += [await r.start()]
            await runs[1].result()
            runs += [run := await r.start()]
            results = [(await each.result())["result"] for each in runs]
            (replied,) = replies_in(await check_thread(r.client, run))
    assert results == ["one", "two", "three"]
    assert replied.endpoint == "chat"
    assert [each.llm for each in replied.passed_over] == ["anthropic/claude"]
    assert replied.outage is None


@pytest.mark.extended
async def test_options_have_one_name_at_each_api(rig: StartRig) -> None:
    """Temperature, effort, length and parallel calls become fields of each API; other fields go to one endpoint."""
    options = LLMOptions(
        temperature=0.5,
        effort="low",
        max_tokens=500,
        parallel_calls=False,
        strict=True,
        fields={"anthropic": {"metadata": {"user_id": "u"}}},
    )
    down = Answer(status=401)
    with FakeLLMs(anthropic_messages=[down], responses=[down], chat_completions=[Answer(text="done")]) as llms:
        order = ("anthropic/claude", "openai/gpt", "chat/small")
        async with working(rig, llms, catalog_of(*order, llm_options=options)) as r:
            run = await r.start()
            await run.result()
    messages, gpt, small = (received.json for received in llms.received)
    assert messages["output_config"] == {"effort": "low"}
    assert messages["max_tokens"] == gpt["max_output_tokens"] == small["max_tokens"] == 500
    assert messages["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert messages["metadata"] == {"user_id": "u"}
    assert messages["tools"][0]["strict"]
    assert gpt["reasoning"] == {"effort": "low"}
    assert gpt["store"] is False
    assert gpt["include"] == ["reasoning.encrypted_content"]
    assert gpt["parallel_tool_calls"] is small["parallel_tool_calls"] is False
    assert gpt["tools"][0]["strict"]
    assert small["reasoning_effort"] == "low"
    assert small["tools"][0]["function"]["strict"]
    assert gpt["temperature"] == small["temperature"] == 0.5
    assert "temperature" not in messages


@pytest.mark.extended
async def test_a_lost_attempt_of_a_run_with_a_budget_is_charged_before_the_next_llm(rig: StartRig) -> None:
    """A connection that breaks off may have cost something: the run charges it, and the next LLM takes over."""
    with FakeLLMs(anthropic_messages=[Answer(hang=True)], chat_completions=[Answer(text="done")]) as llms:
        async with working(rig, llms, catalog_of("anthropic/claude", "chat/small")) as r:
            run = await r.start(budget=Budget(tokens=100_000))
            assert (await run.result())["result"] == "done"
            events = await check_thread(r.client, run)
    assert [event.type for event in events].count("llm_call_lost") == 1
    (replied,) = replies_in(events)
    assert replied.endpoint == "chat"
    assert [each.llm for each in replied.passed_over] == ["anthropic/claude"]
    assert len(llms.received) == 2

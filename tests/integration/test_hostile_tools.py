"""Tools that misbehave on a real server: each call has one result, and the worker survives."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity

from holdfast import Agent, Cannot, Catalog, Effect, Found, Policy, allow, tool
from holdfast.core.log.events import ReconcileRequested, ToolCallFinished
from holdfast.core.tools.decorator import Labelled, Tool
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, check_thread, die, status_of


class Spiteful(Exception):
    """An exception whose `str` raises."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Secretive:
    """A value whose `str` raises."""

    def __str__(self) -> str:
        sys.exit("no")


def exits() -> None:
    """Raise SystemExit, as scripts do."""
    sys.exit(3)


def interrupts() -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


def is_spiteful() -> None:
    """Raise an exception that cannot be shown."""
    raise Spiteful


def runs_dry() -> None:
    """Exhaust an iterator."""
    next(iter(()))


def cancels() -> None:
    """Raise the exception that asyncio raises in a cancelled task."""
    raise asyncio.CancelledError


def group() -> None:
    """Raise an exception group, as a task group does."""
    raise BaseExceptionGroup("all", [SystemExit(1)])


def catalog(*tools: Tool) -> Catalog:
    """Return a catalog with one agent whose policy allows everything."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=tools)])


async def outcomes(rig: StartRig, *tools: Tool) -> list[tuple[str, str]]:
    """Return status and content of each call in a run that calls the tools once, and then another tool.

    If a person is asked about a call, the content is the question's text; they abandon the call.
    """

    @tool(effect="read")
    def ping() -> str:
        """Show that the worker survived."""
        return "pong"

    script = steps([*(call(each.spec.name) for each in tools), call("ping"), say("done")])
    async with rig(catalog(*tools, ping), script) as r:
        run = await r.start()
        while (state := await status_of(run, "waiting_approval", "completed"))["status"] != "completed":
            for request in state["pending"]:
                await run.signal("reconcile", {"decision": "abandon", "request": request["request"], "by": "alice"})
        events = await check_thread(r.client, run)
    asked = {each.request.number: each.request.why for each in events if isinstance(each, ReconcileRequested)}
    ends = [each for each in events if isinstance(each, ToolCallFinished)]
    found: list[tuple[str, str]] = [(each.status, asked.get(each.number, str(each.content))) for each in ends]
    assert found.pop() == ("ok", "pong")
    return found


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        (exits, "SystemExit: 3"),
        pytest.param(interrupts, "KeyboardInterrupt: ", marks=pytest.mark.extended),
        pytest.param(
            is_spiteful, "Spiteful: (no message: its __str__ raised KeyboardInterrupt)", marks=pytest.mark.extended
        ),
        pytest.param(runs_dry, "RuntimeError: ", marks=pytest.mark.extended),
        pytest.param(cancels, "CancelledError: ", marks=pytest.mark.extended),
        pytest.param(group, "BaseExceptionGroup: all (1 sub-exception)", marks=pytest.mark.extended),
    ],
)
async def test_any_exception_of_a_tool_becomes_its_result(
    rig: StartRig, misbehave: Callable[[], None], words: str
) -> None:
    """A read has failed, an effect asks a person and is not retried, and the worker survives."""
    reads: list[int] = []
    effects: list[int] = []

    def tools_of(effect: Effect, calls: list[int]) -> list[Tool]:
        def act() -> None:
            calls.append(1)
            misbehave()

        async def act_async() -> None:
            act()

        return [
            tool(effect=effect, description="Act.", name=f"{effect}_{each.__name__}")(each) for each in (act, act_async)
        ]

    tools = [*tools_of(Effect.READ, reads), *tools_of(Effect.UNSAFE, effects)]
    results = await outcomes(rig, *tools)
    assert [status for status, _ in results] == ["failed", "failed", "unknown", "unknown"]
    assert all(content.startswith(words) for _, content in results[:2])
    assert all(f"does not say whether it took effect: {words}" in content for _, content in results[2:])
    assert len(effects) == 2
    assert len(reads) >= 2  # a local read is called again if a query makes its workflow task fail


@pytest.mark.parametrize(
    "value",
    [
        {"a": Secretive()},
        pytest.param(Labelled("fine", "nobody"), marks=pytest.mark.extended),  # type: ignore[arg-type]
    ],
    ids=["value", "trust"],
)
async def test_a_result_that_cannot_be_shown(rig: StartRig, value: Any) -> None:
    """A read with an unprintable result has failed; an effect is `ok`, or else the LLM would repeat it."""
    calls: list[int] = []

    async def act() -> Any:
        calls.append(1)
        return value

    (read, why), (effect, so) = await outcomes(
        rig,
        tool(effect="read", name="look", description="Look.")(act),
        tool(effect="unsafe", name="pay", description="Pay.")(act),
    )
    assert (read, effect) == ("failed", "ok")
    assert why.startswith("look returned, but its result cannot be shown: ")
    assert so.startswith("pay returned, so it took effect; its result cannot be shown: ")
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("check", "status", "words"),
    [
        (
            lambda: Found({1: Secretive()}),
            "ok",
            "act returned, so it took effect; its result cannot be shown: SystemExit",
        ),
        pytest.param(lambda: Found({2, 1}), "ok", "[1, 2]", marks=pytest.mark.extended),
    ],
    ids=["not shown", "shown"],
)
async def test_an_unprintable_result_of_a_check(rig: StartRig, check: Any, status: str, words: str) -> None:
    """An effect that its check has found is `ok`, for any result of the check."""

    @tool(effect="verifiable", check=check, name="act", timeout=60)
    async def act() -> None:
        """Die during the effect."""
        await die()

    ((found, content),) = await outcomes(rig, act)
    assert found == status
    assert content.startswith(words)


@pytest.mark.extended
async def test_a_function_behind_a_plain_decorator_is_awaited(rig: StartRig) -> None:
    """A wrapper that is not async itself returns a coroutine, which is awaited as the tool's result."""

    async def look() -> str:
        await asyncio.sleep(0)
        return "seen"

    assert await outcomes(rig, tool(effect="read", name="look", description="Look.")(lambda: look())) == [
        ("ok", "seen")
    ]


@pytest.mark.extended
async def test_a_tool_may_send_heartbeats(rig: StartRig) -> None:
    """An activity of another program used as a tool has its result, in a thread and on the loop."""

    def act() -> str:
        activity.heartbeat("half of it")
        return "done"

    async def act_async() -> str:
        return act()

    tools = [tool(effect="read", name=each.__name__, description="Act.")(each) for each in (act, act_async)]
    assert await outcomes(rig, *tools) == [("ok", "done")] * 2


@pytest.mark.extended
async def test_a_lone_surrogate_is_replaced(rig: StartRig) -> None:
    """Text that cannot be encoded as UTF-8 stops no call, in a result, an error or a list."""

    def cannot() -> Cannot:
        return Cannot("no file \udce9")

    def fails() -> str:
        raise ValueError("no file \udce9")

    def lists() -> list[str]:
        return ["\udce9"]

    tools = [tool(effect="read", name=each.__name__, description="Act.")(each) for each in (cannot, fails, lists)]
    assert await outcomes(rig, *tools) == [
        ("cannot", "no file ?"),
        ("failed", "ValueError: no file ?"),
        ("ok", '["?"]'),
    ]


async def test_a_read_that_cancels_its_own_task_has_failed(rig: StartRig) -> None:
    """A read that cancels itself is not retried: the cancellation does not come from the worker."""
    calls: list[int] = []

    async def act() -> None:
        calls.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    ((status, content),) = await outcomes(rig, tool(effect="read", description="Act.")(act))
    assert (status, content[:14]) == ("failed", "CancelledError")
    assert len(calls) <= 2  # on a busy machine, a local activity is cut off, and the call made again as an ordinary one

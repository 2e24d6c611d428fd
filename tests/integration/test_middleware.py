"""Middleware: what it sees, what it may change, and what happens when it rejects, fails, hangs or cheats."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast import (
    Absent,
    Agent,
    CallRefused,
    Cannot,
    Catalog,
    CatalogError,
    Found,
    InMemoryArtifacts,
    InMemoryThreads,
    Limits,
    LLMCall,
    LLMResult,
    Middleware,
    Policy,
    ProceedLLM,
    ProceedTool,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Unknown,
    allow,
    tool,
)
from holdfast.activities import middleware as running
from holdfast.activities.calling_run import Chains
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.middleware import MiddlewareStack
from holdfast.activities.tool_calls.call_tool import Tools
from holdfast.core.llm import blocks
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.decorator import NO_RESOURCES
from holdfast.core.tools.secrets import Secrets
from holdfast.storage.in_memory.record import InMemoryLedger
from holdfast.testing import KillMatrix, agent, call, fail, say, steps
from tests.support.rig import die

pytestmark = pytest.mark.usefixtures("session_server")


class Wrap(Middleware):
    """Middleware for tool calls with the behaviour that a test supplies."""

    def __init__(self, around: Callable[[ToolCall, ProceedTool], Awaitable[ToolResult]]) -> None:
        self._around = around

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        return await self._around(call, proceed)


class WrapLLM(Middleware):
    """Middleware for LLM calls with the behaviour that a test supplies."""

    def __init__(self, around: Callable[[LLMCall, ProceedLLM], Awaitable[LLMResult]]) -> None:
        self._around = around

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        return await self._around(call, proceed)


@tool(effect="read")
def look(names: list[str]) -> str:
    """Look."""
    return "long " * 100 + ", ".join(names)


@tool(effect="unsafe")
def act(name: str) -> str:
    """Act."""
    return f"acted on {name}"


def catalog(*layers: Middleware, **limits: Any) -> Catalog:
    """Return a catalog with this middleware."""
    clerk = Agent(
        name="clerk", instructions="", policy=Policy(rules=(allow(),)), limits=Limits(**limits), tools=[look, act]
    )
    return Catalog(agents=[clerk], middleware=layers)


class Observer(Middleware):
    """Record everything that it sees, and change every copy that it gets."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Record an LLM call."""
        roles = [message.role for message in await call.messages()]
        self.log.append((self.name, "llm", call.agent, await call.step(), roles))
        call.request["messages"].clear()
        result = await proceed(headers={"X-Outer": self.name, "X-Host": self.name})
        self.log.append((self.name, "llm said", result.message.text if result.message else ""))
        return result

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Record a tool call."""
        roles = [message.role for message in await call.messages()]
        self.log.append((self.name, call.tool, call.agent, call.number, await call.step(), call.arguments, roles))
        call.arguments["names"].append("mine")
        result = await proceed()
        self.log.append((self.name, "returned", len(str(result.content))))
        return result


async def test_middleware_sees_each_call() -> None:
    """Each layer, outermost first, sees call, agent, step and messages; changing its copies has no effect.

    A read, which would be a local activity, becomes an ordinary activity if its middleware reads the run.
    """
    log: list[Any] = []
    layers = (Observer("a", log), Observer("b", log))
    async with agent(catalog(*layers, tool_result_chars=300), [call("look", names=["x"]), say("Done.")]) as run:
        result = await run.task("Go.")
        sent = [request.json()["messages"] for request in run.llm.requests]
        headers = run.llm.requests[0].headers
        (looked,) = await run.calls()
    arguments, seen = {"names": ["x"]}, ["user", "assistant"]
    assert [entry for entry in log if entry[0] == "a"] == [
        ("a", "llm", "clerk", 1, ["user"]),
        ("a", "llm said", ""),
        ("a", "look", "clerk", 1, 1, arguments, seen),
        ("a", "returned", 501),
        ("a", "llm", "clerk", 2, ["user", "assistant", "tool"]),
        ("a", "llm said", "Done."),
    ]
    assert [entry[:2] for entry in log[:4]] == [("a", "llm"), ("b", "llm"), ("b", "llm said"), ("a", "llm said")]
    assert (headers["x-outer"], headers["x-host"]) == ("b", "b")
    assert result.text == "Done."
    assert [len(messages) for messages in sent] == [2, 4]  # the system message, too
    assert looked.text.endswith("x")


@pytest.mark.extended
async def test_a_replaced_result_is_recorded() -> None:
    """The log, the LLM and the artifact get the replaced result; the status stays the tool's."""

    async def redact(call: ToolCall, proceed: ProceedTool) -> ToolResult:
        text = str((await proceed()).content)
        return ToolResult(text.replace("secret", "[gone]"), "failed")

    script = [call("look", names=["a secret"] * 99), call("read_artifact", address="x"), say("Done.")]
    async with agent(catalog(Wrap(redact), tool_result_chars=300), script) as run:
        await run.task("Go.")
        (looked, _) = await run.calls()
        (finished, *_) = [event for event in await run.events() if event.type == "tool_call_finished"]
        sent = b"".join(request.body for request in run.llm.requests[1:2])
        assert (looked.status, "[gone]" in looked.text, "secret" in looked.text) == ("ok", True, False)
        assert finished.artifact
        assert b"[gone]" in sent
        run.llm.script = steps([*script, call("read_artifact", address=finished.artifact), say("Read.")])
        await run.say("Read it.")
        *_, read = await run.calls()
        assert ("[gone]" in read.text, "secret" in read.text) == (True, False)


async def test_middleware_around_an_llm_call() -> None:
    """A reply can be replaced, and its new calls are checked; a rejection blocks the run; a failure is retried."""
    raised: list[int] = []

    async def around(call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        if "refuse" in str(call.request):
            raise CallRefused("not before the audit")
        if not raised:
            raised.append(call.attempt)
            raise ValueError("at first")
        result = await proceed()
        if result.message and result.message.text == "act":
            same = blocks.ToolCall(id="c", name="act", arguments='{"name": "x"}')
            wrong = blocks.ToolCall(id="c", name="act", arguments='{"nam": "x"}')
            return LLMResult(AssistantMessage(content=(same, wrong)))
        return result

    async with agent(catalog(WrapLLM(around)), [say("act"), say("Done.")]) as run:
        assert (await run.task("Go.")).text == "Done."
        assert [(each.tool, each.status) for each in await run.calls()] == [("act", "ok"), ("act", "invalid")]
        (first, *_) = [event for event in await run.events() if event.type == "llm_replied"]
        assert first.outage
        assert "ValueError: at first" in first.outage.model_dump_json()
        blocked = await run.task("refuse")
        assert blocked.blocked
        assert blocked.blocked.message == "not before the audit"


@pytest.mark.extended
async def test_an_outage_cannot_be_hidden() -> None:
    """An error of the call itself counts, whatever the middleware returns."""

    async def hide(call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        try:
            return await proceed()
        except BaseException:
            return LLMResult(AssistantMessage(content="All is well."))

    async with agent(catalog(WrapLLM(hide)), lambda _: fail(401, "wrong key")) as run:
        result = await run.task("Go.")
        assert result.blocked
        assert "wrong key" in result.blocked.message


@pytest.mark.extended
async def test_a_cached_reply() -> None:
    """A reply returned without calling the LLM is recorded, with an estimate of its tokens."""

    async def cached(call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        return LLMResult(AssistantMessage(content="From the cache."), llm="cache")

    async with agent(catalog(WrapLLM(cached)), []) as run:
        result = await run.task("Go.")
        assert (result.text, run.llm.requests) == ("From the cache.", [])
        assert result.usage.prompt_tokens > 0


def test_invalid_middleware_is_rejected() -> None:
    """An object of another class, and a class without a resource, are errors of the catalog."""
    with pytest.raises(CatalogError, match=r"is not middleware; derive its class from holdfast\.Middleware"):
        catalog("x")  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match=r"middleware Observer: no resource of that type"):
        Catalog(agents=[Agent(name="a", instructions="")], middleware=[Observer])


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["after effect", "after call_tool"])
async def test_a_worker_killed_around_the_ledger(tmp_path: Path, boundary: str) -> None:
    """A worker killed before or after the ledger has the result has one effect, and logs what middleware returned."""
    payments = tmp_path / "payments"
    payments.touch()
    with KillMatrix(
        catalog="tests.support.wrapped:catalog",
        script=steps([call("pay", cents=5), say("Paid.")]),
        effects=lambda: Counter(payments.read_text().splitlines()),
        home=tmp_path,
        environ={"PAYMENTS": str(payments)},
    ) as matrix:
        survival = await matrix.survive(boundary)
    assert len(survival.stops) == 1
    (finished,) = [event for event in survival.events if event.type == "tool_call_finished"]
    assert finished.content == {"after effect": "PAID BEFORE", "after call_tool": "PAID 5"}[boundary]


# Attempts of one call, one after the other, on one ledger.


class Known(TranscriptCache):
    """A transcript cache that knows the agent without a run."""

    def known_agent(self) -> str | None:
        return "a"


Attempts = Callable[..., Awaitable[ToolOutcome]]


@pytest.fixture
def attempt(tmp_path: Path) -> Attempts:
    """Return a function that runs one attempt of a call; key and ledger are the same within a test."""
    key, ledger = uuid4().hex, InMemoryLedger()

    async def run(tool: Tool, layer: Middleware | None = None, **more: Any) -> ToolOutcome:
        tools = Tools(
            Catalog(agents=[Agent(name="a", instructions="", tools=[tool])]),
            ledger,
            Chains(),
            Known(InMemoryThreads()),
            InMemoryArtifacts(),
            Secrets({"KEY": "top-secret"}),
            NO_RESOURCES,
            MiddlewareStack([layer]) if layer else None,
        )
        made = blocks.ToolCall(id="c", name=tool.spec.name, arguments="{}")
        options = {"key": key, "first_run_id": "run", "workspace": str(tmp_path), "clip": 1000, **more}
        outcome: ToolOutcome = await ActivityEnvironment().run(tools.call_tool, ToolRequest(call=made, **options))
        return outcome

    return run


def effect(kind: str, *, dies: bool = False, answer: Any = None) -> Tool:
    """Return a tool that appends a line to a file, and may die before it returns; its check returns the answer."""
    check, settles_within = (lambda: answer) if kind == "verifiable" else None, None if kind == "read" else 0

    @tool(effect=kind, check=check, settles_within=settles_within, name="act")  # type: ignore[call-overload, untyped-decorator]
    async def act(context: ToolContext) -> str:
        """Act."""
        with (context.workspace / "effects").open("a") as effects:
            effects.write(f"{context.key}\n")
        if dies:
            await die()
        return "acted with top-secret"

    assert isinstance(act, Tool)
    return act


def effects(folder: Path) -> int:
    """Return how many times the effect happened."""
    file = folder / "effects"
    return len(file.read_text().splitlines()) if file.exists() else 0


async def replaced(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Return the result in upper case."""
    return ToolResult(str((await proceed()).content).upper())


async def refused(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Reject the call."""
    raise CallRefused("not now")


@pytest.mark.parametrize("kind", ["idempotent", pytest.param("unsafe", marks=pytest.mark.extended)])
async def test_a_later_attempt_returns_the_replaced_result(attempt: Attempts, tmp_path: Path, kind: str) -> None:
    """The ledger stores the replaced result; a later attempt returns it without middleware or effect."""
    first = await attempt(effect(kind), Wrap(replaced))
    again = await attempt(effect(kind), Wrap(refused))
    assert (first.content, again.content, again.adopted) == ("ACTED WITH [SECRET KEY]", first.content, True)
    assert effects(tmp_path) == 1


async def test_an_attempt_that_dies_within_middleware(attempt: Attempts, tmp_path: Path) -> None:
    """If the worker dies between effect and record, the check finds the effect; its result passes the middleware."""

    async def dying(call: ToolCall, proceed: ProceedTool) -> ToolResult:
        await proceed()
        await die()
        raise AssertionError("it is dead")

    with pytest.raises(asyncio.CancelledError):
        await attempt(effect("verifiable", answer=Found("found it")), Wrap(dying))
    second = await attempt(effect("verifiable", answer=Found("found it")), Wrap(replaced))
    assert (second.status, second.content, second.adopted) == ("ok", "FOUND IT", True)
    assert effects(tmp_path) == 1


@pytest.mark.parametrize(
    ("kind", "answer", "status", "content"),
    [
        ("verifiable", Found("found it"), "ok", "took effect; its result is hidden: not now"),
        ("verifiable", Absent(), "failed", "not now"),
        ("verifiable", Unknown(), "unknown", "not now"),
        ("idempotent", None, "unknown", "was interrupted, and this one was refused: not now"),
        ("unsafe", None, "unknown", "was interrupted, and this one was refused: not now"),
    ],
)
async def test_a_rejection_after_an_interrupted_attempt(
    attempt: Attempts, tmp_path: Path, kind: str, answer: Any, status: str, content: str
) -> None:
    """A rejection does not imply that nothing happened: the check decides, or a person."""
    with pytest.raises(asyncio.CancelledError):
        await attempt(effect(kind, dies=True))
    outcome = await attempt(effect(kind, answer=answer), Wrap(refused))
    assert outcome.status == status
    assert str(outcome.content).endswith(content)
    assert effects(tmp_path) == 1


async def test_a_rejection_is_recorded(attempt: Attempts, tmp_path: Path) -> None:
    """A rejection before any effect fails the call; a later attempt returns the same result."""
    for layer in (Wrap(refused), None):
        outcome = await attempt(effect("unsafe"), layer)
        assert (outcome.status, outcome.content) == ("failed", "not now")
    assert effects(tmp_path) == 0


async def claims_success(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Claim success without calling."""
    return ToolResult("done")


async def calls_twice(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Call twice."""
    await proceed()
    return await proceed()


async def fails_after(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Fail after the call."""
    raise ValueError(f"after {(await proceed()).status}")


WITHHELD = "the call was made and ended as ok; its result is withheld: "


async def refuses_after(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Look at the result, and reject it."""
    await proceed()
    raise CallRefused("a card number")


async def quotes_after(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Fail with a message that quotes the result."""
    raise ValueError(f"cannot parse {(await proceed()).content}")


async def cancels_itself_after(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Cancel the current task, as a leaked cancel scope does."""
    result = await proceed()
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return result


async def fails_before(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """End the process."""
    raise SystemExit("before")


async def hangs_after(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Hang after the call."""
    await proceed()
    await asyncio.sleep(60)
    return ToolResult("")


async def leaves_it_to_a_task(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Start the call in a task, and do not wait for it."""
    calling = asyncio.ensure_future(proceed())
    await asyncio.sleep(0)
    return ToolResult(f"later: {calling.done()}")


LATE: list["asyncio.Future[ToolResult]"] = []


async def calls_late(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Leave the call to a task that starts after this function has returned."""
    LATE[:] = [asyncio.ensure_future(proceed())]
    return ToolResult("soon")


async def cancels(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Cancel the call."""
    calling = asyncio.ensure_future(proceed())
    await asyncio.sleep(0)
    calling.cancel()
    return await calling


class Unwritable:
    """A value whose `str` raises."""

    def __str__(self) -> str:
        raise ValueError("no")


async def returns_rubbish(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Return a value that cannot be recorded."""
    await proceed()
    return ToolResult(Unwritable())  # type: ignore[arg-type]


async def returns_surrogates(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Return text that cannot be encoded as UTF-8."""
    await proceed()
    return ToolResult("half \ud800")


async def returns_nothing(call: ToolCall, proceed: ProceedTool) -> ToolResult:
    """Drop the result."""
    await proceed()
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("layer", "status", "content", "happened"),
    [
        (claims_success, "failed", "done", 0),
        (fails_before, "failed", "middleware raised SystemExit: before", 0),
        (calls_twice, "ok", f"{WITHHELD}middleware raised RuntimeError", 1),
        (fails_after, "ok", f"{WITHHELD}middleware raised ValueError", 1),
        (hangs_after, "ok", f"{WITHHELD}middleware took longer than 0.05 s", 1),
        (refuses_after, "ok", f"{WITHHELD}a card number", 1),
        (quotes_after, "ok", f"{WITHHELD}middleware raised ValueError", 1),
        (cancels_itself_after, "ok", f"{WITHHELD}middleware raised CancelledError", 1),
        (returns_nothing, "ok", f"{WITHHELD}middleware raised TypeError", 1),
        (returns_rubbish, "ok", f"{WITHHELD}middleware raised ValueError", 1),
        (returns_surrogates, "ok", "half ", 1),
        (leaves_it_to_a_task, "ok", "later: ", 1),
        (calls_late, "failed", "soon", 0),
        (cancels, "unknown", "middleware has cancelled the call", 1),
    ],
)
async def test_middleware_that_cheats(
    attempt: Attempts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layer: Any,
    status: str,
    content: str,
    happened: int,
) -> None:
    """An effect is recorded as it happened, and happens at most once."""
    monkeypatch.setattr(running, "OWN_SECONDS", 0.05 if layer is hangs_after else 60.0)

    @tool(effect="unsafe", name="act")
    async def act(context: ToolContext) -> str:
        """Act slowly."""
        with (context.workspace / "effects").open("a") as effects:
            effects.write(f"{context.key}\n")
        await asyncio.sleep(0.1)
        return "acted"

    LATE.clear()
    outcome = await attempt(act, Wrap(layer))
    assert outcome.status == status
    assert str(outcome.content).startswith(content)
    assert content == "acted" or "acted" not in str(outcome.content)
    for late in LATE:
        with pytest.raises(RuntimeError, match="after it had returned"):
            await late
    assert effects(tmp_path) == happened


async def test_middleware_around_an_undecodable_call(attempt: Attempts) -> None:
    """Middleware may change the reason, and the ledger stores it; a run of an older level gets a failure."""
    seen: list[str] = []

    async def note(call: ToolCall, proceed: ProceedTool) -> ToolResult:
        result = await proceed()
        seen.append(f"{result.status}: {result.content}")
        return ToolResult(f"{result.content}!")

    @tool(effect="unsafe", name="act")
    async def act() -> Cannot:
        """Act."""
        return Cannot("top-secret is locked", scope="everywhere", until=timedelta(hours=1))

    first = await attempt(act, Wrap(note), cannot=True)
    again = await attempt(effect("unsafe"), cannot=True)
    older = await attempt(act, key="other")
    assert seen == ["cannot: [secret KEY] is locked"]
    assert (first.status, first.scope, first.content) == ("cannot", "everywhere", "[secret KEY] is locked!")
    assert first.until
    assert abs(first.until - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
    assert again == first.model_copy(update={"adopted": True})
    assert (older.status, older.scope, older.until, older.content) == ("failed", None, None, "[secret KEY] is locked")


async def test_undo_and_settle_pass_through_middleware(attempt: Attempts) -> None:
    """Middleware can tell undo and settle apart; rejected, an undo has failed and a settled outcome is unknown."""
    work: list[str] = []

    async def note(call: ToolCall, proceed: ProceedTool) -> ToolResult:
        work.append(call.work)
        return await proceed()

    @tool(effect="verifiable", name="act", check=lambda: Found("found it"), undo=lambda: "undone")
    async def act() -> str:
        """Act, then die."""
        await die()
        return ""

    with pytest.raises(asyncio.CancelledError):
        await attempt(act, Wrap(note))
    assert (await attempt(act, Wrap(refused), undo=True)).status == "failed"
    assert (await attempt(act, Wrap(refused), settle=True)).status == "unknown"
    assert (await attempt(act, Wrap(note), undo=True)).content == "undone"
    assert (await attempt(act, Wrap(note), settle=True)).content == "found it"
    assert work == ["run", "undo", "settle"]

"""`holdfast.testing.agent` runs a user's agent in a test, on a server shared by all tests of a process."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from uuid import uuid4

import psutil
import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import (
    Agent,
    AgentLoaded,
    Budget,
    Catalog,
    Found,
    Limits,
    Memory,
    NotAccepted,
    NotDone,
    Policy,
    ToolContext,
    allow,
    ask,
    tool,
)
from holdfast.client.connect import connect
from holdfast.devstack.shared import shared_server
from holdfast.errors import SettingsError
from holdfast.testing import Conversation, Reply, agent, call, fail, hang, say, steps
from tests.support.own_stores import FileArtifacts, FileMemories, FileThreads
from tests.support.rig import eventually


@tool(effect="unsafe", secrets=("BANK_KEY",))
def pay(cents: int, context: ToolContext) -> str:
    """Pay."""
    return f"paid {cents} with a key of {len(context.secret('BANK_KEY'))} characters"


@tool(effect="verifiable", check=lambda: Found("it was"))
def ship() -> str:
    """Ship."""
    raise NotDone("out of stock")


POLICY = Policy(rules=(ask("pay"), allow()))
CATALOG = Catalog(
    agents=[
        Agent(name="clerk", instructions="", policy=POLICY, tools=[pay, ship]),
        Agent(name="keeper", instructions="", policy=POLICY, memory=Memory(semantic=True), tools=[pay, ship]),
    ],
)
SECRETS = {"BANK_KEY": "k-123456"}


async def test_calls_and_effects_are_listed() -> None:
    """`calls` lists every call with its outcome, `effects` those that ran and are not reads, even if they failed."""
    replies = [call("nothing"), call("pay", cents="many"), call("ship"), call("pay", cents=5), say("Done.")]
    async with agent(CATALOG, replies, secrets=SECRETS) as run:
        await run.task("Go.")
        (request,) = await run.pending()
        await run.approve(request, arguments={"cents": 6})
        calls = await run.calls()
        assert [(each.tool, each.status) for each in calls] == [
            ("nothing", "invalid"),
            ("pay", "invalid"),
            ("ship", "failed"),
            ("pay", "ok"),
        ]
        assert await run.effects() == calls[2:]
        assert calls[3].text.splitlines()[1] == "paid 6 with a key of 8 characters"
        assert calls[3].arguments == {"cents": 6}
        with pytest.raises(AssertionError, match="no request is open: the run is completed"):
            await run.approve()
        with pytest.raises(NotAccepted, match="request 1"):
            await run.approve("1")


@pytest.mark.extended
async def test_memories_last_for_the_block() -> None:
    """A later thread of the same block recalls what an earlier one remembered; the next block starts empty."""
    replies = [call("remember", text="Invoices are sent on Mondays."), say("Noted.")]
    for _ in range(2):
        async with agent(CATALOG, replies, secrets=SECRETS) as run:
            await run.task("Remember.", agent="keeper")
            run.llm.script = steps([call("recall", query="invoices"), say("Recalled.")])
            await run.task("When?", agent="keeper")
            (recalled,) = await run.calls()
            assert recalled.text.count("sent on Mondays") == 1


@pytest.mark.extended
async def test_the_catalogs_own_stores_are_not_used(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A catalog with stores of its own runs with in-memory stores: a test cannot write to production stores."""
    folder = tmp_path_factory.mktemp("production")
    stores = {"threads": FileThreads(folder), "artifacts": FileArtifacts(folder), "memories": FileMemories(folder)}
    own = Catalog(agents=CATALOG.agents.values(), tools=CATALOG.tools.values(), **stores)  # type: ignore[arg-type]
    async with agent(own, [say("x" * 200_000)], secrets=SECRETS) as run:
        assert (await run.task("Go.")).status == "completed"
        assert (await run.say("Again.")).status == "blocked"  # the past is loaded, and the script has ended
    assert list(folder.iterdir()) == []


async def test_what_ends_a_wait() -> None:
    """A blocked run or a waiting one ends the wait; a run that hangs is terminated, and leaves no folder."""
    async with agent(CATALOG, lambda _: fail(401, "wrong key"), secrets=SECRETS) as run:
        blocked = await run.task("Go.")
        assert blocked.blocked
        assert "wrong key" in blocked.blocked.message
        run.llm.script = steps([say("Here."), say("And gone.")])
        assert (await run.retry()).text == "Here."
        idle = await run.task("Stay.", idle_limit=3600)
        assert (idle.status, idle.text) == ("waiting_message", "Here.")
        assert (await run.skip(timedelta(hours=2))).status == "completed"
        folder = run.workspace.parent
    assert not folder.exists()
    async with agent(CATALOG, lambda _: hang(), secrets=SECRETS, patience=0.5) as run:
        with pytest.raises(TimeoutError, match=r"still runs after 0\.5 s"):
            await run.task("Hang.")
        thread = run.thread.id
    server = shared_server()
    client = await connect({"target_host": server.address}, seals=server.seals)
    assert (await client.get_workflow_handle(thread).describe()).status == WorkflowExecutionStatus.TERMINATED


@pytest.mark.slow
async def test_a_wait_in_vain_reports_the_last_event() -> None:
    """The error contains the last event, and what is being retried and why."""
    async with agent(CATALOG, lambda _: hang(), secrets=SECRETS, patience=15) as run:
        with pytest.raises(TimeoutError, match=r"last event: agent_loaded \(2\)$"):
            await run.task("Hang.")
        run.llm.script = lambda _: fail(503, "an outage")
        with pytest.raises(TimeoutError, match=r"call_llm failed in \d+ attempts: .*503: an outage"):
            await run.task("Fail.")


async def test_a_mistake_in_the_test_is_reported() -> None:
    """A script that raises blocks the run at once with its error; without a request, `approve` is an error."""

    def script(conversation: Conversation) -> Reply:
        return call("pay", cents=conversation.results[0])

    async with agent(CATALOG, script, secrets=SECRETS) as run:
        blocked = (await run.task("Go.")).blocked
        assert blocked
        assert f"IndexError: list index out of range (in {__file__}, line" in blocked.message
        with pytest.raises(AssertionError, match="no request is open: the run is blocked"):
            await run.approve()


async def test_a_missing_secret_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `secrets=`, they come from the environment, as for a worker."""
    monkeypatch.delenv("BANK_KEY", raising=False)
    with pytest.raises(SettingsError, match="BANK_KEY is not set"):
        async with agent(CATALOG, [say("Done.")]):
            pass


@pytest.mark.extended
async def test_a_dead_server_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """The next run has another server, and the log says why the first one ended."""
    first = shared_server()
    for child in psutil.Process(first.process.pid).children():
        child.kill()
    await asyncio.to_thread(first.process.wait)
    async with agent(CATALOG, [say("Done.")], secrets=SECRETS) as run:
        assert (await run.task("Go.")).text == "Done."
    assert "has ended, and is replaced: Temporal has ended. The last lines of its log:" in caplog.text
    assert shared_server().process.poll() is None


@pytest.mark.extended
async def test_the_server_ends_with_its_process() -> None:
    """If the process is killed, neither server nor folder stays behind."""
    program = (
        "import time; from holdfast.devstack.shared import shared_server; "
        "shared_server(); print('up', flush=True); time.sleep(99)"
    )
    process = subprocess.Popen(  # noqa: ASYNC220  # it is killed
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert await asyncio.to_thread(process.stdout.readline) == "up\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("temporal" in child.name() for child in children)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    async def running() -> list[psutil.Process]:
        return [child for child in children if child.is_running()]

    await eventually(running, lambda left: not left)


async def test_a_task_takes_the_options_of_a_start_and_the_client_is_public() -> None:
    """A thread id, a budget and a workspace; runs that the client starts end with the test, too."""
    waiting = Catalog(agents=[Agent(name="Waiting agent", instructions="Wait.", limits=Limits(idle_limit=600))])
    async with agent(waiting, lambda conversation: say(conversation.last_user_message)) as run:
        done = await run.task("one", agent="Waiting agent", thread=f"first-{uuid4().hex}", budget=Budget(steps=5))
        assert (done.status, done.text) == ("waiting_message", "one")
        assert run.thread.id.startswith("first-")
        loaded = next(event for event in await run.events() if isinstance(event, AgentLoaded))
        assert loaded.spec.name == "waiting-agent"
        other = await run.client.start("two")
        assert (await other.result(until="attention")).text == "two"
    for thread in (run.thread, other):
        assert (await thread.state()).status == "failed"  # it was terminated

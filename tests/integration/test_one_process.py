"""A program holds agents: `running` and `run`, with the servers of the settings, in one process."""

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
from pydantic import BaseModel

import holdfast
from holdfast import (
    Agent,
    Catalog,
    CatalogError,
    Context,
    Policy,
    RunFailed,
    SettingsError,
    StackError,
    allow,
    ask,
    tool,
)
from holdfast.config.stack_file import Stack
from holdfast.config.state_folder import state_folder
from holdfast.hosting import running as running_module
from holdfast.hosting.host import Body
from holdfast.hosting.program import read_program
from holdfast.testing import Conversation, Reply, call, fail, say, steps
from tests.support.rig import environ_of, eventually


@tool(effect="read")
def look(order: str) -> str:
    """Look at an order.

    Args:
        order: Its number.
    """
    return f"order {order} is open"


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay.

    Args:
        cents: The amount.
    """
    return f"paid {cents}"


class Report(BaseModel):
    """A report."""

    title: str


def catalog_of(name: str, *, result: type[BaseModel] | None = None) -> Catalog:
    """Return a catalog with one agent."""
    rules = (ask("pay"), allow())
    agent = Agent(name=name, instructions="Serve.", tools=[look, pay], policy=Policy(rules=rules), result=result)
    return Catalog(agents=[agent])


@pytest.fixture
def servers(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the session's servers, as an operator would, with a queue that no other test has."""
    for name, value in {**environ_of(stack), "DATABASE_URL": stack.database_url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_TASK_QUEUE", f"program-{uuid4().hex[:8]}")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    """Return whether a text has been logged."""
    return text in caplog.text


def fresh() -> str:
    """Return a new thread id."""
    return f"program-{uuid4().hex[:8]}"


@pytest.mark.usefixtures("servers")
async def test_a_program_runs_agents_and_keeps_its_process(caplog: pytest.LogCaptureFixture) -> None:
    """A block runs a worker and a client in the program's own event loop, and changes nothing else of the process; the
    log says that a script answers.
    """
    handlers, was_configured = list(logging.getLogger().handlers), structlog.is_configured()
    interrupted = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    environ = dict(os.environ)
    script = [call("look", order="7"), call("pay", cents=5), say("Paid.")]
    async with holdfast.running(catalog_of("clerk"), script=script, by="dana") as client:
        thread = await client.start("Pay order 7", thread=fresh())
        waiting = await thread.result(until="attention")
        (request,) = waiting.pending
        await thread.decide(request, "approve")
        assert (await thread.result()).text == "Paid."
    assert "a script answers" in caplog.text
    assert list(logging.getLogger().handlers) == handlers
    assert structlog.is_configured() == was_configured
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == interrupted
    assert dict(os.environ) == environ


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_two_catalogs_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two catalogs run side by side on two queues, each with its own runs; one queue for both is refused, and the same
    catalog twice is not.
    """
    first, second = catalog_of("first"), catalog_of("second")
    queues = fresh(), fresh()
    async with (
        holdfast.running(first, script=[say("one")], task_queue=queues[0]) as a,
        holdfast.running(second, script=[say("two")], task_queue=queues[1]) as b,
    ):
        started = [await client.start("Talk", thread=fresh()) for client in (a, b)]
        assert [(await thread.result()).text for thread in started] == ["one", "two"]
        with pytest.raises(SettingsError, match=r"already serves the task queue .* with first of .*own"):
            async with holdfast.running(second, task_queue=queues[0]):
                pass
        async with holdfast.running(first, script=[say("one")], task_queue=queues[0]) as again:
            assert (await (await again.start("Talk", thread=fresh())).result()).text == "one"
        assert (await (await a.start("Talk", thread=fresh())).result()).text == "one"


@pytest.mark.usefixtures("servers")
async def test_a_task_is_done_once(caplog: pytest.LogCaptureFixture) -> None:
    """Repeating a task, in this block or a later one, returns the recorded result without another call of the LLM, and
    the log says so; another thread does it again.
    """
    asked = []

    def script(conversation: Conversation) -> Reply:
        asked.append(conversation.last_user_message)
        return say(f"answer {len(asked)}")

    catalog = catalog_of("once")
    first = await holdfast.run(catalog, "Count", script=script)
    assert (first.text, len(asked)) == ("answer 1", 1)
    async with holdfast.running(catalog, script=script):
        again = await holdfast.run(catalog, "Count", script=script)
        other = await holdfast.run(catalog, "Count", script=script, thread=fresh())
    assert (again.thread, again.text) == (first.thread, "answer 1")
    assert (other.text, len(asked)) == ("answer 2", 2)
    assert f"thread {first.thread} has done this task already (completed)" in caplog.text


class Customer(BaseModel):
    """The context of a run."""

    number: str


@tool(effect="unsafe")
def refund(customer: Context[Customer]) -> str:
    """Refund a customer's last order."""
    return f"refunded {customer.number}"


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_task_has_a_context_and_may_be_unattended() -> None:
    """The same task for another customer is another task; a task that would ask people fails if nobody is there."""
    rules = (ask("refund", when="context.number == '3'"), allow())
    agent = Agent(name="desk", instructions="Serve.", tools=[refund], context=Customer, policy=Policy(rules=rules))

    def script(conversation: Conversation) -> Reply:
        return say(conversation.results[-1]) if conversation.results else call("refund")

    catalog = Catalog(agents=[agent])
    async with holdfast.running(catalog, script=script):
        first, second = [
            await holdfast.run(catalog, "Refund.", context=Customer(number=number), script=script) for number in "12"
        ]
        assert (first.text, second.text) == ("refunded 1", "refunded 2")
        with pytest.raises(RunFailed) as failed:
            await holdfast.run(catalog, "Refund.", context={"number": "3"}, unattended=True, script=script)
    assert failed.value.cause == "ApprovalRequired"


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_tasks_in_parallel_have_typed_results() -> None:
    """Tasks of one block run side by side, and each returns a value of the result's type."""
    catalog = catalog_of("reporter", result=Report)

    def script(conversation: Conversation) -> Reply:
        return call("final_result", result={"title": conversation.last_user_message})

    async with holdfast.running(catalog, script=script):
        tasks = [f"About {number}" for number in range(4)]
        reports = await asyncio.gather(*(holdfast.run(catalog, task, result=Report) for task in tasks))
    assert [report.title for report in reports] == tasks


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_sync_program_within_a_running_loop() -> None:
    """`run_sync`, and `running` in a plain `with`, work where an event loop runs, as in a notebook's cell."""
    catalog = catalog_of("notebook")
    assert holdfast.run_sync(catalog, "Talk", script=[say("hello")]).text == "hello"
    with holdfast.running(catalog, script=[say("again")]) as client:
        assert client.start("Talk", thread=fresh()).result().text == "again"


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_block_that_another_task_leaves() -> None:
    """A block may be entered by one task and left by another, as fixtures and cells of notebooks do."""
    block = holdfast.running(catalog_of("fixture"), script=[say("ready")])
    client = await asyncio.create_task(block.__aenter__())
    with pytest.raises(StackError, match="open already"):
        await block.__aenter__()
    assert (await (await client.start("Talk", thread=fresh())).result()).text == "ready"
    await asyncio.create_task(block.__aexit__(None, None, None))
    async with block as client:
        assert (await (await client.start("Talk", thread=fresh())).result()).text == "ready"


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_waiting_task_says_for_what(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """While `run` waits for a person, the log has the command that answers; a decision from elsewhere ends the wait,
    and the failure of a run is raised each time.
    """
    catalog, thread = catalog_of("waiter"), fresh()
    script = steps([call("pay", cents=5), say("Paid.")])
    async with holdfast.running(catalog, script=script, by="dana") as client:
        doing = asyncio.create_task(holdfast.run(catalog, "Pay", thread=thread))
        assert await eventually(lambda: logged(caplog, f"thread {thread} waits for a decision: pay (request 1)"), bool)
        assert f"approve {thread} 1" in caplog.text
        await client.thread(thread).decide("1", "approve")
        assert (await doing).text == "Paid."
        for _ in range(2):
            with pytest.raises(CatalogError, match="no agent named 'nobody'"):
                await holdfast.run(catalog, "Pay", agent="nobody")


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_blocked_task_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """A blocked run is reported with its cause and the command that resumes it; the provider's text cannot act on the
    terminal.
    """
    thread, broken = fresh(), True

    def script(conversation: Conversation) -> Reply:
        return fail(401, "bad key\x1b[2J") if broken else say("Better.")

    catalog = catalog_of("blocked")
    async with holdfast.running(catalog, script=script) as client:
        doing = asyncio.create_task(holdfast.run(catalog, "Work", thread=thread))
        assert await eventually(lambda: logged(caplog, f"thread {thread} is blocked"), bool)
        assert "bad key" in caplog.text
        assert "\x1b[2J" not in caplog.text
        assert f"retry {thread}" in caplog.text
        broken = False
        await client.thread(thread).retry(by="dana")
        assert (await doing).text == "Better."


@pytest.mark.extended
@pytest.mark.usefixtures("servers")
async def test_a_failure_is_recorded_like_a_result() -> None:
    """A task that has failed raises its failure again: it is not tried a second time on the quiet."""
    catalog = catalog_of("failing")
    async with holdfast.running(catalog, script=[say("x")]) as client:
        # The worker has no such folder, so the run fails.
        for _ in range(2):
            with pytest.raises(RunFailed):
                await holdfast.run(catalog, "Work", thread=f"failing-{client.task_queue}", workspace="/no/such/folder")


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each precondition that fails says what it is, and what to do."""
    catalog = catalog_of("refused")
    with pytest.raises(CatalogError, match=r"is not a catalog: pass Catalog\("):
        holdfast.running("agents:catalog")  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(running_module, "is_installed", lambda extra: False)
        with pytest.raises(StackError, match="packages that run agents are missing"):
            async with holdfast.running(catalog):
                pass
    with monkeypatch.context() as patch:
        patch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
        patch.delenv("DATABASE_URL", raising=False)
        with pytest.raises(SettingsError, match="DATABASE_URL is not set"):
            async with holdfast.running(catalog):
                pass
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match="cannot be written"):
        async with holdfast.running(catalog, home=tmp_path / "file" / "state"):
            pass
    assert state_folder() == Path(os.environ["HOLDFAST_HOME"])


@pytest.mark.usefixtures("servers")
async def test_one_state_folder_in_a_process(tmp_path: Path) -> None:
    """Tools are kept out of the state folder that the program names; a second one at the same time is refused."""
    catalog = catalog_of("homes")
    async with holdfast.running(catalog, script=[say("x")], home=tmp_path / "one"):
        assert state_folder() == tmp_path / "one"
        with pytest.raises(StackError, match="already uses the state folder"):
            async with holdfast.running(catalog, script=[say("x")], home=tmp_path / "two"):
                pass
    async with holdfast.running(catalog, script=[say("x")], home=tmp_path / "two"):
        assert state_folder() == tmp_path / "two"


@pytest.mark.usefixtures("servers")
async def test_a_server_of_a_team_gets_no_made_up_answers() -> None:
    """With configured servers and without an LLM, a script must be passed; the project's stand-in is for one's own
    machine.
    """
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        async with holdfast.running(catalog_of("silent")):
            pass


@pytest.mark.extended
async def test_a_failure_for_good_ends_the_block() -> None:
    """If something that the agents need has failed for good, the block is cancelled and raises that error; one's own
    cancellation stays one.
    """
    body = Body()

    async def fail() -> None:
        raise StackError("the port was taken")

    async def wait() -> None:
        with body.raising_failure():
            async with AsyncExitStack() as cleanup:
                body.depends_on(fail(), cleanup)
                await asyncio.Event().wait()

    with pytest.raises(StackError, match="the port was taken"):
        await wait()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    with pytest.raises(asyncio.CancelledError), Body().raising_failure():
        raise asyncio.CancelledError


@pytest.mark.extended
def test_a_catalog_has_a_queue_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With embedded servers, the queue is named after module and first agent, so that two scripts of one folder never
    take each other's runs; a queue that is named, and the queue of the project's own catalog, are used as they are.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("TEMPORAL_ADDRESS", "HOLDFAST_TASK_QUEUE"):
        monkeypatch.delenv(name, raising=False)
    catalog = catalog_of("clerk")
    assert read_program(catalog).settings.task_queue == f"{__name__}.clerk"
    assert read_program(catalog, task_queue="mine").settings.task_queue == "mine"
    monkeypatch.setenv("HOLDFAST_TASK_QUEUE", "named")
    assert read_program(catalog).settings.task_queue == "named"
    monkeypatch.delenv("HOLDFAST_TASK_QUEUE")
    (tmp_path / "holdfast.toml").write_text(f'catalog = "{__name__}:catalog"\n')
    assert read_program(catalog).settings.task_queue == "holdfast"
    assert catalog.governed_by(Policy()).module == catalog.module == __name__

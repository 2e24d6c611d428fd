"""A catalog's resources are opened once per worker, passed to tools by type, closed last, and otherwise invisible."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast import (
    Absent,
    Agent,
    Catalog,
    CatalogError,
    Found,
    Policy,
    Resource,
    ResourceFailed,
    Secrets,
    ToolContext,
    allow,
    resource,
    tool,
)
from holdfast.config.stack_file import Stack
from holdfast.storage.pool import migrate
from holdfast.testing import agent, call, say, together
from holdfast.worker import resources as opening
from holdfast.worker.resources import open_resources
from tests.support.rig import environ_of

pytestmark = pytest.mark.usefixtures("session_server")

ROOT = Path(__file__).parents[2]


class Settings:
    """A resource that cannot be read from JSON."""


class Database:
    """A resource that records what happens to it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log


class Client:
    """A resource that needs the other two."""

    def __init__(self, database: Database, token: str) -> None:
        self.database, self.token = database, token


LOG: list[str] = []


def settings() -> Settings:
    """Provide a plain value."""
    LOG.append("settings")
    return Settings()


@contextmanager
def database(settings: Settings) -> Iterator[Database]:
    """Provide a sync context manager."""
    LOG.append("open database")
    yield Database(LOG)
    LOG.append("close database")


@resource(secrets=("TOKEN",))
@asynccontextmanager
async def client(database: Database, secrets: Secrets) -> AsyncIterator[Client]:
    """Provide an async context manager that needs a secret."""
    LOG.append("open client")
    yield Client(database, secrets.value("TOKEN"))
    LOG.append("close client")


def was_sent(context: ToolContext, client: Resource[Client]) -> Found | Absent:
    """Check whether it was sent."""
    client.database.log.append("checked")
    return Found("sent")


@tool(effect="verifiable", check=was_sent, timeout=5)
async def send(text: str, client: Resource[Client]) -> str:
    """Send, and never return."""
    client.database.log.append(f"{text} with {client.token}")
    await asyncio.sleep(60)
    return "sent"


@tool(effect="read")
def look(settings: Resource[Settings], client: Resource[Client]) -> str:
    """Look from a thread."""
    return f"{type(settings).__name__}, {client.token}"


CATALOG = Catalog(
    agents=[Agent(name="clerk", instructions="", policy=Policy(rules=(allow(),)), tools=[send, look])],
    resources=[client, database, settings],
)
TOKEN = "t-secret-1"


@pytest.fixture(autouse=True)
def _log() -> None:
    LOG.clear()


async def test_a_run_uses_resources() -> None:
    """Tool and check get them; each opens once, after its dependencies, and closes in reverse after the last call."""
    replies = [together(call("look"), call("send", text="hello")), say("Done.")]
    async with agent(CATALOG, replies, secrets={"TOKEN": TOKEN}) as run:
        await run.task("Go.")
        await run.task("Again.")
        calls = await run.calls()
        assert [(each.tool, each.text) for each in calls] == [("look", "Settings, [secret TOKEN]"), ("send", "sent")]
        assert "close client" not in LOG
    once = ["settings", "open database", "open client"]
    assert once + 2 * [f"hello with {TOKEN}", "checked"] + ["close client", "close database"] == LOG


async def test_resources_are_visible_to_nobody_else() -> None:
    """Resources are in no schema, request, event or message, and the agent's hash does not depend on them."""

    @tool(effect="read")
    def peek() -> str:
        """Look from a thread."""
        return ""

    assert look.spec.parameters == peek.spec.parameters
    other = CATALOG.with_resources(other_database)
    assert other.spec(None, default_llm="x").hash == CATALOG.spec(None, default_llm="x").hash
    async with agent(CATALOG, [call("look"), say("Done.")], secrets={"TOKEN": TOKEN}) as run:
        await run.task("Go.")
        seen = repr([request.body for request in run.llm.requests]) + repr(await run.events())
        assert not [
            word for word in ("Settings", "Database", "Client object", TOKEN) if word in seen.replace("Settings, [", "")
        ]


def other_database() -> Database:
    """Provide another resource of the same type."""
    return Database(["another"])


@pytest.mark.extended
async def test_a_provider_is_overridden() -> None:
    """`with_resources` replaces the provider of a type, also for its dependents; another type is rejected."""
    async with AsyncExitStack() as cleanup:
        opened = await cleanup.enter_async_context(
            open_resources(CATALOG.with_resources(other_database), Secrets({"TOKEN": TOKEN}))
        )
        assert opened[Client].database is opened[Database]
        assert opened[Database].log == ["another"]

    def path() -> Path:
        return Path()

    with pytest.raises(CatalogError, match=r"'path' .*provides Path, which this catalog does not have"):
        CATALOG.with_resources(path)


async def test_a_failing_provider_closes_the_rest() -> None:
    """The error names the provider and its line, without its secrets; every opened resource is closed."""

    @resource(secrets=("TOKEN",))
    @asynccontextmanager
    async def client(database: Database, secrets: Secrets) -> AsyncIterator[Client]:
        if token := secrets.value("TOKEN"):
            raise ConnectionError(f"no answer for {token}")
        yield Client(database, token)

    secrets = Secrets({"TOKEN": TOKEN})
    with pytest.raises(ResourceFailed, match=r"'client' \(.*test_resources.py:\d+\).*no answer for \[secret TOKEN\]"):
        async with open_resources(CATALOG.with_resources(client), secrets):
            pass
    assert LOG == ["settings", "open database", "close database"]


@pytest.mark.extended
async def test_a_hanging_provider_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening has a limit, which is an error; closing has one, too, and the other resources are closed regardless."""

    @asynccontextmanager
    async def slow(client: Client) -> AsyncIterator[Path]:
        yield Path()
        await asyncio.sleep(60)

    async def never() -> Path:
        await asyncio.sleep(60)
        return Path()

    monkeypatch.setattr(opening, "CLOSE_SECONDS", 0.5)
    catalog = Catalog(
        agents=CATALOG.agents.values(), tools=CATALOG.tools.values(), resources=[slow, client, database, settings]
    )
    async with open_resources(catalog, Secrets({"TOKEN": TOKEN})) as opened:
        assert opened[Path] == Path()
    assert LOG[-2:] == ["close client", "close database"]
    monkeypatch.setattr(opening, "OPEN_SECONDS", 0.5)
    with pytest.raises(ResourceFailed, match=r"took longer than 0\.5 s"):
        async with open_resources(catalog.with_resources(never), Secrets({"TOKEN": TOKEN})):
            pass


async def test_a_provider_without_a_return_is_named() -> None:
    """The worker does not start, because tools would get None and fail one by one."""

    def shelf() -> Settings:
        return None  # type: ignore[return-value]

    bare = Catalog(agents=[Agent(name="a", instructions="")], resources=[shelf])
    with pytest.raises(ResourceFailed, match=r"resource 'shelf' .*it provides None; return the resource"):
        async with open_resources(bare, Secrets({})):
            pass


WORKER = """
import asyncio, sys
from contextlib import asynccontextmanager
from collections.abc import AsyncIterator
from pathlib import Path
from holdfast import Agent, Catalog

class One: ...
class Two: ...

@asynccontextmanager
async def one() -> AsyncIterator[One]:
    print("open one", flush=True)
    yield One()
    print("close one", flush=True)

def two(one: One) -> Two:
    raise ValueError("no two")

catalog = Catalog(agents=[Agent(name="a", instructions="")], resources=[one])
broken = Catalog(agents=[Agent(name="a", instructions="")], resources=[one, two])
"""


@pytest.mark.extended
@pytest.mark.parametrize(("name", "code"), [("catalog", 0), ("broken", 2)])
async def test_a_worker_process_closes_its_resources(name: str, code: int, stack: Stack, tmp_path: Path) -> None:
    """After SIGTERM it closes them and exits with 0; a resource that cannot be opened exits with 2 and a message."""
    await migrate(stack.database_url)
    (tmp_path / "shop.py").write_text(WORKER)
    environ = {**os.environ, **environ_of(stack), "DATABASE_URL": stack.database_url, "HOLDFAST_LLM": "x"}
    environ |= {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OPENAI_API_KEY": "none",
        "HOLDFAST_TASK_QUEUE": f"r-{name}",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast.worker", "--catalog", f"shop:{name}"),
        cwd=tmp_path,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    lines: list[str] = []
    while line := (await process.stdout.readline()).decode():
        lines.append(line)
        if line.startswith("Ready."):
            process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == code, errors
    assert [line.strip() for line in lines if line.strip().endswith(" one")] == ["open one", "close one"]
    assert (b"resource 'two'" in errors and b"shop.py:17" in errors and b"no two" in errors) == bool(code)
    assert b"Traceback" not in errors


@pytest.mark.extended
@pytest.mark.parametrize("nohup", [False, True])
def test_a_closed_terminal_stops_the_worker(nohup: bool, stack: Stack, tmp_path: Path) -> None:
    """A worker closes its resources on SIGHUP as after Ctrl-C; under `nohup`, it keeps serving."""
    asyncio.run(migrate(stack.database_url))
    (tmp_path / "shop.py").write_text(WORKER.replace('print("close one", flush=True)', 'Path("closed").touch()'))
    environ = {**os.environ, **environ_of(stack), "DATABASE_URL": stack.database_url, "HOLDFAST_LLM": "x"}
    environ |= {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none", "HOLDFAST_TASK_QUEUE": f"hangup-{nohup}"}
    process, terminal = pty.fork()
    if not process:
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, "-m", "holdfast.worker", "--catalog", "shop:catalog"], environ)
    try:
        output = b""
        while b"Ready." not in output:
            output += os.read(terminal, 4096)
        os.close(terminal)
        if nohup:
            os.kill(process, signal.SIGTERM)  # the test stops it
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
    assert (tmp_path / "closed").exists()

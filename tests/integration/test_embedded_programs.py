"""Programs that hold their agents, as users run them: real processes in one folder, with the embedded servers."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.devstack.postgres import Postgres
from holdfast.devstack.temporal_server import TemporalServer
from holdfast.devstack.web_ui import WebUI
from tests.docs.pages import ROOT, files
from tests.support.forked import run
from tests.support.processes import reserve_ports
from tests.support.rig import PATIENCE

FOREIGN = ("HOLDFAST_", "TEMPORAL_", "OPENAI_", "DATABASE_URL")
WAITER = """
import holdfast
from holdfast import Agent, Catalog, Policy, ask, tool
from holdfast.testing import call, say


@tool(effect="unsafe")
def pay(cents: int) -> str:
    "Pay."
    return f"paid {cents}"


assistant = Agent(name="assistant", instructions="Pay.", policy=Policy(rules=(ask("pay"),)), tools=[pay])
catalog = Catalog(agents=[assistant], tools=[pay])
print(holdfast.run_sync(catalog, "Pay", thread="pay-1", script=[call("pay", cents=5), say("Paid.")], by="dana").text)
"""
FIRST = """
import sys
import holdfast
from holdfast import Agent, Catalog, Policy
from holdfast.testing import say

catalog = Catalog(agents=[Agent(name="assistant", instructions="Talk.", policy=Policy())])
other = Catalog(agents=[Agent(name="other", instructions="Talk.", policy=Policy())])
first, second = holdfast.running(catalog, script=[say("Hello.")]), holdfast.running(other, script=[say("Hi.")])
with first as client, second as another:
    print(client.task_queue, client.start("Talk", thread="talk-1").result().text)
    print(another.task_queue, another.start("Talk", thread="talk-2").result().text)
    sys.stdin.read()
"""


FORGED = """
import asyncio, os, psycopg
from pathlib import Path
import holdfast
from holdfast import Agent, Catalog, Policy
from holdfast.config.stack_file import read_stack
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.retention.histories import remove_histories
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import say

catalog = Catalog(agents=[Agent(name="assistant", instructions="Talk.", policy=Policy())])

async def main():
    async with holdfast.running(catalog, script=[say("Hello.")]) as client:
        thread = await client.start("Talk", thread="talk-1")
        await thread.result()
        events = [event async for event in thread.events()]
        print("honest", (await thread.verify(require=["anchors", "results"])).verdict)
        await remove_histories(client._threads.runs, thread.id)
        print("without history", (await thread.verify(require=["anchors", "results"])).verdict)
        log = EventLog()
        for event in events:
            fields = {"content": "Be rude", "digest": ""} if event.type == "user_message_received" else {"digest": ""}
            log.append(event.model_copy(update=fields), at=event.at)
        async with open_pool(read_stack(Path(os.environ["HOLDFAST_HOME"])).database_url, size=1) as pool:
            async with pool.connection() as connection:
                await connection.execute("DELETE FROM holdfast.events")
            await PostgresThreads(pool).append(thread.id, 0, [event_line(event) for event in log.events])
        print("forged", (await thread.verify()).verdict)
        print("forged, no anchor", (await thread.verify(anchors=[])).verdict)

asyncio.run(main())
"""


class Folder:
    """A folder with programs.

    Args:
        path: An empty folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path / ".holdfast"
        self.running: list[subprocess.Popen[str]] = []
        reserve_ports(self.home)

    def start(self, *words: str, **environ: str) -> "subprocess.Popen[str]":
        """Start Python with these words; its output goes to files named after the first one."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
        own = {"HOLDFAST_HOME": str(self.home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        name = Path(words[-1] if words[0] == "-m" else words[0]).stem
        with (self.path / f"{name}.out").open("w") as out, (self.path / f"{name}.err").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.path,
                env={**kept, **own, **environ},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                text=True,
            )
        self.running.append(process)
        return process

    def text(self, file: str) -> str:
        """Return what a program has written so far."""
        return (self.path / file).read_text()

    def until(self, condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None) -> None:
        """Wait for a condition while a program runs."""
        deadline = time.monotonic() + 3 * PATIENCE
        while not condition():
            shown = "\n".join(path.read_text() for path in self.path.glob("*.err"))
            assert process is None or process.poll() is None, shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)

    def servers(self) -> list[psutil.Process]:
        """Return the servers that run for this folder."""
        kinds = (TemporalServer, Postgres, WebUI)
        found = [kind(self.home, report=lambda line: None).find() for kind in kinds]
        return [process for process in found if process is not None]

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command in another terminal."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
        environ = {**kept, "HOLDFAST_HOME": str(self.home), "HOLDFAST_BY": "dana", "HOLDFAST_ANSWER_SECONDS": "60"}
        ended = run("starter", words, environ=environ, folder=self.path)
        return ended.code, (ended.out + ended.err).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Yield a folder, and end at the test's end what was started there."""
    opened = Folder(tmp_path)
    yield opened
    for process in opened.running:
        left = []
        with suppress(psutil.NoSuchProcess):
            left = psutil.Process(process.pid).children(recursive=True)  # the processes of uvicorn
        process.kill()
        process.communicate()
        for child in left:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    for server in opened.servers():
        with suppress(psutil.NoSuchProcess):
            server.kill()


def ended(process: "subprocess.Popen[str]", answer: str = "") -> int:
    """Type an answer and close the standard input; return the exit code."""
    process.communicate(answer, timeout=3 * PATIENCE)
    return process.returncode


@pytest.mark.extended
def test_the_readme_program_is_killed_and_run_again(folder: Folder) -> None:
    """The README's program asks; killed with its servers while it asks, and run again, it asks again, looks nothing up
    twice, refunds once, and prints the recorded result to whoever runs it a third time.
    """
    program = files(ROOT / "README.md")["agents.py"]
    for action in ("return {", "return f"):
        noted = f'open("{action[-1]}.txt", "a").write("x"); {action}'
        assert action in program
        program = program.replace(f"    {action}", f"    {noted}", 1)
    (folder.path / "agents.py").write_text(program)

    first = folder.start("agents.py")
    folder.until(lambda: "approve? [y/n]" in folder.text("agents.out"), first)
    assert "a script answers in its place" in folder.text("agents.err")
    assert ("Running as root" in folder.text("agents.err")) == (os.geteuid() == 0)
    first.kill()
    for server in folder.servers():
        server.kill()
    first.communicate()
    assert ended(folder.start("agents.py"), "y\n") == 0
    assert folder.text("agents.out").endswith("approve? [y/n] Order 77 is refunded.\n")
    assert ended(folder.start("agents.py")) == 0
    assert folder.text("agents.out") == "Order 77 is refunded.\n"
    assert (folder.text("{.txt"), folder.text("f.txt")) == ("x", "x")
    assert not folder.servers()


@pytest.mark.extended
def test_programs_of_one_folder_and_a_person_beside_them(folder: Folder) -> None:
    """Two programs of one folder with agents of one name never take each other's runs; the first one leaves, and the
    servers stay for the second; a person lists and approves from another terminal while it waits.
    """
    (folder.path / "first.py").write_text(FIRST)
    (folder.path / "waiter.py").write_text(WAITER)
    first = folder.start("first.py")
    folder.until(lambda: "Hi." in folder.text("first.out"), first)
    assert folder.text("first.out") == "first.assistant Hello.\nfirst.other Hi.\n"
    waiter = folder.start("waiter.py")
    folder.until(lambda: "thread pay-1 waits for a decision: pay (request 1)" in folder.text("waiter.err"), waiter)
    assert ended(first) == 0
    assert len(folder.servers()) == 3
    code, listed = folder.command("list")
    assert (code, "pay-1" in listed, "talk-1" in listed) == (0, True, True), listed
    assert folder.command("approve", "pay-1", "1", "--yes")[0] == 0
    assert ended(waiter) == 0
    assert folder.text("waiter.out") == "Paid.\n"
    assert not folder.servers()


@pytest.mark.slow
def test_ctrl_c_stops_what_was_started(folder: Folder) -> None:
    """Ctrl-C while `run_sync` waits ends worker and servers in order, and the thread continues in the next run."""
    (folder.path / "waiter.py").write_text(WAITER)
    waiter = folder.start("waiter.py")
    folder.until(lambda: "waits for a decision" in folder.text("waiter.err"), waiter)
    waiter.send_signal(signal.SIGINT)
    assert ended(waiter) != 0
    assert "KeyboardInterrupt" in folder.text("waiter.err")
    assert not folder.servers()
    again = folder.start("waiter.py")
    folder.until(lambda: "waits for a decision" in folder.text("waiter.err"), again)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--reload",), ("--workers", "2")], ids=["reload", "workers"])
def test_uvicorn(folder: Folder, options: Sequence[str], unused_tcp_port: int) -> None:
    """A chat goes on when uvicorn has reloaded its application, and when several processes serve it."""
    source = folder.path / "chat_app.py"
    source.write_text((ROOT / "examples/programs/chat.py").read_text())
    server = folder.start("-m", "uvicorn", "--port", str(unused_tcp_port), *options, "chat_app:app")
    url = f"http://127.0.0.1:{unused_tcp_port}/chats"
    folder.until(lambda: ask(url, "Is there a table for 2?")[0] == 200, server)
    _, begun = ask(url, "Is there a table for 2?")
    if options == ("--reload",):
        source.write_text(source.read_text().replace("The calendar says", "The new calendar says"))
        folder.until(lambda: "new calendar" in str(ask(url, "Is there a table for 3?")[1]), server)
    answers = [answer(f"{url}/{begun['chat']}", "reserve for 2") for _ in range(4)]
    assert all("a table for 2 at 20:30 is reserved" in text for text in answers)
    server.send_signal(signal.SIGINT)
    ended(server)
    folder.until(lambda: not folder.servers())


def answer(url: str, text: str) -> str:
    """Say something in a chat; return the answer, which may take longer than a request on a busy machine."""
    status, body = ask(url, text)
    while status == 504:
        status, body = ask(url)
    assert status == 200
    return str(body["text"])


def ask(url: str, text: str | None = None) -> tuple[int, Any]:
    """Say something to the chat, or read it; return status and answer, 0 while nothing listens."""
    body = None if text is None else json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


@pytest.mark.extended
def test_a_record_is_anchored_without_any_setting(folder: Folder) -> None:
    """With the embedded servers, a record that its database's owner rewrites is altered, even without a history; and
    the results of its calls are signed.
    """
    (folder.path / "forged.py").write_text(FORGED)
    assert folder.start("forged.py").wait(3 * PATIENCE) == 0, folder.text("forged.err")
    assert folder.text("forged.out").splitlines() == [
        "honest proven",
        "without history proven",
        "forged altered",
        "forged, no anchor altered",
    ]

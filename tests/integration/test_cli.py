"""The command line as a user runs it: `python starter.py` in a separate process, real servers, a real worker."""

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from holdfast import Agent, Catalog, ImageBlock, Limits, TextBlock, errors, tool
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.cli import exits
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.keys import Answer, Keys, Message
from holdfast.cli.text import visible
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.reading.recent import running_calls
from holdfast.client.reading.runs import Runs
from holdfast.client.start_options import check_task, check_thread_id, new_thread_id
from holdfast.client.time_skipping import skip_time
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.core.log.node_seals import make_seal
from holdfast.core.memory.semantic import ItemNotFound, ItemRefused
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.errors import HoldfastError, Refused, TaskInvalid, ThreadIdInvalid
from holdfast.hosting.assembly import build_worker
from holdfast.storage.pool import migrate, open_pool
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, fail, hang, say, steps, together
from holdfast.testing.scripted_worker import LEAVE
from holdfast.worker.construction import running
from tests.security.test_hostile_backup import edit
from tests.support.forked import run
from tests.support.rig import PATIENCE, environ_of

REPOSITORY = Path(__file__).parents[2]
STARTER = REPOSITORY / "starter.py"
ESCAPES = "\x1b[2J\u202epublish"
VARIABLES = re.compile(r"^(TEMPORAL|HOLDFAST|OPENAI|DATABASE)_|^NO_COLOR$|^FORCE_COLOR$")


@tool(effect="read")
def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


@tool(effect="unsafe")
def publish(version: str) -> str:
    """Publish a version."""
    return f"published {version}"


@tool(effect="unsafe", timeout=0.2)
async def stall(version: str) -> str:
    """Never return."""
    await asyncio.Event().wait()
    return version


DUMP = "line \x1b[2J of output\n" * 1_000
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(600_000)


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return DUMP


@tool(effect="read")
def paint() -> Any:
    """Return an image that exceeds the log's limit."""
    return [TextBlock(text="here"), ImageBlock(data=b64encode(PICTURE).decode(), media_type="image/png")]


CATALOG = Catalog(
    agents=[
        Agent(name="releaser", instructions="Release.", tools=[look, publish, stall, dump, paint]),
        Agent(
            name="walker",
            instructions="Walk.",
            limits=Limits(history_events=45),
            tools=[look, publish, stall, dump, paint],
        ),
        Agent(name="sleeper", instructions="Wait.", tools=(), dormancy=True),
        Agent(name="desk", instructions="Delegate.", tools=(), subagents=("releaser",)),
    ],
    tools=[look, publish, stall, dump, paint],
)


def script(conversation: Conversation) -> Reply:
    """Reply as the task says."""
    publishes = call("publish", version="1.2")
    replies = {
        "two": [together(publishes, call("publish", version="1.3")), say("Both dealt with.")],
        "stall": [call("stall", version="1.2"), say("Reconciled.")],
        "escapes": [call("publish", version=ESCAPES), say(ESCAPES)],
        "quick": [say("Done.")],
        "delegate": [call("run_agent", agent="releaser", task="two"), say("Delegated.")],
        "delegate badly": [call("run_agent", agent="releaser", task="bad key"), say("Delegated.")],
        "nap": [call("wait_for_event", name="built", until="20d"), say("Built.")],
        "dump": [call("dump"), say("Done.")],
        "paint": [call("paint"), say("Done.")],
        "bad key": [fail(401, "wrong key")],
        "outage": [fail(503, "overloaded")],
        "walk": [*[call("look", what=str(n)) for n in range(4)], publishes, say("Walked.")],
    }
    if (message := conversation.last_user_message).startswith("tell"):
        return hang() if "for ever" in message else say(f"Told {message}.")
    return steps(replies.get(conversation.last_user_message, [call("look", what="it"), publishes, say("Published.")]))(
        conversation
    )


@workflow.defn(name=WORKFLOW, sandboxed=False)
class Broken:
    """A later release whose code cannot replay runs of an earlier one."""

    @workflow.run
    async def run(self, run: RunInput) -> None:
        """Fail the workflow task, as non-replaying code does."""
        raise RuntimeError("code has changed")


@dataclass
class Ran:
    """The result of a run of `starter.py`."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the single JSON object that it printed."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """Return the JSON objects that it printed, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Shell:
    """Runs `starter.py` with a user's environment."""

    variables: dict[str, str]
    folder: Path = REPOSITORY
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def __call__(self, *words: str, **variables: str) -> Ran:
        """Run a command until it ends."""
        return self.read(None, *words, **variables)

    def read(self, stdin: int | None, /, *words: str, **variables: str) -> Ran:
        """Run a command until it ends, with an open file as its standard input."""
        ended = run("starter", words, environ=self.environment | variables, folder=self.folder, stdin=stdin)
        out, err = ended.out.decode(), ended.err.decode()
        assert "Traceback" not in err
        assert not out.startswith("Traceback")
        return Ran(ended.code, out, err)

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command in a new process."""
        process = subprocess.Popen(
            [sys.executable, str(STARTER), *words],
            env=self.environment | variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.started.append(process)
        return process

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a terminal in which Holdfast is set up."""
        outside = {name: value for name, value in os.environ.items() if not VARIABLES.match(name)}
        return outside | self.variables

    def all(self, *runs: tuple[str, ...], **variables: str) -> list[Ran]:
        """Run several commands, two at a time."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda words: self(*words, **variables), runs))

    def until(self, status: str, thread: str) -> dict[str, Any]:
        """Poll until the thread has that status, and return its state."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state: dict[str, Any] = self("show", thread, "--json").json
            if state["status"] == status:
                return state
            assert time.monotonic() < deadline, f"{thread} is {state['status']}, expected {status}"
            time.sleep(0.2)


HASTY = {"HOLDFAST_ANSWER_SECONDS": "4"}
"""A short limit, for tests in which no worker answers."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Real servers for this module."""
    home = tmp_path_factory.mktemp("state")
    servers = DevStack(home, usual=Ports(grpc=any_free(), ui=any_free(), http=any_free()))
    try:
        yield servers.start()
    finally:
        servers.stop()


@contextmanager
def serving(stack: Stack, folder: Path, *, task_queue: str = "holdfast") -> Iterator[None]:
    """Run a worker in a separate thread."""
    ready, stop, problems = threading.Event(), threading.Event(), list[BaseException]()

    async def serve() -> None:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        await migrate(stack.database_url)
        with ScriptedLLM(script) as llm:
            async with (
                open_pool(stack.database_url, size=4) as pool,
                llm.client() as endpoint,
                build_worker(
                    client,
                    task_queue=task_queue,
                    catalog=CATALOG,
                    llm=endpoint,
                    default_llm="scripted",
                    pool=pool,
                    database_url=stack.database_url,
                    workspaces=folder,
                    graceful_shutdown_timeout=timedelta(seconds=1),
                    debug_mode=True,
                ),
            ):
                ready.set()
                await asyncio.to_thread(stop.wait)

    def body() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            problems.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        ready.wait()
        assert not problems, problems
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not problems, problems


@pytest.fixture(scope="module")
def shell(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A user's terminal, with a running worker."""
    home = tmp_path_factory.mktemp("home")
    # The stack file is elsewhere: the client gets the address from the environment.
    variables = {"HOLDFAST_HOME": str(home), **environ_of(stack)}
    with serving(stack, home):
        shell = Shell(variables)
        yield shell
        for process in shell.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def rest(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Read the remaining output of a process: `communicate` would lose buffered text."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        return process.stdout.read(), process.stderr.read()


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A user's terminal without a running server."""
    home = str(tmp_path_factory.mktemp("nowhere"))
    return Shell({"HOLDFAST_HOME": home, "TEMPORAL_ADDRESS": f"127.0.0.1:{any_free()}"})


def test_the_requester_is_recorded(shell: Shell) -> None:
    """`start --by`, or else HOLDFAST_BY, records who gave the task; without either, the requester stays empty."""
    for thread, words, environ, who in (
        ("by-1", ("--by", "ann"), {"HOLDFAST_BY": "bob"}, "ann"),
        ("by-2", (), {"HOLDFAST_BY": "bob"}, "bob"),
        ("by-3", (), {}, ""),
    ):
        assert shell("start", "quick", "--thread", thread, *words, "--wait", **environ).code == 0
        task = shell("log", thread, "--json").lines[1]
        assert (task["type"], task.get("by", "")) == ("user_message_received", who)


def test_a_run_from_start_to_result(shell: Shell, stack: Stack) -> None:
    """Start, show, pending, approve, log, transcript and list agree, and print the documented JSON."""
    started = shell("start", "Publish 1.2\nplease", "--agent", "releaser", "--thread", "story 1", "--json")
    assert started.code == 0, started.err
    assert set(started.json) == {"thread", "run_id", "status", "ui"}
    assert started.json["thread"] == "story 1"
    assert started.json["status"] in ("running", "waiting_approval")

    waiting = shell.until("waiting_approval", "story 1")
    assert {"thread", "agent", "status", "step", "events", "pending", "usage", "result", "ui"} <= set(waiting)
    (request,) = waiting["pending"]
    assert {"request", "tool", "arguments", "digest", "expires_at"} <= set(request)
    assert request["arguments"] == {"version": "1.2"}

    people, pending = shell.all(("show", "story 1"), ("pending", "story 1", "--json"))
    assert "python starter.py approve 'story 1' 1" in people.out
    assert (waiting["lifecycle"], waiting["now"]) == ("dormant", "waits for a decision on request 1")
    assert waiting["next"][0] == {"when": "request 1 is approved", "then": "publish runs"}
    assert waiting["last_event"]["position"] == waiting["events"] - 1
    assert waiting["errors"] == []
    assert "Next       when request 1 is approved: publish runs\n" in people.out
    assert "\x1b" not in people.out
    assert [{**request, "thread": "story 1"}] == pending.lines

    wrong = shell("approve", "story 1", "1", "--digest", "0" * 64, "--json")
    assert (wrong.code, wrong.json["outcome"]) == (5, "digest_mismatch")
    following = shell.start("log", "story 1", "--follow", "--json")
    right = shell("approve", "story 1", "1", "--digest", request["digest"], "--by", "ann", "--reason", "ok", "--json")
    assert (right.code, right.json) == (0, {"outcome": "accepted", "explanation": ""})

    out, err = following.communicate(timeout=120)
    events = [json.loads(line) for line in out.splitlines()]
    assert (following.returncode, err) == (0, "")
    assert list(range(len(events))) == [event["position"] for event in events]
    assert {"position", "type", "at", "digest"} <= set(events[0])
    assert events[-1]["type"] == "run_finished"
    decisions = [each["outcome"] for each in events if each["type"] == "decision_received"]
    assert decisions == ["accepted"], "what is refused to somebody's face leaves no trace"

    late, shown, messages, tail = shell.all(
        ("deny", "story 1", "1", "--json"),
        ("show", "story 1", "--json"),
        ("transcript", "story 1", "--json"),
        ("log", "story 1", "--after", str(len(events) - 2)),
    )
    assert (late.code, late.json["outcome"]) == (5, "duplicate")
    assert "request 1 was decided before: approve by " in late.err
    assert (shown.json["status"], shown.json["result"]) == ("completed", "Published.")
    assert [each["role"] for each in messages.lines] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [f"{len(events) - 1}"] == [line.split()[0] for line in tail.out.splitlines()]


def test_a_run_is_paused_shown_and_resumed(shell: Shell) -> None:
    """`show` and `log` report who paused a run, why and until when; `resume --say` sends a message first."""
    assert shell("start", "release", "--thread", "halted", "--wait").code == 6
    assert shell("resume", "halted").code == 5
    paused = shell("pause", "halted", "--reason", "let me look", "--until", "4h", "--by", "dana", "--json")
    assert (paused.code, paused.json["outcome"]) == (0, "accepted")
    wrong, state, shown, listed = shell.all(
        ("pause", "halted", "--until", "tomorrow"),
        ("show", "halted", "--json"),
        ("show", "halted"),
        ("list", "--status", "paused", "--json"),
    )
    assert (wrong.code, "neither a time nor a duration" in wrong.err) == (2, True)
    assert (state.json["status"], state.json["paused"]["by"]) == ("paused", "dana")
    assert "let me look" in shown.out
    assert "resume halted" in shown.out
    assert listed.code == 0
    assert shell("approve", "halted", "1", "--by", "alice").code == 0
    assert "tool_call_started" not in [event["type"] for event in shell("log", "halted", "--json").lines][-2:]
    resumed = shell("resume", "halted", "--say", "carry on", "--by", "dana", "--json")
    assert (resumed.code, resumed.json["outcome"]) == (0, "accepted")
    lines = shell("log", "halted").out
    assert "by dana (claimed) until" in lines
    assert "carry on" in lines
    assert shell("resume", "halted", "--say", "too late").code == 5
    assert shell("cancel", "halted").code in (0, 5)


@pytest.mark.extended
def test_a_budget_is_set_shown_and_extended(shell: Shell) -> None:
    """`show`, `list` and `log` report the budget; absurd amounts are rejected before anything is sent."""
    started = shell(
        "start", "release", "--thread", "thrifty", "--wait", "--by", "dana", "--budget", "steps=5,tokens=1m"
    )
    assert started.code == 6
    more = shell("extend", "thrifty", "--budget", "steps=2", "--by", "alice", "--json")
    assert (more.code, more.json["outcome"]) == (0, "accepted")
    wrong, none, unknown, state, shown, listed, log = shell.all(
        ("extend", "thrifty", "--budget", "steps=-1"),
        ("extend", "thrifty", "--budget", "usd=NaN"),
        ("extend", "thrifty", "--budget", "usd=1", "--by", "alice"),
        ("show", "thrifty", "--json"),
        ("show", "thrifty"),
        ("list",),
        ("log", "thrifty"),
    )
    assert [(ran.code, "--budget" in ran.err) for ran in (wrong, none)] == [(2, True)] * 2
    assert (unknown.code, "not usd" in unknown.out) == (5, True)
    assert state.json["budget"]["limits"][0]["allowed"] == "7"
    assert "Budget     steps 2 of 7, 0 reserved, 5 left" in shown.out, shown.out
    assert "steps=5 tokens=" in listed.out, listed.out
    assert "by alice (claimed), steps=2" in log.out
    assert shell("cancel", "thrifty").code == 0


@pytest.mark.extended
def test_a_task_is_refined_and_shown(shell: Shell) -> None:
    """`show` reports the task and its refinements; `list` and `log` report that it was refined."""
    assert shell("start", "release", "--thread", "narrowed", "--wait", "--by", "dana").code == 6
    refined = shell("refine", "narrowed", "--narrow", "Only the notes", "--by", "alice", "--json")
    assert (refined.code, refined.json["outcome"]) == (0, "queued")
    none, both, empty, state, shown, listed = shell.all(
        ("refine", "narrowed"),
        ("refine", "narrowed", "--narrow", "a", "--correct", "b"),
        ("refine", "narrowed", "--rescope", " "),
        ("show", "narrowed", "--json"),
        ("show", "narrowed"),
        ("list",),
    )
    assert [(ran.code, "--rescope" in ran.err) for ran in (none, both)] == [(2, True)] * 2
    assert (empty.code, "malformed" in empty.err) == (5, True)
    assert state.json["task"] == "release"
    assert [each["text"] for each in state.json["refinements"]] == ["Only the notes"]
    assert "Refined    1, narrow, by alice (claimed)" in shown.out
    assert any("(refined) release" in line for line in listed.out.splitlines() if "narrowed" in line)
    assert "refinement 1, narrow, by alice (claimed): Only the notes" in shell("log", "narrowed").out
    changed, unchanged = shell.all(
        ("refine", "narrowed", "--reclassify", "from a mail", "--trust", "web", "--by", "alice", "--json"),
        ("refine", "narrowed", "--reclassify", "nothing"),
    )
    assert (changed.code, changed.json["outcome"], unchanged.code) == (0, "queued", 2)
    assert shell("show", "narrowed", "--json").json["trust"] == "web"
    (event,) = (each for each in shell("log", "narrowed", "--json").lines if each["type"] == "run_reclassified")
    assert (event["trust"], event["by"], event["reason"]) == ("web", "alice", "from a mail")
    assert shell("cancel", "narrowed").code == 0
    late = shell("refine", "narrowed", "--narrow", "Less")
    assert (late.code, "say narrowed" in late.err) == (5, True)


def test_a_dormant_run_is_shown_listed_and_woken_by_an_event(shell: Shell) -> None:
    """`start --wait` returns, `show` and `list` report the awaited event and its deadline, `wake` its outcome."""
    assert shell("start", "nap", "--agent", "sleeper", "--thread", "asleep", "--wait").code == 6
    wrong, alone, other, state, shown = shell.all(
        ("wake", "asleep", "--event", "built", "--data", "[1]"),
        ("wake", "asleep", "--data", "{}"),
        ("wake", "asleep", "--event", "other", "--id", "1", "--json"),
        ("show", "asleep", "--json"),
        ("show", "asleep"),
    )
    assert (wrong.code, alone.code) == (2, 2)
    assert (other.code, other.json["outcome"]) == (0, "buffered")
    (wait,) = state.json["dormancy"]["waits"]
    assert (state.json["status"], wait["event"], wait["until"]) == ("dormant", "built", state.json["dormancy"]["until"])
    assert "waits for event built, until " in shown.out
    assert "wake asleep --event built" in shown.out
    again, listed = shell.all(("wake", "asleep", "--event", "other", "--id", "1"), ("list", "--json"))
    assert again.code == 5
    (row,) = [row for row in listed.lines if row["thread"] == "asleep"]
    assert row["wakes_at"] == wait["until"]
    assert "WAKES" in shell("list").out
    woken = shell("wake", "asleep", "--event", "built", "--data", '{"n": 1}', "--by", "ci", "--json")
    assert (woken.code, woken.json["outcome"]) == (0, "delivered")
    shell.until("completed", "asleep")
    lines = shell("log", "asleep").out
    assert "call 1 waits for event built, until" in lines
    assert 'event built by ci (claimed), delivered {"n":1}' in lines
    assert shell("wake", "asleep").code == 5


@pytest.mark.extended
async def test_time_is_not_skipped_on_other_stacks(shell: Shell, stack: Stack) -> None:
    """The command and the server both reject time skipping for an open run and for a start."""
    started = shell("start", "stay", "--thread", "skip-1", "--idle-limit", "600", "--json")
    assert started.code == 0
    refused = shell("skip", "skip-1", "3w")
    assert refused.code == 5
    assert "is not a server for skipping time" in refused.err
    assert "worker.py --dev --skip-time" in refused.err
    client = await connect_stack(stack)
    with pytest.raises(Refused, match="does not allow skipping time"):
        await skip_time(Runs(client, answer_within=PATIENCE), "skip-1", timedelta(days=1), within=PATIENCE)
    with pytest.raises(RPCError, match="not enabled"):
        await TimeSkipper(client).client.start_workflow(WORKFLOW, RunInput(task="x"), id="skip-2", task_queue="skip-2")
    assert shell("cancel", "skip-1").code == 0
    assert shell("skip", "skip-1", "soon").code == 2


@pytest.mark.extended
def test_list_and_pending_cover_all_threads(shell: Shell) -> None:
    """`list` filters by status; `pending` shows the requests of all threads, each with its thread id."""
    shell.all(("start", "two", "--thread", "across-1"), ("start", "two", "--thread", "across-2"))
    shell.until("waiting_approval", "across-2")
    shell.all(("start", "quick", "--thread", "across-3", "--wait"), ("approve", "across-2", "2"))
    deadline = time.monotonic() + PATIENCE
    wanted = {("across-1", "1"), ("across-1", "2"), ("across-2", "1")}
    while True:  # visibility lags behind
        pending, waiting, everything = shell.all(
            ("pending", "--json"), ("list", "--status", "waiting_approval", "--json"), ("list", "--json")
        )
        requests = {(each["thread"], each["request"]) for each in pending.lines}
        rows = {row["thread"]: row for row in everything.lines}
        settled = wanted <= requests and rows["across-2"]["step"] == 1 and rows["across-3"]["status"] == "completed"
        if settled or time.monotonic() > deadline:
            break
    assert wanted <= requests
    assert {"across-1", "across-2"} <= {row["thread"] for row in waiting.lines}
    assert {"waiting_approval"} == {row["status"] for row in waiting.lines}
    waits = {"thread": "across-1", "agent": "releaser", "status": "waiting_approval", "step": 1, "task": "two"}
    assert rows["across-1"].items() >= {**waits, "pending": 2}.items()
    done = {"thread": "across-3", "agent": "releaser", "status": "completed", "step": 1, "task": "quick"}
    assert rows["across-3"].items() >= {**done, "pending": 0, "llm": "scripted", "cost": None}.items()
    assert rows["across-3"]["usage"]["completion_tokens"] > 0


@pytest.mark.slow
def test_start_wait_shows_how_to_approve_and_ends_with_the_run(shell: Shell) -> None:
    """`start --wait` reports progress and commands on stderr and prints what `show` prints; a failure exits with 1."""
    waiting = shell.start("start", "Publish", "--thread", "wait-1", "--wait", "--until", "end", "--json")
    assert waiting.stderr is not None
    progress = []
    for line in waiting.stderr:
        progress.append(line)
        if "starter.py approve wait-1 1" in line:
            break
    assert any("call 1: ok" in line for line in progress), progress
    assert shell("deny", "wait-1", "1", "--reason", "not on a Friday", "--by", "ann").code == 0
    out, err = rest(waiting)
    assert waiting.returncode == 0, (out, err)
    assert "Denied by ann: not on a Friday" in err
    assert shell("show", "wait-1", "--json").json == json.loads(out)

    stopped = shell.start("start", "Publish", "--thread", "wait-2", "--wait", "--until", "end", "--json")
    assert stopped.stderr is not None
    assert any("starter.py approve wait-2 1" in line for line in stopped.stderr)
    cancelled = shell("cancel", "wait-2", "--json")
    assert (cancelled.code, cancelled.json) == (0, {"outcome": "accepted"})
    out, _ = rest(stopped)
    assert (stopped.returncode, json.loads(out)["status"]) == (1, "cancelled")
    again, retried = shell.all(("cancel", "wait-2"), ("retry", "wait-2"))
    assert (again.code, retried.code) == (5, 5)
    assert "is cancelled" in again.err
    assert "not blocked" in retried.err


def test_start_wait_returns_if_a_person_is_needed(shell: Shell) -> None:
    """`start --wait` exits with 6, the state on stdout and the next command on stderr, for a request or a block."""
    asks, blocked = shell.all(
        ("start", "two", "--thread", "need-1", "--wait", "--json"),
        ("start", "bad key", "--thread", "need-2", "--wait", "--json"),
    )
    assert (asks.code, asks.json["status"], blocked.code, blocked.json["status"]) == (
        *(6, "waiting_approval"),
        *(6, "blocked"),
    )
    assert all(f"starter.py {verb} need-1 {request}" in asks.err for verb in ("approve", "deny") for request in "12")
    assert "starter.py respond need-1 1" in asks.err
    words = shell("start", "two", "--thread", "need-3", "--wait")
    assert (words.code, words.err.count("Request 1 of need-3"), "Request 1" in words.out) == (6, 1, False)
    assert "waits for 2 decisions" in words.out
    assert "starter.py watch need-1" in asks.err
    assert "starter.py retry need-2" in blocked.err


@pytest.mark.extended
def test_start_wait_returns_if_a_sub_agent_needs_a_person(shell: Shell) -> None:
    """`start --wait` exits with 6 for a request or a block below the run; stderr has the commands for that thread."""
    asks, blocked = shell.all(
        ("start", "delegate", "--agent", "desk", "--thread", "family-1", "--wait", "--json"),
        ("start", "delegate badly", "--agent", "desk", "--thread", "family-2", "--wait", "--json"),
    )
    assert (asks.code, asks.json["status"], blocked.code) == (6, "running", 6)
    assert [(each["thread"], each["status"]) for each in asks.json["attention"]] == [("family-1.1", "waiting_approval")]
    assert "starter.py approve family-1.1 1" in asks.err
    assert blocked.json["attention"][0]["blocked"]["cause"] == "LLMRejected"
    assert "starter.py retry family-2.1" in blocked.err


@pytest.mark.extended
def test_an_unattended_start_fails_instead_of_waiting(shell: Shell) -> None:
    """`start --unattended --wait` exits with 1 and the cause; nobody is asked."""
    asks, blocked = shell.all(
        ("start", "two", "--thread", "alone-1", "--unattended", "--wait", "--json"),
        ("start", "bad key", "--thread", "alone-2", "--unattended", "--wait", "--json"),
    )
    assert (asks.code, asks.json["status"], asks.json["pending"]) == (1, "failed", [])
    assert "require approval" in asks.json["result"]
    assert (blocked.code, blocked.json["status"], "wrong key" in blocked.json["result"]) == (1, "failed", True)
    assert "retry" not in blocked.err
    assert shell("log", "alone-1", "--json").lines[-1]["cause"] == "ApprovalRequired"


def test_a_task_and_a_message_come_from_a_pipe(shell: Shell) -> None:
    """`-` reads stdin as bounded, non-empty UTF-8; on a terminal without a pipe it is an error, not a silent wait."""

    def piped(content: bytes, *words: str) -> Ran:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            return shell.read(file.fileno(), *words)

    begun = piped(b"tell 1\n", "start", "-", "--thread", "pipe", "--idle-limit", "30", "--wait", "--json")
    assert (begun.code, begun.json["task"], begun.json["result"]) == (0, "tell 1", "Told tell 1.")
    assert piped(b"tell 2", "say", "pipe", "-").code == 0
    for given, why in ((b"", "is empty"), (b"x" * 200_001, "more than 200,000 bytes"), (b"\xff", "UTF-8")):
        refused = piped(given, "start", "-")
        assert (refused.code, why in " ".join(refused.err.split())) == (2, True), refused.err
    terminal, other = pty.openpty()
    refused_there = shell.read(other, "start", "-")
    os.close(terminal)
    os.close(other)
    assert refused_there.code == 2
    assert "nothing is piped" in refused_there.err


def test_migrating_is_a_step_of_its_own(shell: Shell, stack: Stack) -> None:
    """`--check` exits with 1 and changes nothing; `migrate` reports both versions and may be repeated."""
    name = f"migrating_{time.monotonic_ns()}"
    with psycopg.connect(stack.database_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    url = re.sub(r"/\w+(?=$|\?)", f"/{name}", stack.database_url)
    checked = shell("migrate", "--check", "--json", DATABASE_URL=url)
    assert (checked.code, checked.json["from"], checked.json["applied"]) == (1, "", [])
    assert "starter.py migrate" in checked.err
    done = shell("migrate", "--json", DATABASE_URL=url).json
    assert (done["from"], done["to"], done["missing"]) == ("", done["applied"][-1], [])
    again, ready = shell.all(("migrate",), ("migrate", "--check"), DATABASE_URL=url)
    assert (again.code, ready.code) == (0, 0)
    assert f"up to date: {done['to']}" in again.out
    assert shell("migrate", DATABASE_URL="postgresql://nobody@127.0.0.1:1/x").code == 4


def test_an_artifact_is_read_by_readers_of_its_thread(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """`artifact` is raw in pipes and files, and limited to what the thread's log refers to."""
    shell.variables["DATABASE_URL"] = stack.database_url
    assert shell("start", "dump", "--thread", "dump", "--wait").code == 0
    assert shell("start", "quick", "--thread", "no-dump", "--wait").code == 0
    (event,) = [event for event in shell("log", "dump", "--json").lines if event.get("artifact")]
    address = event["artifact"]
    assert shell("artifact", "dump", address).out == DUMP
    described = shell("artifact", "dump", address, "--json").json
    assert described == {
        "address": address,
        "size": len(DUMP.encode()),
        "digest": address.removeprefix("sha256:"),
        "media_type": "text/plain; charset=utf-8",
        "position": event["position"],
    }
    file = tmp_path / "dump.txt"
    assert shell("artifact", "dump", address, "--output", str(file)).code == 0
    assert file.read_text() == DUMP
    assert shell("artifact", "dump", address, "--output", str(file)).code == 2, "it exists"
    elsewhere, nonsense = shell.all(("artifact", "no-dump", address), ("artifact", "dump", "sha256:../../etc/passwd"))
    assert (elsewhere.code, elsewhere.out, nonsense.code) == (3, "", 3)
    assert "refers to no artifact" in elsewhere.err


@pytest.mark.extended
def test_artifacts_cannot_act_on_a_terminal(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """An image that was too large for a result is an artifact of the thread, and is never written to a terminal.

    Text is escaped there.
    """
    shell.variables["DATABASE_URL"] = stack.database_url
    assert shell("start", "paint", "--thread", "paint", "--wait").code == 0
    (address,) = re.findall(r"it is the artifact (sha256:[0-9a-f]{64})", shell("log", "paint", "--json").out)
    assert shell("artifact", "paint", address, "--json").json["media_type"] == "image/png"
    assert b"image/png of 600,008 bytes, and stdout is a terminal" in shown_on_terminal(
        shell, "artifact", "paint", address
    )
    file = tmp_path / "it.png"
    assert shell("artifact", "paint", address, "--output", str(file)).code == 0
    assert file.read_bytes() == PICTURE
    assert shell("start", "dump", "--thread", "dumped", "--wait").code == 0
    (address,) = [event["artifact"] for event in shell("log", "dumped", "--json").lines if event.get("artifact")]
    shown = shown_on_terminal(shell, "artifact", "dumped", address)
    assert b"\x1b" not in shown
    assert b"\\x1b[2J" in shown


def shown_on_terminal(shell: Shell, *words: str) -> bytes:
    """Return the output of a command on a terminal."""
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(STARTER), *words],
        env=shell.environment | {"COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    shown = b""
    with suppress(OSError):  # the terminal was closed
        while part := os.read(terminal, 65_536):
            shown += part
    os.close(terminal)
    process.wait()
    return b" ".join(shown.split())


def test_a_thread_takes_messages(shell: Shell) -> None:
    """A run stays open for messages, the next message re-opens a closed thread, and the LLM gets all of them."""
    begun = shell("start", "tell 1", "--thread", "talk", "--idle-limit", "30", "--wait", "--json")
    assert (begun.code, begun.json["status"], begun.json["result"]) == (0, "waiting_message", "Told tell 1.")
    shown = shell("show", "talk")
    assert "python starter.py say talk MESSAGE" in shown.out
    accepted = shell("say", "talk", "tell 2 for ever", "--by", "ann", "--json")
    busy, queued = shell.all(
        ("say", "talk", "tell 3", "--when-busy", "reject", "--json"), ("say", "talk", "tell 4", "--json")
    )
    assert [(ran.code, ran.json["outcome"]) for ran in (accepted, busy, queued)] == [
        (0, "accepted"),
        (5, "busy"),
        (0, "queued"),
    ]
    assert shell("say", "talk", " ", "--json").json["outcome"] == "malformed"
    assert shell("cancel", "talk").code == 0
    shell.until("cancelled", "talk")

    reopened = shell("say", "talk", "tell 5", "--json")
    assert (reopened.code, reopened.json["outcome"]) == (0, "reopened")
    ended = shell.until("completed", "talk")
    waited = shell("start", "tell 6", "--thread", "talk", "--wait")
    assert waited.code == 0
    assert "Told tell 6." in waited.out
    assert "tell 1" not in waited.err  # earlier events are not shown again
    said, log, then = shell.all(
        ("transcript", "talk", "--json"), ("log", "talk", "--json"), ("show", "talk", "--at", str(ended["events"] - 1))
    )
    asked = [message["content"] for message in said.lines if message["role"] == "user"]
    assert asked[:2] == ["tell 1", "tell 2 for ever"]
    assert asked[-2:] == ["tell 5", "tell 6"]
    assert {reopened.json["run_id"]} < {each["run_id"] for each in log.lines if each["type"] == "run_started"}
    assert "as it was after event" in then.out
    assert "Told tell 5." in then.out
    beyond = shell("show", "talk", "--at", "999")
    assert (beyond.code, f"positions 0 to {len(log.lines) - 1}" in beyond.err) == (2, True)


@pytest.mark.extended
def test_a_run_is_followed_across_continue_as_new(shell: Shell) -> None:
    """`log --follow` shows every event once, and `show` and `transcript` include the earlier Temporal runs."""
    assert shell("start", "walk", "--agent", "walker", "--thread", "walk").code == 0
    following = shell.start("log", "walk", "--follow", "--json")
    shell.until("waiting_approval", "walk")
    assert shell("approve", "walk", "1").code == 0
    out, err = following.communicate(timeout=120)
    events = [json.loads(line) for line in out.splitlines()]
    assert (following.returncode, err) == (0, "")
    assert list(range(len(events))) == [event["position"] for event in events]
    assert sum(event["type"] == "run_continued" for event in events) >= 1
    shown, messages = shell.all(("show", "walk", "--json"), ("transcript", "walk", "--json"))
    assert (shown.json["status"], shown.json["task"], shown.json["events"]) == ("completed", "walk", len(events))
    assert len(messages.lines) == 12


@pytest.mark.slow
def test_the_record_is_verified_and_pruned(shell: Shell, stack: Stack) -> None:
    """`verify` names an altered event; `prune` lists, prompts only on a terminal, and removes closed threads."""
    database = {"DATABASE_URL": stack.database_url}
    assert shell("start", "quick", "--thread", "kept", "--wait").code == 0
    good = shell("verify", "kept", "--json", **database)
    assert (good.code, good.json["verdict"], good.json["from"]) == (0, "proven", ["history", "record"])
    demanded = shell("verify", "kept", "--require", "seals,record,ledger,anchors", "--json", **database)
    assert (demanded.code, demanded.json["verdict"]) == (7, "not_proven")
    assert [each["what"] for each in demanded.json["not_checked"]] == ["anchors"]
    assert shell("verify", "kept", "--require", "everything", **database).code == 2
    # A namespace that every server has, without threads of Holdfast.
    forgotten = shell("show", "kept", "--json", TEMPORAL_NAMESPACE="temporal-system", **database)
    assert (forgotten.code, forgotten.json["result"]) == (0, "Done.")
    alone = shell("verify", "kept", "--json", TEMPORAL_NAMESPACE="temporal-system", **database)
    assert (alone.code, alone.json["verdict"]) == (7, "not_proven")
    assert "history" in {each["what"] for each in alone.json["not_checked"]}
    assert "Temporal does not have kept any more" in forgotten.err

    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        of_it = "thread = (SELECT id FROM holdfast.threads WHERE thread = 'kept')"
        connection.execute(f"UPDATE holdfast.events SET at = at - %s WHERE {of_it}", [400 * 86_400 * 1_000_000])
    bad, listed = shell.all(("verify", "kept"), ("prune", "--older-than", "1y", "--dry-run", "--json"), **database)
    assert (bad.code, "event 0, in the record" in bad.out) == (1, True)
    assert [row["thread"] for row in listed.lines] == ["kept"]

    def talk(terminal: int, read: "Read") -> None:
        read("[y/N]")
        os.write(terminal, b"n\r")

    code, shown = on_terminal(Shell(shell.variables | database), ["prune", "--older-than", "1y"], talk)
    assert (code, "Nothing was removed." in shown) == (0, True)
    prune = ("prune", "--older-than", "1y", "--yes", "--json")
    assert shell(*prune, TEMPORAL_ADDRESS=f"127.0.0.1:{any_free()}", **database).code == 4
    removed = shell(*prune, **database)
    assert (removed.code, [row["removed"] for row in removed.lines]) == (0, [True])
    with psycopg.connect(stack.database_url) as connection:
        assert connection.execute(f"SELECT FROM holdfast.events WHERE {of_it}").fetchall() == []


@pytest.mark.extended
def test_a_thread_is_backed_up_and_forgotten(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """Every verb answers clearly for a forgotten thread; text from a damaged backup is escaped."""
    database = {"DATABASE_URL": stack.database_url}
    assert shell("start", "quick", "--thread", "private", "--wait").code == 0
    made = shell("backup", "-o", str(tmp_path / "b"), "--json", **database)
    # Other tests damage artifacts of this database: only those may be missing.
    assert (made.code, made.json["events"] > 0) == (1 if made.json["missing"] else 0, True)
    asked = ("forget-thread", "private", "--reason", "asked to", "--yes", "--by", "ann", "--json")
    done = shell(*asked, **database)
    for _ in range(60):  # until Temporal has removed the run, the command says so and must be repeated
        if done.code == 0:
            break
        assert done.json["remaining_runs"]
        done = shell(*asked, **database)
    assert (done.code, done.json["forgotten_by"], done.json["remaining_runs"]) == (0, "ann", [])
    assert "Not removed: backups" in done.err
    verified, *answers = shell.all(
        ("verify", "private", "--json"),
        *((verb, "private") for verb in ("show", "log", "transcript")),
        ("export", "private", "-o", str(tmp_path / "private.holdfast")),
        **database,
    )
    assert not (tmp_path / "private.holdfast").exists()
    assert (verified.code, verified.json["not_checked"][0]["what"]) == (7, "content")
    assert all((each.code, "was forgotten on" in each.err) == (3, True) for each in answers)
    edit("events", position=1)(tmp_path / "b")
    refused, restored = (
        shell("restore", str(tmp_path / "b"), "--into-existing", "--json", *more, **database)
        for more in ((), ("--without-damaged",))
    )
    assert (refused.code, "--without-damaged" in refused.err) == (1, True)
    assert (restored.code, len(restored.json["damaged"])) == (1, 1)
    assert "is damaged in the backup, and its log was left out" in restored.err
    (tmp_path / "b" / "manifest.json").write_text('{"parts": [{"kind": "\\u001b[2J"}], "\\u001b[31m": 1}')
    damaged = shell("restore", str(tmp_path / "b"), **database)
    assert (damaged.code, "is not that of a backup" in damaged.err, "\x1b" in damaged.err) == (1, True, False)


@pytest.mark.extended
def test_a_fork_gets_an_llm_and_a_policy(shell: Shell, tmp_path: Path) -> None:
    """`fork --llm --policy` applies both, `show` names them, `diff` compares the fork; a bad file starts nothing."""
    strict, bad = tmp_path / "strict.yaml", tmp_path / "bad.yaml"
    strict.write_text("rules:\n  - deny: publish\n    reason: not in a fork\n  - allow: '*'\n")
    bad.write_text("rules: &rules\n  - deny: publish\nterms: *rules\n")
    assert shell("start", "quick", "--thread", "plain", "--wait").code == 0
    fork = ("fork", "plain", "--say", "two", "--llm", "other", "--policy")
    refused, made = shell.all((*fork, str(bad), "--id", "never"), (*fork, str(strict), "--id", "plain-b", "--json"))
    assert (refused.code, "bad.yaml:" in refused.err, shell("show", "never").code) == (2, True, 3)
    assert (made.code, made.json["thread"]) == (0, "plain-b")
    state = shell.until("completed", "plain-b")
    assert (state["fork"]["llm"], len(state["fork"]["policies"])) == ("other", 1)
    diff = shell("diff", "plain", "plain-b")
    assert (diff.code, "The same up to event" in diff.out) == (0, True)


@pytest.mark.extended
def test_a_run_is_exported_and_its_file_verified(shell: Shell, nowhere: Shell, stack: Stack, tmp_path: Path) -> None:
    """`export` writes a file once; `verify` checks it offline and distinguishes valid files, faults and bad usage."""
    database = {"DATABASE_URL": stack.database_url}
    made, altered, key = tmp_path / "quick.holdfast", tmp_path / "altered.holdfast", tmp_path / "a.key"
    public = nowhere("keygen", "--out", str(key), "--json").json["public"]
    stranger = nowhere("keygen", "--out", str(tmp_path / "b.key"), "--json").json["public"]
    assert shell("start", "quick", "--thread", "carried", "--wait").code == 0
    done = shell("export", "carried", "-o", str(made), "--key", str(key), "--json", **database)
    assert (done.code, done.json["file"], done.json["signed"], done.json["left_out"]) == (0, str(made), True, [])
    again, unknown, nameless, words, shared, alone = shell.all(
        ("export", "carried", "-o", str(made)),
        ("export", "nobody-knows", "-o", str(tmp_path / "none.holdfast")),
        ("export", "carried"),
        ("export", "carried", "--format", "openai"),
        ("export", "carried", "-o", str(tmp_path / "shared.holdfast"), "--redact"),
        ("export", "carried", "-o", str(tmp_path / "alone.holdfast"), "--no-subagents", "--key", str(key)),
        **database,
    )
    assert (again.code, "is not overwritten" in again.err) == (2, True)
    assert (unknown.code, nameless.code, "-o FILE.holdfast" in nameless.err) == (3, 2, True)
    assert (words.code, words.json["messages"][-1]["content"]) == (0, "Done.")
    assert (shared.code, "It is not signed" in shared.err) == (0, True)
    assert (alone.code, (tmp_path / "alone.holdfast").read_bytes()) == (0, made.read_bytes())
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["a.key", "alone.holdfast", "b.key", "quick.holdfast", "shared.holdfast"]

    content = made.read_bytes()
    altered.write_bytes(content.replace(b'"Done."', b'"Gone."'))
    good, shown, bad, other, missing, no_key, redacted = nowhere.all(
        ("verify", str(made), "--signer", public, "--json"),
        ("verify", str(made)),
        ("verify", str(altered)),
        ("verify", str(made), "--signer", stranger),
        ("verify", str(tmp_path / "missing.holdfast")),
        ("verify", str(made), "--signer", "alice"),
        ("verify", str(tmp_path / "shared.holdfast"), "--json"),
    )
    assert (good.code, good.json["head"], good.json["signers"]) == (0, done.json["head"], [public])
    assert [each["what"] for each in good.json["not_checked"]] == ["history", "keys", "anchors"]
    assert (good.json["verdict"], good.json["checked"]) == ("proven", ["ledger", "artifacts", "signature"])
    assert (shown.code, "not checked: signer" in shown.out) == (7, True)
    assert (bad.code, "memory/log.jsonl" in bad.out) == (1, True)
    assert (other.code, "is not signed with the key" in other.out) == (1, True)
    assert (missing.code, no_key.code) == (3, 2)
    assert (redacted.code, redacted.json["redacted"]) == (7, True)
    assert {"signature", "bodies", "artifacts", "ledger"} <= {each["what"] for each in redacted.json["not_checked"]}


@pytest.mark.extended
def test_seals_are_exported_and_outlive_their_thread(
    shell: Shell, nowhere: Shell, stack: Stack, tmp_path: Path
) -> None:
    """`export` includes matching seals, `verify FILE --nodes` counts them, and an altered thread is pruned without."""
    folder, key = tmp_path / "anchors", encode_key(bytes(32))
    folder.mkdir()
    sealing = {"HOLDFAST_ANCHORS": str(folder), "HOLDFAST_NODE_KEY": str(tmp_path / "node.key")}
    database = {"DATABASE_URL": stack.database_url}
    assert shell("start", "quick", "--thread", "sealed", "--wait").code == 0
    last = shell("log", "sealed", "--json").lines[-1]
    # A namespace that every server has, without threads of Holdfast.
    elsewhere = "temporal-system"
    for namespace in ("default", elsewhere):
        seal = make_seal(
            key,
            namespace=namespace,
            thread="sealed",
            events=last["position"] + 1,
            head=last["digest"],
            at=datetime.now(UTC),
        )
        asyncio.run(FolderAnchor(folder).put(seal))
    made = shell("export", "sealed", "-o", str(tmp_path / "s.holdfast"), "--json", **database, **sealing)
    assert (made.code, made.json["seals"], "It has 1 seal" in made.err) == (0, 1, True)
    good, other = nowhere.all(
        ("verify", str(tmp_path / "s.holdfast"), "--nodes", public_key(key), "--json"),
        ("verify", str(tmp_path / "s.holdfast"), "--nodes", public_key(encode_key(b"x" * 32)), "--json"),
    )
    # The exporter chose those seals, so they prove nothing by themselves.
    assert (good.code, good.json["seals"], other.json["seals"]) == (7, 1, 0)

    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        of_it = "thread = (SELECT id FROM holdfast.threads WHERE thread = 'sealed')"
        connection.execute(f"UPDATE holdfast.events SET at = at - %s WHERE {of_it}", [4_000 * 86_400 * 1_000_000])
    gone = {"TEMPORAL_NAMESPACE": elsewhere, **database, **sealing}
    assert shell("prune", "--older-than", "10y", "--yes", **gone).code == 0
    removed = shell("verify", "sealed", "--json", **gone)
    assert (removed.code, "has no events of this thread" in removed.json["reason"]) == (1, True)


def test_a_call_with_unknown_outcome_is_reconciled(shell: Shell) -> None:
    """A person resolves a call whose outcome is unknown with the commands shown; approving it is rejected."""
    assert shell("start", "stall", "--thread", "unclear").code == 0
    shell.until("waiting_approval", "unclear")
    assert shell("approve", "unclear", "1").code == 0
    assert shell.until("waiting_approval", "unclear")["pending"][0]["kind"] == "reconcile"
    shown, wrong = shell.all(("pending", "unclear"), ("approve", "unclear", "2", "--json"))
    assert "starter.py reconcile unclear 2 --happened" in shown.out
    assert (wrong.code, wrong.json["outcome"]) == (5, "wrong_kind")
    right = shell("reconcile", "unclear", "2", "--happened", "--result", "it was there", "--json")
    assert (right.code, right.json["outcome"]) == (0, "accepted")
    shell.until("completed", "unclear")
    assert "it was there" in shell("transcript", "unclear").out


def test_a_blocked_run_shows_why_and_is_retried(shell: Shell) -> None:
    """A blocked run shows the provider's error and the command to resume it."""
    assert shell("start", "bad key", "--thread", "blocked").code == 0
    assert shell.until("blocked", "blocked")["blocked"]["cause"] == "LLMRejected"
    shown = shell("show", "blocked")
    retried = shell("retry", "blocked", "--by", "ann", "--json")
    assert "wrong key" in shown.out
    assert "python starter.py retry blocked" in shown.out
    assert (retried.code, retried.json) == (0, {"outcome": "accepted"})
    assert "by ann" in shell("log", "blocked").out


@pytest.mark.extended
def test_show_reports_an_outage(shell: Shell) -> None:
    """The screen shows which call Temporal is retrying, which attempt it is, and why."""
    assert shell("start", "outage", "--thread", "outage").code == 0
    deadline = time.monotonic() + PATIENCE
    while "call_llm: attempt" not in (shown := shell("show", "outage")).out:
        assert time.monotonic() < deadline
    assert "503: overloaded" in shown.out
    assert "outage" in {row["thread"] for row in shell("list", "--status", "running", "--json").lines}
    with shell.start("start", "outage", "--thread", "outage", "--wait") as waiting:
        assert waiting.stderr is not None
        assert any("the LLM does not answer: 503: overloaded" in line for line in waiting.stderr)
        assert shell("cancel", "outage").code == 0
        assert waiting.wait(PATIENCE) == 1


@pytest.mark.extended
def test_the_same_start_happens_once(shell: Shell) -> None:
    """A job that repeats its command starts nothing again, open or closed; another task continues a closed thread."""
    words = ("start", "two", "--thread", "nightly")
    first = shell(*words, "--json")
    again = shell(*words, "--json")
    assert (first.code, again.code, again.json["run_id"]) == (0, 0, first.json["run_id"])
    assert "nothing was started again" in again.err
    assert shell(*words, "--wait").code == 6  # it waits for the approvals of the existing run
    assert shell("start", "tell 9", "--thread", "nightly").code == 2  # another task while a run is open
    shell.all(("deny", "nightly", "1"), ("deny", "nightly", "2"))
    ended = shell.until("completed", "nightly")
    for _ in range(2):
        assert shell(*words, "--wait").code == 0
    assert shell.until("completed", "nightly")["events"] == ended["events"]
    assert shell("start", "tell 9", "--thread", "nightly", "--wait").code == 0
    more = shell.until("completed", "nightly")
    assert more["events"] > ended["events"]
    for task in ("two", "tell 9"):  # the first start of the thread, and its latest
        assert shell("start", task, "--thread", "nightly", "--wait").code == 0
    assert shell.until("completed", "nightly")["events"] == more["events"]


def test_cancel_records_the_reason(shell: Shell) -> None:
    """The result of a cancelled run contains the reason."""
    assert shell("start", "two", "--thread", "withdrawn").code == 0
    shell.until("waiting_approval", "withdrawn")
    assert shell("cancel", "withdrawn", "--reason", "the order was withdrawn").code == 0
    assert shell.until("cancelled", "withdrawn")["result"] == "cancelled: the order was withdrawn"


def test_errors_for_programs_are_json(nowhere: Shell) -> None:
    """With `--json`, every error is one JSON object on stderr, and stdout is empty."""
    for words, kind, code in (
        (("show", "x", "--json"), "ServerUnreachable", 4),
        (("show", "--json"), "UsageError", 2),
        (("start", "", "--json"), "TaskInvalid", 2),
        (("refine", "x", "--json"), "UsageError", 2),
        (("bogus", "--json"), "UsageError", 2),
    ):
        ran = nowhere(*words)
        error = json.loads(ran.err.splitlines()[-1])
        assert (ran.code, ran.out, error["error"], error["exit_code"]) == (code, "", kind, code)
        assert error["message"]


@pytest.mark.extended
def test_characters_that_a_terminal_cannot_show_are_escaped(nowhere: Shell, tmp_path: Path) -> None:
    """If the output is not UTF-8, unencodable characters are escaped, and the rest of the answer is printed."""
    file = tmp_path / "p.yaml"
    file.write_text("rules:\n  - deny: pay\n    reason: R\u00fcckfrage \u2013 nie \U0001f648\n", encoding="utf-8")
    process = nowhere.start("policy", "explain", str(file), "--tool", "pay", PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "deny pay" in out, err) == (0, True, "")
    assert "R\\xfcckfrage \\u2013 nie \\U0001f648" in out


def test_start_rejects_invalid_input(shell: Shell) -> None:
    """A taken id is a usage error with advice; an unknown agent or folder shows the worker's error."""
    assert shell("start", "two", "--thread", "taken").code == 0
    taken, agent, folder = shell.all(
        ("start", "again", "--thread", "taken"),
        ("start", "go", "--agent", "nobody", "--json"),
        ("start", "go", "--workspace", "/no/such/folder"),
    )
    assert [each.code for each in (taken, agent, folder)] == [2, 3, 3]
    assert "starter.py say taken MESSAGE" in taken.err
    assert "no agent named 'nobody'; this worker's catalog has: releaser" in agent.err
    assert agent.out == ""
    assert "'/no/such/folder' is not a folder on this worker" in folder.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("start", ""), "the task is empty"),
        (("start", " \n "), "the task is empty"),
        (("start", "go", "--thread", ""), "cannot be a thread id"),
        (("start", "go", "--thread", "a\nb"), "cannot be a thread id"),
        (("show", " "), "cannot be a thread id"),
        (("bogus",), "No such command 'bogus'"),
        (("show",), "Missing argument"),
        (("show", "x", "--bogus"), "No such option: --bogus"),
        (("reconcile", "x", "1"), "one of --happened, --absent, --undo and --abandon"),
        (("reconcile", "x", "1", "--absent", "--result", "y"), "--result belongs to --happened"),
        (("log", "x", "--after", "many"), "--after"),
        (("start",), "say it as text, or name a file with --content"),
        (("say", "x", "hello", "--content", "-"), "say it as text, or name a file with --content"),
        (("say", "x", "--content", "no-such-file"), "--content no-such-file cannot be read"),
        (("say", "x", "hello", "--when-busy", "shout"), "--when-busy"),
        (("show", "x", "--at", "-1"), "--at"),
        (("prune", "--older-than", "soon", "--yes"), "is not an age; write it as 48h, 30d, 8w or 1y"),
        (("prune", "--older-than", "30d"), "there is no terminal to ask on"),
        (("prune", "--older-than", "30d", "--yes"), "set DATABASE_URL"),
        (("prune", "--yes"), "say one of --older-than AGE and --rule END=AGE"),
        (("prune", "--rule", "open=1d", "--yes"), "is not a rule; write END=AGE"),
        (("forget-thread", "x"), "there is no terminal to ask on"),
        (("forget-thread", "x", "--yes"), "set DATABASE_URL"),
        (("backup", "-o", "x"), "set DATABASE_URL"),
        (("restore", "x"), "set DATABASE_URL"),
    ],
)
def test_bad_usage_is_2_without_a_server(nowhere: Shell, words: tuple[str, ...], message: str) -> None:
    """Bad usage is reported before any server is contacted."""
    ran = nowhere(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_bad_settings_are_2_and_name_the_variable(nowhere: Shell) -> None:
    """An invalid setting is a usage error."""
    ran = nowhere("list", HOLDFAST_LOG_LEVEL="loud")
    assert ran.code == 2
    assert "HOLDFAST_LOG_LEVEL" in ran.err


def test_help_has_examples_for_every_verb(nowhere: Shell) -> None:
    """`--help` lists every verb, and each verb's own help shows how to use it."""
    overview = nowhere("--help")
    verbs = re.findall(r"^  ([a-z-]+)  ", overview.out.partition("Run agents:")[2], re.MULTILINE)
    expected = (
        "init start say refine retry pause resume compact cancel extend wake publish loop schedule approve deny "
        "respond reconcile delegate-authority revoke lift keygen revoke-key trust approvers show list log transcript "
        "artifact prompt pending watch verify export move import fork restart diff eval remember recall forget replay "
        "prune migrate doctor skip backup restore forget-thread policy mcp"
    )
    assert (0, expected.split()) == (overview.code, verbs)
    groups = ("approvers", "mcp", "policy", "schedule")
    commands: list[tuple[str, ...]] = [(verb,) for verb in verbs if verb not in groups]
    commands += [("approvers", verb) for verb in ("list", "add", "remove")]
    commands += [("policy", verb) for verb in ("check", "explain")]
    commands += [("mcp", verb) for verb in ("lock", "diff", "show")]
    commands += [("schedule", verb) for verb in ("add", "list", "show", "pause", "resume", "trigger", "delete")]
    for words, ran in zip(commands, nowhere.all(*((*words, "--help") for words in commands)), strict=True):
        assert ran.code == 0
        assert f"python starter.py {' '.join(words)}" in ran.out.partition("Examples:")[2]
        assert "--json" in ran.out
        assert "--debug" in ran.out


HEAVY = (
    "openai",
    "psycopg",
    "rich",
    "temporalio",
    "holdfast.core.log.events",
    "holdfast.activities",
    "holdfast.workflows",
)
"""Modules that take longer to import than help or a usage error may take."""
AT_EXIT = """
import os, sys
from holdfast import starter
end = os._exit
def report(code):
    print(*(sys.modules.keys() & {modules!r}), file=sys.stderr, flush=True)
    end(0)
os._exit = report
starter.main()
"""


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (("--help",), {*HEAVY, "pydantic", "asyncio"}),
        pytest.param(
            ("start", "--help"), {*HEAVY, "asyncio"}, marks=pytest.mark.extended
        ),  # typer itself reads types with pydantic
        pytest.param(("show", "x", "--at", "many"), {*HEAVY, "asyncio"}, marks=pytest.mark.extended),
        pytest.param(("reconcile", "x", "1"), {*HEAVY}, marks=pytest.mark.extended),
        pytest.param(("start", ""), {*HEAVY}, marks=pytest.mark.extended),
        pytest.param(("show", ""), {*HEAVY}, marks=pytest.mark.extended),
        pytest.param(("show", "x"), {*HEAVY}, marks=pytest.mark.extended),  # nothing listens there
    ],
)
def test_help_and_usage_errors_load_nothing_heavy(nowhere: Shell, words: tuple[str, ...], modules: set[str]) -> None:
    """Help, bad usage and a closed port load neither Temporal's client, nor rich, nor the event models."""
    ran = subprocess.run(
        [sys.executable, "-c", AT_EXIT.format(modules=modules), *words],
        cwd=REPOSITORY,
        env=nowhere.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.splitlines()[-1].split() == []


@pytest.mark.extended
def test_no_verb_loads_the_llm_client() -> None:
    """A verb that reads threads imports neither the LLM's client nor the activities."""
    code = (
        "import sys, holdfast.cli.screens.thread_screens, holdfast.cli.screens.record_screens;"
        "print(*({'openai', 'psycopg', 'holdfast.activities'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_every_error_with_an_exit_code_is_ours() -> None:
    """The table of exit codes contains only class names of our own errors."""
    named = {name: getattr(errors, name, None) for name in exits._CODES}
    named |= {kind.__name__: kind for kind in (ItemNotFound, ItemRefused)}
    assert all(isinstance(kind, type) and issubclass(kind, HoldfastError) for kind in named.values()), named
    assert tuple(
        exits.exit_code(error)
        for error in (ItemNotFound("x"), errors.Refused("x"), errors.NoWorker("x"), ValueError("x"))
    ) == (3, 5, 4, 1)


@pytest.mark.extended
def test_an_unknown_thread_is_3(shell: Shell) -> None:
    """Every verb that takes a thread reports an unknown one."""
    verbs = [("show",), ("log", "--follow"), ("transcript",), ("pending",), ("retry",), ("cancel",), ("watch",)]
    runs = [(verb[0], "nobody-knows", *verb[1:]) for verb in verbs]
    runs += [("approve", "nobody-knows", "1"), ("reconcile", "nobody-knows", "1", "--abandon")]
    runs += [("say", "nobody-knows", "hello"), ("show", "nobody-knows", "--at", "0"), ("verify", "nobody-knows")]
    for words, ran in zip(runs, shell.all(*runs), strict=True):
        assert (ran.code, ran.out) == (3, ""), words
        assert "there is no thread 'nobody-knows'" in ran.err


def test_without_a_server_it_is_4(nowhere: Shell) -> None:
    """If no server listens, every verb says so at once, with a traceback only for --debug."""
    shown, listed, started, doctor = nowhere.all(("show", "x"), ("list",), ("start", "go"), ("doctor", "--json"))
    assert [each.code for each in (shown, listed, started, doctor)] == [4, 4, 4, 4]
    assert "no Temporal server answers at 127.0.0.1:" in shown.err
    assert "(Connection refused)" in shown.err
    assert {"temporal": "missing"}.items() <= {each["name"]: each["status"] for each in doctor.json["checks"]}.items()
    process = nowhere.start("show", "x", "--debug")
    assert "Traceback" in process.communicate(timeout=120)[1]
    assert process.returncode == 4


def test_an_unknown_namespace_is_4(shell: Shell) -> None:
    """A missing namespace is not reported as a missing thread."""
    ran = shell("show", "x", TEMPORAL_NAMESPACE="elsewhere")
    assert ran.code == 4
    assert "no namespace 'elsewhere'" in ran.err


@pytest.fixture(scope="module")
def unanswered(shell: Shell, stack: Stack) -> dict[str, Ran]:
    """Return the output of each verb that no worker answers; they run in parallel, as each waits for its timeout."""
    nobody = {"HOLDFAST_TASK_QUEUE": "nobody", **HASTY}
    runs = {
        "start": ("start", "go", "--thread", "unclaimed", "--json"),
        "show": ("show", "lonely"),
        "log": ("log", "lonely"),
        "approve": ("approve", "lonely", "1", "--json"),
        "doctor": ("doctor",),
        "stuck": ("show", "stuck"),
    }

    async def ask() -> list[Ran]:
        client = await connect_stack(stack)
        async with running(Worker(client, task_queue="broken", workflows=[Broken]), within=LEAVE):
            started = [
                await client.start_workflow(WORKFLOW, RunInput(task="go"), id=thread, task_queue=task_queue)
                for thread, task_queue in (("lonely", "nobody"), ("stuck", "broken"))
            ]
            asked = [asyncio.to_thread(shell, *words, **nobody) for words in runs.values()]
            answers = await asyncio.gather(*asked)
            for run in started:
                await run.terminate()
            return answers

    return dict(zip(runs, asyncio.run(ask()), strict=True))


def test_a_run_starts_without_a_worker(unanswered: dict[str, Ran]) -> None:
    """A start without a worker succeeds, because Temporal keeps the run; a note says that no worker picked it up."""
    started = unanswered["start"]
    assert (started.code, started.json["status"]) == (0, "running")
    assert "No worker has picked it up yet" in started.err


def test_without_a_worker_the_history_is_read_and_decisions_are_sent(unanswered: dict[str, Ran]) -> None:
    """A run without a worker is read from its history, with a note; a decision is sent as a signal."""
    shown, log, approved, doctor = (unanswered[verb] for verb in ("show", "log", "approve", "doctor"))
    assert [each.code for each in (shown, log, approved, doctor)] == [0, 0, 0, 1]
    assert "Temporal says: lonely is running" in shown.err
    assert "Now        waits for a worker to load its agent\n" in shown.out
    assert "Continue   python worker.py – it continues when a worker runs\n" in shown.out
    for each in (shown, log):
        assert "no worker answered for thread 'lonely' on task queue 'nobody'" in each.err
    assert log.out == ""
    assert approved.json["outcome"] == "sent"
    assert "no worker listens on task queue nobody" in doctor.out


def test_a_stuck_run_is_reported(unanswered: dict[str, Ran]) -> None:
    """If the worker's code fails the run's workflow task, the error says so instead of 'no worker'."""
    stuck = unanswered["stuck"]
    assert stuck.code == 4
    assert "is stuck" in stuck.err
    assert "code has changed" in stuck.err


@pytest.mark.extended
def test_a_decision_sent_without_a_worker_counts_once(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """A decision sent while no worker runs is processed by the next one, and `log --follow` keeps following."""
    queue = {"HOLDFAST_TASK_QUEUE": "later"}
    with serving(stack, tmp_path, task_queue="later"):
        assert shell("start", "Publish", "--thread", "later", **queue).code == 0
        shell.until("waiting_approval", "later")
        following = shell.start("log", "later", "--follow", "--json")
        assert following.stdout is not None
        assert "run_started" in following.stdout.readline()
    sent = shell("approve", "later", "1", "--by", "ann", "--json", **HASTY)
    assert (sent.code, sent.json["outcome"]) == (0, "sent")
    with serving(stack, tmp_path, task_queue="later"):
        out, err = rest(following)
    events = [json.loads(line) for line in out.splitlines()]
    assert following.returncode == 0
    assert err.count("no worker answered") <= 1
    assert events[-1]["type"] == "run_finished"
    accepted = [each for each in events if each["type"] == "decision_received" and each["outcome"] == "accepted"]
    started = [each for each in events if each["type"] == "tool_call_started"]
    assert (len(accepted), len(started)) == (1, 2)  # `look` and `publish`, once each


@pytest.mark.slow
def test_a_log_is_read_without_a_worker(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """State, log and transcript come from history alone: all of a closed run, the recorded part of an open one."""
    queue = {"HOLDFAST_TASK_QUEUE": "gone"}
    verbs = [(verb, "orphan", "--json") for verb in ("log", "transcript", "show")]
    with serving(stack, tmp_path, task_queue="gone"):
        assert shell("start", "Publish", "--thread", "orphan", **queue).code == 0
        shell.until("waiting_approval", "orphan")
        served = shell.all(*verbs)
    alone = shell.all(*verbs, **HASTY)
    assert [each.out for each in alone] == [each.out for each in served]
    assert [each.code for each in alone] == [0, 0, 0]
    assert all("no worker answered for thread 'orphan'" in each.err for each in alone)
    with serving(stack, tmp_path, task_queue="gone"):
        assert shell("approve", "orphan", "1").code == 0
        shell.until("completed", "orphan")
        events = shell("log", "orphan", "--json").out
    log, transcript, shown = shell.all(*verbs)
    assert [(each.code, each.err) for each in (log, transcript, shown)] == [(0, "")] * 3
    assert log.out == events
    assert json.loads(log.out.splitlines()[-1])["type"] == "run_finished"
    assert shown.json["status"] == "completed"
    assert json.loads(transcript.out.splitlines()[0])["content"] == "Publish"


@pytest.mark.extended
async def test_a_run_closed_from_outside_is_failed(shell: Shell, stack: Stack) -> None:
    """A terminated run has no final event: `show` and `list` report it as failed, and following it ends."""
    assert (await asyncio.to_thread(shell, "start", "two", "--thread", "ended")).code == 0
    await asyncio.to_thread(shell.until, "waiting_approval", "ended")
    client = await Client.connect(stack.temporal_address, namespace=stack.namespace)
    following = shell.start("watch", "ended")  # off a terminal, it prints the log
    await client.get_workflow_handle("ended").terminate()
    out, _ = await asyncio.to_thread(following.communicate, timeout=120)
    assert following.returncode == 0
    assert "approval_requested" in out
    shown, pending, late = await asyncio.to_thread(
        shell.all, ("show", "ended", "--json"), ("pending", "ended", "--json"), ("approve", "ended", "1", "--json")
    )
    assert (shown.json["status"], shown.json["pending"]) == ("failed", [])
    assert "terminated" in shown.json["result"]
    assert (pending.code, pending.out) == (0, "")
    assert (late.code, late.json["outcome"]) == (5, "too_late")


@pytest.mark.extended
def test_a_closed_pipe_prints_no_error(shell: Shell) -> None:
    """`starter.py log … | head -1` ends without an error message."""
    assert shell("start", "quick", "--thread", "piped", "--wait").code == 0
    process = shell.start("log", "piped")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.wait(timeout=120), process.stderr.read()) == (0, "")
    process.stderr.close()


@pytest.mark.slow
def test_control_characters_from_the_llm_never_reach_the_terminal(shell: Shell) -> None:
    """Escape sequences and bidirectional controls are escaped on every screen on which people read or approve."""
    assert shell("start", "escapes", "--thread", "escapes").code == 0
    shell.until("waiting_approval", "escapes")
    assert shell("approve", "escapes", "1").code == 0
    shell.until("completed", "escapes")
    for ran in shell.all(("show", "escapes"), ("log", "escapes"), ("transcript", "escapes")):
        assert not {"\x1b", "\u202e"} & set(ran.out)
        assert "\\x1b[2J\\u202epublish" in ran.out


Read = Callable[[str], None]
Talk = Callable[[int, Read], None]
CTRL_C = b"\x03"
ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C interrupts
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def on_terminal(shell: Shell, words: list[str], talk: Talk, *, columns: int = 100, rows: int = 40) -> tuple[int, str]:
    """Run `starter.py` on a terminal; `talk` gets the terminal, and a function that reads until a text appears."""
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": "xterm", "COLUMNS": str(columns), "LINES": str(rows)}
    process = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, str(STARTER), *words],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    os.close(theirs)
    shown = ""

    def read(until: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + PATIENCE
        while not until or until not in shown:
            assert time.monotonic() < deadline, f"{until!r} never came: {shown}"
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65_536).decode("utf-8", "replace")
                except OSError:  # on Linux, the other side has closed
                    assert not until, f"{until!r} never came: {shown}"
                    break

    try:
        talk(ours, read)
        read("")
        return process.wait(timeout=120), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_watch_answers_requests_in_place(shell: Shell) -> None:
    """On a terminal, a key and a reason decide a request; then the next one appears, and finally the result."""
    assert shell("start", "two", "--thread", "watched").code == 0

    def talk(terminal: int, read: Read) -> None:
        read("[a] approve")
        os.write(terminal, b"a")
        read("Enter sends")
        os.write(terminal, "schön\r".encode())
        read("request 1: approve by ann (claimed): schön")
        os.write(terminal, b"d\r")
        read("completed")

    code, shown = on_terminal(shell, ["watch", "watched", "--by", "ann"], talk)
    assert code == 0
    assert "Both dealt with." in shown
    decisions = [each for each in shell("log", "watched", "--json").lines if each["type"] == "decision_received"]
    assert [(each["request"], each["decision"], each["by"], each["reason"]) for each in decisions] == [
        ("1", "approve", "ann", "schön"),
        ("2", "deny", "ann", ""),
    ]


@pytest.mark.extended
def test_text_typed_after_a_rejected_key_decides_nothing(shell: Shell) -> None:
    """A request that was not scrolled to its end is not approved, and the reason typed next is no command either."""
    assert shell("start", "two", "--thread", "burst").code == 0

    def talk(terminal: int, read: Read) -> None:
        read("rows below")
        os.write(terminal, b"ad\r")  # approve; the reason begins with the key for deny
        read("screen yet")
        os.write(terminal, b"q")

    code, _ = on_terminal(shell, ["watch", "burst", "--by", "ann"], talk, columns=60, rows=9)
    assert code == 0
    assert not [each for each in shell("log", "burst", "--json").lines if each["type"] == "decision_received"]


@pytest.mark.extended
def test_leaving_watch_does_not_affect_the_run(shell: Shell) -> None:
    """Ctrl-C ends the live view with 0, and the run continues."""
    assert shell("start", "two", "--thread", "left").code == 0

    def talk(terminal: int, read: Read) -> None:
        read("[a] approve")
        os.write(terminal, CTRL_C)

    code, shown = on_terminal(shell, ["watch", "left"], talk)
    assert (code, "the run continues." in shown) == (0, True)
    assert shell("show", "left", "--json").json["status"] == "waiting_approval"


@pytest.mark.extended
def test_colours_are_for_terminals(shell: Shell) -> None:
    """A terminal gets colours unless NO_COLOR is set; a pipe never gets any."""

    def talk(terminal: int, read: Read) -> None:
        """Only watch."""

    assert shell("start", "quick", "--thread", "coloured", "--wait").code == 0
    _, coloured = on_terminal(shell, ["show", "coloured"], talk)
    plain = Shell(shell.variables | {"NO_COLOR": "1"})
    _, without = on_terminal(plain, ["show", "coloured"], talk)
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert colour.search(coloured)
    assert not colour.search(without)


def test_doctor_finds_everything_and_shows_no_secret(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """`doctor` reports ok if everything works and exits with 1 if the database rejects us; it prints no secret."""
    (tmp_path / "mine.py").write_text(
        "from holdfast import Agent, Catalog\ncatalog = Catalog(agents=[Agent(name='me', instructions='')])\n"
    )
    with ScriptedLLM(steps([])) as llm:
        address = llm.base_url.replace("//", "//user:hidden@")
        secrets = {"OPENAI_API_KEY": "sk-hidden", "OPENAI_BASE_URL": address, "HOLDFAST_CATALOG": "mine:catalog"}
        here = Shell(shell.variables | secrets, folder=tmp_path)
        healthy = here("doctor", "--json", DATABASE_URL=stack.database_url)
    assert (healthy.code, healthy.json["ok"]) == (0, True), healthy.out
    refused = here("doctor", DATABASE_URL=f"postgresql://user:hidden@127.0.0.1:{any_free()}/none")
    assert refused.code == 1
    assert "missing database" in refused.out
    assert "missing llm" in refused.out
    assert "1 worker on task queue holdfast" in refused.out
    assert "hidden" not in healthy.out + healthy.err + refused.out + refused.err


@pytest.mark.extended
def test_a_move_names_the_only_cluster_that_imports_it(shell: Shell, stack: Stack, tmp_path: Path) -> None:
    """`import --place` and `doctor` show the id that `move --to` takes; any other cluster rejects the file."""
    database, file = {"DATABASE_URL": stack.database_url}, str(tmp_path / "away.holdfast")
    key = str(tmp_path / "a.key")
    public = shell("keygen", "--out", key, "--json").json["public"]
    here = shell("import", "--place", "--json").json["place"]
    assert f"place {here}" in shell("doctor", **database).out
    assert [ran.code for ran in shell.all(("import",), ("import", "--place", file))] == [2, 2]
    assert shell("start", "two", "--thread", "away").code == 0
    shell.until("waiting_approval", "away")
    nowhere = shell("move", "away", "-o", file, "--to", "production", **database)
    assert (nowhere.code, "`to` is not the id of a place" in nowhere.err) == (5, True)
    elsewhere = "01a21834-2a7f-76ef-a905-8f743de5f74d"
    moved = shell("move", "away", "-o", file, "--key", key, "--to", elsewhere, **database)
    assert (moved.code, "names no destination" in moved.err) == (0, False), moved.err
    refused = shell("import", file, "--signer", public, **database)
    assert (refused.code, f"moved to the place {elsewhere}, and this is {here}" in refused.err) == (5, True)
    back = shell("import", file, "--signer", public, "--override-destination", "--json", **database)
    assert (back.code, back.json["new"]) == (0, True)
    shell("cancel", "away")


def codes(shell: Shell, thread: str, times: int) -> set[int]:
    """Return the exit codes of that many runs for each way in which a run can end."""
    runs: list[tuple[str, ...]] = [("show", thread), ("show", "no-such-thread"), ("cancel", thread)]
    exit_codes = [ran.code for ran in shell.all(*(runs[number % 3] for number in range(times)))]
    return {code for number, code in enumerate(exit_codes) if code != (0, 3, 5)[number % 3]}


def test_exit_codes_are_correct(shell: Shell) -> None:
    """The process always exits with the documented code for the outcome."""
    assert shell("start", "quick", "--thread", "codes", "--wait").code == 0
    assert codes(shell, "codes", 8) == set()


@pytest.mark.slow
def test_exit_codes_are_correct_in_many_runs(shell: Shell) -> None:
    """Exit codes stay correct in enough runs to catch a failure that occurs in one of fifty."""
    assert shell("start", "quick", "--thread", "many-codes", "--wait").code == 0
    assert codes(shell, "many-codes", 51) == set()


def test_a_task_has_a_limit() -> None:
    """A task that exceeds the size limit is rejected, exact to the byte."""
    check_task("x" * MAX_TEXT_BYTES)
    for task in ("x" * (MAX_TEXT_BYTES + 1), "", " \n", "\udcff"):
        with pytest.raises(TaskInvalid):
            check_task(task)


def test_thread_ids_are_printable_and_bounded() -> None:
    """A thread id is 1 to 200 printable characters; a new one begins with the agent's name."""
    for good in ("a", "x" * 200, "mein Fädchen/1"):
        assert good == check_thread_id(good)
    for bad in ("", "x" * 201, " a", "a\tb", "a\u202eb"):
        with pytest.raises(ThreadIdInvalid):
            check_thread_id(bad)
    assert re.fullmatch(r"release\.bot-[0-9a-f]{6}", new_thread_id("release.bot"))
    assert re.fullmatch(r"run-[0-9a-f]{6}", new_thread_id(None))
    check_thread_id(new_thread_id("\n \x00"))


def test_control_characters_are_made_visible() -> None:
    """Characters that act on a terminal are escaped; line breaks and ordinary text of any script stay."""
    assert visible("a\x1b[31m\x9bb\u202ec\rd\u200be") == "a\\x1b[31m\\x9bb\\u202ec\\rd\\u200be"
    assert visible("grüße\n\t日本 🎉\r\n") == "grüße\n\t日本 🎉\n"


def test_an_event_of_a_later_release_still_shows() -> None:
    """An event that this release cannot decode is printed as JSON."""
    assert event_summary({"type": "teleported", "position": 3, "to": "mars"}) == '{"to": "mars"}'
    assert "mars" in event_summary({"type": "llm_replied", "moved": "mars"})


def test_running_calls_have_started_and_not_ended() -> None:
    """A call is running from its start until it is finished or its outcome is unknown."""
    asked = [
        {
            "type": "tool_call_requested",
            "number": number,
            "call": {"id": "", "name": "f", "arguments": f'{{"n": {number}}}'},
        }
        for number in (1, 2, 3)
    ]
    begun = [{"type": "tool_call_started", "number": number} for number in (1, 2, 3)]
    over: list[dict[str, Any]] = [
        {"type": "tool_call_finished", "number": 1},
        {"type": "reconcile_requested", "request": {"number": 2}},
    ]
    assert running_calls([*asked, *begun]) == ["f(n=1)", "f(n=2)", "f(n=3)"]
    assert running_calls([*asked, *begun, *over]) == ["f(n=3)"]


def test_events_about_messages_and_compactions_have_lines() -> None:
    """Each kind of event has a line, and a clipped result says how to read the rest."""
    blocks = [{"type": "text", "text": "Look"}, {"type": "image", "url": "https://example.com/a.png"}]
    told: dict[str, dict[str, Any]] = {
        "in Temporal run r2": {"type": "run_continued", "run_id": "r2"},
        "ann (claimed): Look[image]": {"type": "user_message_received", "content": blocks, "by": "ann"},
        "message 7 is shown to the LLM": {"type": "message_taken", "message": 7},
        "Anything else?": {"type": "message_awaited", "result": "Anything else?"},
        "too many tokens": {"type": "context_exceeded", "message": "too many tokens"},
        "12 messages summarized, 2 messages kept: so far": {
            "type": "context_compacted",
            "summary_message": "h",
            "summary": "so far",
            "messages": 12,
            "kept": 2,
        },
        "call 1: ok: head  [clipped, 9,000 bytes; full text in sha256:ab]": {
            "type": "tool_call_finished",
            "number": 1,
            "status": "ok",
            "content": "head",
            "artifact": "sha256:ab",
            "size": 9000,
        },
    }
    assert list(told) == [event_summary(event) for event in told.values()]


def test_keys_decide_only_the_request_on_the_screen() -> None:
    """A key starts a decision, Enter sends it, Escape cancels it; it is also cancelled if its request disappears."""
    first: dict[str, Any] = {"request": "1", "kind": "approval", "digest": "d"}
    second: dict[str, Any] = {"request": "2", "kind": "reconcile", "digest": "d"}
    keys = Keys([first, second])

    def type_keys(characters: str) -> Any:
        return [keys.key(character) for character in characters][-1]

    assert type_keys("aok\x7fn\r") == Answer(first, "approve", "on")
    assert type_keys("dno\x1b") is None
    assert keys.decision is None
    assert type_keys("x\r") is None
    type_keys("aq")  # a letter of the reason, not a command key
    keys.update([second], blocked=False)
    assert (keys.decision, keys.typed) == (None, "")
    assert type_keys("a") is None
    assert type_keys("n\r") == Answer(second, "absent", "")
    type_keys("l")
    assert keys.request not in (first, second)
    assert type_keys("r") is None
    type_keys("p")
    assert keys.request is second
    assert type_keys("m?\x7fhello\r") == Message("hello")
    assert type_keys("mnever\x1b") is None
    assert type_keys("m \r") is None
    keys.update([], blocked=True)
    assert type_keys("r") == "retry"
    assert type_keys("q") == "leave"

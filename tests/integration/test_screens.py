"""Screens on which people read and decide: a terminal, the `temporal` command, with and without a worker."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Catalog, Limits, Policy, tool
from holdfast.client.listing import list_threads
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.testing import Conversation, Reply, call, fail, say, steps, together
from tests.integration.test_cli import Ran, Read, Shell, on_terminal
from tests.support.people import clerk, payments
from tests.support.rig import StartRig, environ_of, eventually, status_of

TEMPORAL = shutil.which("temporal", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
HASTY = {"HOLDFAST_ANSWER_SECONDS": "1"}

EDITOR = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
text = path.read_text()
assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
if "This is not valid" in text:
    path.write_text(text.replace("{broken", '{"cents": 5'))
else:
    assert '"cents": 500' in text
    path.write_text("{broken}")
"""


@pytest.fixture
def shell(stack: Stack, tmp_path: Path) -> Shell:
    """Return a terminal on the stack."""
    variables = {"HOLDFAST_HOME": str(tmp_path / "home"), **environ_of(stack)}
    return Shell({**variables, "DATABASE_URL": stack.database_url or ""}, folder=tmp_path)


async def starter(shell: Shell, *words: str, **variables: str) -> Ran:
    """Return a function that runs `starter.py` while the worker runs."""
    return await asyncio.to_thread(lambda: shell(*words, **variables))


async def temporal(stack: Stack, *words: str) -> str:
    """Return a function that runs the `temporal` command and returns its output."""
    if TEMPORAL is None:
        pytest.skip("there is no temporal command")
    command = [TEMPORAL, *words, "--address", stack.temporal_address]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (80, 24)])
async def test_a_call_is_edited_and_always_allowed_on_a_small_terminal(
    rig: StartRig, shell: Shell, columns: int, rows: int
) -> None:
    """Invalid JSON returns to the editor; the edit is shown before it is sent; `A` remembers the call."""
    editor = shell.folder / "editor.py"
    editor.write_text(EDITOR)
    shell.variables["VISUAL"] = f"{sys.executable} {editor}"
    script = steps([call("pay", cents=500), call("pay", cents=5), call("pay", cents=5), say("done")])

    def talk(terminal: int, read: Read) -> None:
        read("Request 1")
        os.write(terminal, b" " * 20)
        read("[a] approve")
        os.write(terminal, b"e")
        read("discard")
        os.write(terminal, b" " * 20)
        read("with these")
        os.write(terminal, b"a")
        read("Enter sends")
        os.write(terminal, b"less\r")
        read("Request 2")
        os.write(terminal, b" " * 20)
        time.sleep(0.3)
        os.write(terminal, b"A")
        read("always allow: ")
        os.write(terminal, b"\r")
        read("completed")

    async with rig(clerk(Policy()), script) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        words = ["watch", run.id, "--by", "ann"]
        code, shown = await asyncio.to_thread(on_terminal, shell, words, talk, columns=columns, rows=rows)
        assert (code, payments(r)) == (0, [5, 5, 5]), shown
        remembered = await starter(shell, "show", run.id)
        assert '"cents": 5' in remembered.out.split("Allowed from now on")[1].split("revoke")[0]


@pytest.mark.slow
async def test_pending_needs_no_worker(rig: StartRig, shell: Shell) -> None:
    """Without a worker, the requests of one thread or of all come from Temporal's history, with a note."""
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        answered = await starter(shell, "pending", run.id, "--json")
    one = await starter(shell, "pending", run.id, "--json", **HASTY)
    assert (one.code, one.lines) == (0, answered.lines)
    assert one.json["digest"] == request["digest"]
    assert "no worker answered" in one.err

    async def across() -> Ran:
        return await starter(shell, "pending", "--json", **HASTY)

    every = await eventually(across, lambda ran: run.id in [each["thread"] for each in ran.lines])
    assert every.code == 0
    assert every.err.count("no worker answered") == 1
    await run.terminate()


async def test_show_reports_why_a_run_is_blocked_and_by_which_limits(rig: StartRig, shell: Shell) -> None:
    """After three unusable replies, `show` prints the last reason, the count, and the agent's own limits."""
    limits = Limits(max_rejected_replies=2, max_calls=3)
    catalog = Catalog(agents=[Agent(name="clerk", instructions="", limits=limits)])
    async with rig(catalog, steps([call("nothing"), call("nothing"), say("done")])) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["limits"]["rejected_replies"] == 2
        shown = await starter(shell, "show", run.id)
        assert "last: no call in it can run; Not called: there is no tool named 'nothing'" in shown.out
        assert "unusable replies in a row 2 of 2, at most 3 calls in a reply" in shown.out
        assert "Cost" in shown.out
        assert (await starter(shell, "show", run.id, "--json")).json["blocked"]["reason"]
        await run.signal("retry", {"by": "ann"})
        assert (await run.result())["result"] == "done"


@pytest.mark.extended
async def test_the_temporal_command_shows_readable_json(rig: StartRig, stack: Stack) -> None:
    """The queries `show`, `pending` and `events` return JSON that the command prints unchanged."""
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        for name, wanted in (
            ("show", {"status": "waiting_approval"}),
            ("pending", {"arguments": {"cents": 5}}),
            ("events", {"type": "run_started"}),
        ):
            printed = await temporal(stack, "workflow", "query", "-w", run.id, "--type", name, "--output", "json")
            (answer,) = json.loads(printed)["queryResult"]
            assert wanted.items() <= (answer if isinstance(answer, dict) else answer[0]).items()
            people = await temporal(stack, "workflow", "query", "-w", run.id, "--type", name)
            assert json.dumps(next(iter(wanted.values()))).replace(" ", "") in people
        await run.terminate()


@pytest.mark.extended
async def test_a_paused_activity_is_shown_with_the_command_to_unpause_it(
    rig: StartRig, stack: Stack, shell: Shell
) -> None:
    """`temporal activity pause` stops the retries of a call, and `show` says so."""
    async with rig(clerk(Policy()), steps([fail(503, "overloaded")] * 9)) as r:
        run = await r.start()

        async def activity() -> str:
            activities = (await run.describe()).raw_description.pending_activities
            return activities[0].activity_id if activities and activities[0].attempt > 1 else ""

        name = await eventually(activity, bool)
        await temporal(stack, "activity", "pause", "-w", run.id, "--activity-id", name)
        shown = await starter(shell, "show", run.id)
        assert "call_llm is paused in Temporal at attempt" in shown.out
        assert f"temporal activity unpause -w {run.id} --activity-id {name}" in shown.out
        await run.terminate()


@pytest.mark.extended
async def test_list_shows_task_pending_age_and_cost_of_the_newest_threads(rig: StartRig, shell: Shell) -> None:
    """The newest threads come first, however they ended; unknown values are marked."""

    def script(conversation: Conversation) -> Reply:
        quick = "quick" in conversation.last_user_message
        return steps([say("done")] if quick else [call("pay", cents=5), say("done")])(conversation)

    async with rig(clerk(Policy()), script) as r:
        threads = Threads(r.client, task_queue=r.task_queue)
        first = await threads.start("quick one\nsecond line", thread="list-1")
        await r.client.get_workflow_handle(first.thread).result()
        await threads.start("waits \u202e for ann", thread="list-2")
        raw = await r.start("quick, and started by another program", thread="list-3")
        await raw.result()

        async def listed() -> dict[str, Any]:
            ran = await starter(shell, "list", "--limit", "100", "--json")  # with other tests' runs, even of the future
            return {row["thread"]: row for row in ran.lines if row["thread"] in ("list-1", "list-2", "list-3")}

        rows = await eventually(
            listed, lambda rows: list(rows) == ["list-3", "list-2", "list-1"] and rows["list-2"]["pending"]
        )
        assert [rows[f"list-{n}"]["task"] for n in (1, 2, 3)] == ["quick one", "waits \u202e for ann", None]
        assert [rows[f"list-{n}"]["status"] for n in (1, 2, 3)] == ["completed", "waiting_approval", "completed"]
        assert [rows[f"list-{n}"]["llm"] for n in (1, 2, 3)] == ["scripted"] * 3
        assert rows["list-1"]["usage"]["completion_tokens"]
        screen = (await starter(shell, "list", "--limit", "100")).out
        assert "waits \\u202e for ann" in screen
        assert "tokens" in screen
        await r.client.get_workflow_handle("list-2").terminate()


@pytest.mark.slow
async def test_a_thousand_threads_are_listed_in_a_few_seconds(rig: StartRig) -> None:
    """`list` shows the newest hundred of a thousand threads with their tasks, although no worker answers for most."""
    async with rig(clerk(Policy()), steps([say("done")])) as r:
        nobody = Threads(r.client, task_queue="nobody", answer_within=1)
        started = await asyncio.gather(*(nobody.start(f"task {number}") for number in range(1_000)))

        async def count() -> int:
            return (await r.client.count_workflows("TaskQueue = 'nobody'")).count

        await eventually(count, lambda count: count >= 1_000)
        began = time.monotonic()
        rows = await list_threads(nobody, limit=100)
        seconds = time.monotonic() - began
        assert len(rows) == 100
        assert all(row["usage"] is None and row["task"].startswith("task ") for row in rows)
        assert seconds < 50  # asked one after the other, a hundred threads without a worker would take 100 s
        for each in started:
            await r.client.get_workflow_handle(each.thread).terminate()


@pytest.mark.slow
async def test_the_task_survives_a_run_that_continues_as_new(rig: StartRig) -> None:
    """Temporal keeps the memo of the start: `list` shows the task of a thread of many Temporal runs."""
    catalog = Catalog(agents=[Agent(name="walker", instructions="", limits=Limits(history_events=20), tools=[noop])])
    async with rig(catalog, steps([*(together(call("noop", n=n)) for n in range(12)), say("done")])) as r:
        threads = Threads(r.client, task_queue=r.task_queue)
        started = await threads.start("walk far")
        await r.client.get_workflow_handle(started.thread).result()
        assert (await r.client.get_workflow_handle(started.thread).describe()).run_id != started.run_id

        async def listed() -> list[Any]:
            return [row["task"] for row in await list_threads(threads, limit=50) if row["thread"] == started.thread]

        assert await eventually(listed, bool) == ["walk far"]


@tool(effect="read")
def noop(n: int) -> str:
    """Do nothing."""
    return str(n)

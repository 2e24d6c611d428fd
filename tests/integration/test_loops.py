"""Loops on the command line, loops whose worker is killed, and the audit of their results."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from bench.environment import open_stack
from bench.loops import measure
from holdfast.config.stack_file import Stack
from tests.support.forked import run
from tests.support.looped import catalog, judge, prepare, script
from tests.support.rig import Rig, StartRig, environ_of, status_of

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
async def test_loops_survive_kills_of_their_worker() -> None:
    """After SIGKILL at random moments, every task was done once and in order, and files, git and logs agree."""
    with open_stack() as (stack, home):
        kills, wrong = await measure(stack, home, kills=4, loops=2, tasks=15, seed=1)
    assert (kills, wrong) == (4, [])


@pytest.mark.slow
async def test_the_audit_of_loops_detects_faults(rig: StartRig, client: Client) -> None:
    """The audit reports an unlogged commit, an undone task and a leftover file."""
    async with rig(catalog, script) as at_work:
        workspace = at_work.workspace / "loop"
        prepare(workspace, 2)
        handle = await at_work.start_loop(workspace=str(workspace))
        await handle.result()
        assert await judge(client, at_work.threads, handle.id, workspace, 2) == []
        tasks = workspace / "TASKS.md"
        tasks.write_text(tasks.read_text().replace("[x] task 001", "[ ] task 001"))
        message = f"Complete: task 000\n\nHoldfast-Key: forged\nHoldfast-Thread: {handle.id}-0"
        who = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
        await asyncio.to_thread(
            subprocess.check_call, ["git", *who, "commit", "-q", "--allow-empty", "-m", message], cwd=workspace
        )
        report = "\n".join(await judge(client, at_work.threads, handle.id, workspace, 2))
        for what in ("TASKS.md says", "git says", "not committed", "commit with key forged"):
            assert what in report


class Shell:
    """Runs `starter.py` as a process, against the rig's server and queue."""

    def __init__(self, rig: Rig, stack: Stack, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
        own = {"HOLDFAST_HOME": str(home), **environ_of(stack), "HOLDFAST_BY": "dana"}
        self._environ = kept | own | {"HOLDFAST_TASK_QUEUE": rig.task_queue, "DATABASE_URL": stack.database_url}

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a verb, and return its stdout."""
        done = run("starter", arguments, environ=self._environ)
        assert done.code == code, done.out + done.err
        return done.out.decode()

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a verb with `--json`, and decode the result."""
        return json.loads(self.run(*arguments, "--json", code=code))


@pytest.mark.extended
async def test_a_loop_from_the_command_line(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """`loop` starts one, `show` and `list` show it, `pause`, `resume` and `retry` control it."""
    async with rig(catalog, script) as at_work:
        prepare(workspace := at_work.workspace / "mine", 2)
        shell = Shell(at_work, stack, tmp_path / "home")
        name = f"cli-{at_work.task_queue}"
        command = ("loop", str(workspace), "--id", name, "--iterations", "1")
        started = await asyncio.to_thread(shell.json, *command)
        assert (started["thread"], started["status"]) == (name, "running")
        await status_of(at_work.client.get_workflow_handle(name), "blocked")
        shown = await asyncio.to_thread(shell.json, "show", name)
        assert (shown["status"], shown["step"], shown["blocked"]["cause"]) == ("blocked", 1, "IterationLimit")
        words = await asyncio.to_thread(shell.run, "show", name)
        assert all(each in words for each in ("1 done, 1 open", f"{name}-0", "Complete: task 000", f"retry {name}"))
        assert (await asyncio.to_thread(shell.json, "pause", name))["outcome"] == "accepted"
        assert (await asyncio.to_thread(shell.json, "pause", name, code=5))["outcome"] == "duplicate"
        assert (await asyncio.to_thread(shell.json, "retry", name))["outcome"] == "accepted"
        assert (await asyncio.to_thread(shell.json, "show", name))["status"] == "paused"
        assert (await asyncio.to_thread(shell.json, "resume", name))["outcome"] == "accepted"
        await at_work.client.get_workflow_handle(name).result()
        assert (await asyncio.to_thread(shell.json, "show", name))["status"] == "completed"
        assert (await asyncio.to_thread(shell.json, "show", name, "--at", "2"))["status"] == "running"
        log = (await asyncio.to_thread(shell.run, "log", name, "--json")).splitlines()
        kinds = [json.loads(line)["type"] for line in log]
        assert [kinds[0], kinds[-1], kinds.count("iteration_ended")] == ["loop_started", "run_finished", 2]
        words = await asyncio.to_thread(shell.run, "log", name)
        assert all(each in words for each in (f"{name}-0: task 000", "iteration 0: completed, 2 commits", "by dana"))
        verified = await asyncio.to_thread(shell.json, "verify", name)
        assert (verified["verdict"], verified["from"]) == ("proven", ["history", "record"])
        assert verified["events"] == len(log)
        assert await asyncio.to_thread(shell.run, *command, code=2) == ""
        assert await asyncio.to_thread(shell.run, "loop", str(workspace / "nowhere"), code=3) == ""
        listed = (await asyncio.to_thread(shell.run, "list", "--json", "--limit", "1000")).splitlines()
        assert {name, f"{name}-0", f"{name}-1"} <= {json.loads(line)["thread"] for line in listed}


@pytest.mark.slow
async def test_waiting_for_a_loop(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """`loop --wait` returns when the loop is done, and its exit code says whether it succeeded."""
    async with rig(catalog, script) as at_work:
        shell = Shell(at_work, stack, tmp_path / "home")
        prepare(workspace := at_work.workspace / "mine", 1)
        shown = await asyncio.to_thread(shell.json, "loop", str(workspace), "--wait")
        assert (shown["status"], shown["tasks"]) == ("completed", {"done": 1, "open": 0})
        (workspace / "TASKS.md").write_text("")
        shown = await asyncio.to_thread(shell.json, "loop", str(workspace), "--wait", code=1)
        assert (shown["status"], shown["blocked"]["cause"]) == ("blocked", "NoTasks")

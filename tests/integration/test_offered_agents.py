"""A schedule or loop is checked against the workers on its queue before it is recorded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.exits import NOT_FOUND, OK
from tests.support.processes import ROOT, WorkerProcess

FOREIGN = ("HOLDFAST_", "TEMPORAL_", "OPENAI_", "DATABASE_URL")


@pytest.mark.slow
def test_an_agent_that_no_worker_has_is_rejected_before_anything_is_recorded(tmp_path: Path) -> None:
    """The error lists the available agents; if no worker on the queue reports any, the command only prints a note."""
    worker = WorkerProcess(tmp_path / "home", HOLDFAST_CATALOG="holdfast.examples.loop.catalog:catalog")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    environ |= {"HOLDFAST_HOME": str(worker.home)}

    def run(*words: str, queue: str = worker.task_queue) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "starter.py"), *words]
        env = environ | {"HOLDFAST_TASK_QUEUE": queue}
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
        return ran.returncode, ran.stderr

    def add(name: str, agent: str, **more: str) -> tuple[int, str]:
        return run("schedule", "add", name, "Work", "--every", "6h", "--agent", agent, **more)

    worker.start()
    try:
        code, words = add("nightly", "nobody")
        assert (code, "has an agent 'nobody'; there is builder" in words) == (NOT_FOUND, True), words
        assert run("schedule", "show", "nightly")[0] == NOT_FOUND
        assert add("nightly", "builder") == (OK, "")
        code, words = add("elsewhere", "nobody", queue="empty")
        assert (code, "It is not known here" in words) == (OK, True), words
        for option in ("--agent", "--initializer"):
            code, words = run("loop", ".", "--task", "Work", option, "nobody", "--id", "never")
            assert (code, "has an agent 'nobody'" in words) == (NOT_FOUND, True), words
        assert run("show", "never")[0] == NOT_FOUND
    finally:
        assert worker.stop() == 0

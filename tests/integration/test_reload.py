"""`worker --dev --reload` restarts the worker, but not the servers, when a file changes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from holdfast.client.connect import connect_stack
from holdfast.client.threads import Threads
from holdfast.config.project import ENV, TOML
from holdfast.config.settings import Settings
from holdfast.worker.reload import list_files, source_roots
from tests.support.processes import ROOT, WorkerProcess
from tests.support.rig import PATIENCE

AGENTS = """
from holdfast import Agent, Catalog
from holdfast.testing import say, steps
catalog = Catalog(agents=[Agent(name={name!r}, instructions="Work.")])
script = steps([say("done by {name}")])
"""


def until(happened: Callable[[], bool], worker: WorkerProcess) -> None:
    """Wait until a condition holds; the worker's command must not end meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert worker.is_alive(), worker.log
        assert time.monotonic() < deadline, worker.log
        time.sleep(0.05)


@pytest.mark.slow
async def test_a_worker_restarts_when_its_code_changes_and_waits_out_a_broken_file(tmp_path: Path) -> None:
    """The servers stay, the next worker finishes a run started meanwhile, and Ctrl-C ends everything."""
    file = tmp_path / "reloaded_desk.py"
    file.write_text(AGENTS.format(name="first"))
    worker = WorkerProcess(
        tmp_path / "home",
        options=["--reload"],
        PYTHONPATH=str(tmp_path),
        HOLDFAST_CATALOG="reloaded_desk:catalog",
        HOLDFAST_SCRIPT="reloaded_desk:script",
    )
    worker.start()
    try:
        servers = worker.stack.temporal_pid, worker.stack.postgres_pid
        until(lambda: "agents: first" in worker.log, worker)
        file.write_text(AGENTS.format(name="second"))
        until(lambda: "agents: second" in worker.log, worker)
        file.write_text("def broken(")
        until(lambda: "the worker has ended (2); it starts again after a change" in worker.log, worker)
        assert "SyntaxError" in worker.log
        threads = Threads(await connect_stack(worker.stack), task_queue=worker.task_queue)
        run = await threads.start("Work", thread="waits")
        file.write_text(AGENTS.format(name="third"))
        handle = threads.runs.client.get_workflow_handle(run.thread)
        assert (await handle.result())["result"] == "done by third"
        assert (worker.stack.temporal_pid, worker.stack.postgres_pid) == servers
        family = psutil.Process(worker.pid).children(recursive=True)
    finally:
        code = worker.stop()
    assert code == 0, worker.log
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []


@pytest.mark.extended
def test_files_are_reloaded_only_on_embedded_servers(tmp_path: Path) -> None:
    """Without --dev the option is rejected: it could stop a production worker's tools halfway."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    command = [sys.executable, str(ROOT / "worker.py"), "--reload"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, "add --dev" in ran.stderr) == (2, True), ran


@pytest.mark.extended
def test_a_projects_files_are_watched_but_not_what_agents_write(tmp_path: Path) -> None:
    """Code, settings and policies below the folder are watched; state folders, hidden folders and packages are not."""
    watched = [TOML, ENV, "agents.py", "policies/strict.yaml", "tools/mail.py"]
    others = [".holdfast/workspaces/t/x.py", ".venv/lib/y.py", "state/z.py", "site-packages/a.py", "notes.md"]
    for name in (*watched, *others):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    settings = Settings.from_env(
        {"HOLDFAST_CATALOG": "agents:catalog", "HOLDFAST_HOME": str(tmp_path / "state")}, root=tmp_path
    )
    roots = source_roots(settings, tmp_path)
    assert roots == [tmp_path]
    seen = list_files(roots, settings.home)
    assert sorted(str(path.relative_to(tmp_path)) for path in seen) == sorted(watched)
    (tmp_path / "agents.py").write_text("x = 1")
    assert [path for path, state in list_files(roots, settings.home).items() if seen[path] != state] == [
        tmp_path / "agents.py"
    ]
    elsewhere = Settings.from_env({"HOLDFAST_CATALOG": "holdfast.examples:x"}, root=tmp_path)
    assert source_roots(elsewhere, tmp_path / "empty") == [ROOT / "holdfast"]

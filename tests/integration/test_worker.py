"""`worker.py` starts with everything that it needs, or reports in one line what is missing and how to fix it."""

import asyncio
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast.config.stack_file import Stack
from holdfast.devstack.ports import any_free
from holdfast.worker.construction import running
from holdfast.workflows import WORKFLOWS
from tests.support.forked import run
from tests.support.rig import environ_of

LLM = "http://127.0.0.1:9/v1"
"""An endpoint that is configured but never called."""


def start(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `worker.py` in a folder with only these settings until it ends."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env = {**kept, "HOLDFAST_HOME": str(folder / "home"), **environ}
    ended = run("worker", arguments, environ=env, folder=folder)
    return subprocess.CompletedProcess(arguments, ended.code, ended.out.decode(), ended.err.decode())


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that it ended with a usage error on stderr that contains this text, without a traceback."""
    assert done.returncode == 2, done
    assert done.stderr.startswith("worker.py: "), done.stderr
    assert "Traceback" not in done.stderr
    for each in words:
        assert each in done.stderr


def test_a_worker_without_a_database_does_not_start(stack: Stack, tmp_path: Path) -> None:
    """Effects need the ledger: the message names the variable and the alternative."""
    refused(start(tmp_path, TEMPORAL_ADDRESS=stack.temporal_address), "DATABASE_URL is not set", "--dev")


def test_time_is_skipped_only_on_servers_that_dev_starts(stack: Stack, tmp_path: Path) -> None:
    """Another Temporal server may have real work, so the option is rejected without --dev."""
    done = start(tmp_path, "--skip-time", **environ_of(stack), DATABASE_URL=stack.database_url)
    assert (done.returncode, "add --dev" in done.stderr) == (2, True)


def test_a_worker_whose_database_is_down_does_not_start(stack: Stack, tmp_path: Path) -> None:
    """The message contains the database's error."""
    nowhere = f"postgresql://nobody@127.0.0.1:{any_free()}/none"
    done = start(tmp_path, **environ_of(stack), DATABASE_URL=nowhere, OPENAI_BASE_URL=LLM)
    refused(done, "the database cannot be used", "Connection refused", "Check DATABASE_URL")


def test_a_worker_without_a_fleet_key_does_not_start(stack: Stack, tmp_path: Path) -> None:
    """Without a key, forged requests would go undetected: the message names the variable and how to make a key."""
    done = start(tmp_path, TEMPORAL_ADDRESS=stack.temporal_address, DATABASE_URL=stack.database_url)
    refused(done, "HOLDFAST_FLEET_KEYS is not set", "openssl rand -base64 32", "--dev")


def test_a_worker_without_an_llm_does_not_start(stack: Stack, tmp_path: Path) -> None:
    """The scripted LLM is only for --dev."""
    done = start(tmp_path, **environ_of(stack), DATABASE_URL=stack.database_url)
    refused(done, "neither OPENAI_API_KEY nor OPENAI_BASE_URL is set")


def test_a_worker_whose_server_is_down_does_not_start(stack: Stack, tmp_path: Path) -> None:
    """The exit code is 4, and the message contains the address that was tried."""
    address = f"127.0.0.1:{any_free()}"
    elsewhere = environ_of(stack) | {"TEMPORAL_ADDRESS": address}
    done = start(tmp_path, **elsewhere, DATABASE_URL=stack.database_url, OPENAI_BASE_URL=LLM)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False)
    assert f"no Temporal server answers at {address}" in done.stderr


@pytest.mark.parametrize(
    ("module", "reference", "words"),
    [
        ("", "nothing.here:catalog", ["there is no module 'nothing'"]),
        ("import nonsense_library", "mine:catalog", ["importing mine failed at", "line 1", "nonsense_library"]),
        ("x = 1", "mine:catalog", ["no attribute 'catalog'"]),
        ("catalog = 1", "mine:catalog", ["is a int, not a Catalog"]),
        ("def f(:", "mine:catalog", ["importing mine failed at", "SyntaxError"]),
        (
            "from holdfast import Agent, Catalog, tool\n\n@tool\ndef f(*x):\n    '''F.'''\n",
            "mine:catalog",
            ["ToolSignatureError", "tool 'f', parameter 'x'", "no *args"],
        ),
    ],
)
def test_a_catalog_that_cannot_be_used_is_explained(
    tmp_path: Path, module: str, reference: str, words: list[str]
) -> None:
    """A module, import, name, type or tool that is wrong is reported with its location, before anything else starts."""
    (tmp_path / "mine.py").write_text(module)
    refused(start(tmp_path, "--dev", "--catalog", reference), *words)
    assert not (tmp_path / "home").exists(), "nothing was started for it"


@pytest.mark.extended
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The message names the variable, its value and the valid values."""
    refused(start(tmp_path, "--dev", HOLDFAST_LOG_LEVEL="loud"), "HOLDFAST_LOG_LEVEL=loud")


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """If a file is in place of the folder, the message names it, and the variable that selects another folder."""
    (tmp_path / "home").write_text("")
    refused(start(tmp_path, "--dev"), "cannot be written", "HOLDFAST_HOME")


@pytest.mark.extended
async def test_a_worker_that_does_not_stop_is_abandoned(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stage of the SDK's shutdown can hang; the block that runs the worker does not."""
    worker = Worker(client, task_queue=f"test-{uuid4().hex[:8]}", workflows=WORKFLOWS)
    never = asyncio.Event()
    monkeypatch.setattr(worker._bridge_worker, "finalize_shutdown", never.wait)
    with capture_logs() as logs:
        async with running(worker, within=0.5):
            pass
    assert [log["event"] for log in logs] == ["worker_abandoned"]
    never.set()

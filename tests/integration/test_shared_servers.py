"""The servers that the tests share are available to each test."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from temporalio.client import Client

from holdfast.config.stack_file import Stack, read_stack
from tests.support.rig import eventually
from tests.support.servers import ended_servers, restart_ended


def process_of(stack: Stack, server: str) -> psutil.Process:
    """Return the process that the stack currently records for a server."""
    recorded = read_stack(Path(stack.fleet_keys).parent)
    assert recorded is not None
    return psutil.Process({"temporal": recorded.temporal_pid, "postgres": recorded.postgres_pid}[server])


@pytest.mark.parametrize("server", ["temporal", "postgres"])
async def test_a_dead_server_is_named_and_restarted(stack: Stack, client: Client, server: str) -> None:
    """The next failure quotes the server's log; the restarted server has the same addresses."""
    assert ended_servers() == []
    process = process_of(stack, server)
    process.kill()
    process.wait()
    (ended,) = ended_servers()
    assert ended.startswith(f"{server} has ended. The last lines of ")

    restart_ended()
    assert ended_servers() == [f"{ended}\nIt was started again before this test."]
    restart_ended()
    assert ended_servers() == []
    async with await psycopg.AsyncConnection.connect(stack.database_url) as connection:
        await connection.execute("SELECT 1")
    assert await eventually(client.service_client.check_health, bool)


def test_an_inner_pytest_leaves_our_folders_open(stack: Stack, tmp_path: Path) -> None:
    """The account that runs PostgreSQL for root can enter its folder after a test has run pytest."""
    folders = [*Path(stack.fleet_keys).parents]
    before = [folder.stat().st_mode for folder in folders]
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_it.py"]
    assert subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, check=False).returncode == 0
    assert [folder.stat().st_mode for folder in folders] == before

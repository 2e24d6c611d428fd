"""`on_event` after a SIGKILL between two calls: nothing is missing, in order, and repeated from the cursor on."""

import asyncio
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from holdfast.config.stack_file import Stack
from holdfast.storage.threads import PostgresThreads
from tests.support.keeping import new_pool
from tests.support.rig import environ_of

ROOT = Path(__file__).parents[2]

PROGRAM = '''
import asyncio, os, signal, sys
from holdfast import Agent, Catalog, Policy, allow, running, tool
from holdfast.testing import call, say

queue, home, file, last_call, *threads = sys.argv[1:]
ended = set()

@tool(effect="read")
def look(path: str) -> str:
    """Look.

    Args:
        path: Where.
    """
    return "seen"

def on_event(thread, event):
    with open(file, "a") as lines:
        lines.write(f"{thread} {event.position}\\n")
    if f"{thread} {event.position}" == last_call:
        os.kill(os.getpid(), signal.SIGKILL)
    if event.type == "run_finished":
        ended.add(thread)

async def main():
    clerk = Agent(name="clerk", instructions="Work.", tools=[look], policy=Policy(rules=(allow(),)))
    replies = [call("look", path="a"), call("look", path="b"), say("done")]
    options = {"script": replies, "task_queue": queue, "home": home, "on_event": on_event}
    async with running(Catalog(agents=[clerk]), **options) as client:
        for name in threads:
            await client.start("look", thread=name)
            while name not in ended:
                await asyncio.sleep(0.05)

asyncio.run(main())
'''

Call = tuple[str, int]


async def cursor(pool: AsyncConnectionPool) -> dict[str, int]:
    """Return the position of the next event of each thread that was taken."""
    async with pool.connection() as connection:
        found = await connection.execute(
            "SELECT t.thread, f.position FROM holdfast.feed_threads f JOIN holdfast.threads t ON t.id = f.thread"
        )
        return {str(thread): int(position) for thread, position in await found.fetchall()}


def program(arguments: tuple[str, ...], environ: dict[str, str], folder: Path) -> int:
    """Run the program until it ends, and return how."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, env=environ, cwd=folder, timeout=300, check=False).returncode


@pytest.mark.extended
async def test_a_killed_program_gets_every_event_again_from_the_cursor_on(stack: Stack, tmp_path: Path) -> None:
    """A thread that was taken is not repeated; one in whose middle the program was killed is, from its cursor on."""
    queue = f"hooks-{uuid4().hex[:8]}"
    threads = [f"{queue}-{name}" for name in "ab"]
    taken: dict[str, int] = {}
    passed: set[Call] = set()
    got: list[Call] = []
    async with new_pool(stack.database_url) as (url, pool):
        database = conninfo_to_dict(url)["dbname"]
        environ = {
            **environ_of(stack),
            "DATABASE_URL": urlsplit(stack.database_url)._replace(path=f"/{database}").geturl(),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        }
        for number, last in enumerate((f"{threads[0]} 3", f"{threads[1]} 4", "")):
            file = tmp_path / f"calls-{number}"
            due = [thread for thread in threads if thread not in taken]
            arguments = (queue, str(tmp_path / "home"), str(file), last, *due)
            assert await asyncio.to_thread(program, arguments, environ, tmp_path) == (-9 if last else 0)
            lines = file.read_text().splitlines()
            assert not last or lines[-1] == last
            got = [(name, int(position)) for name, position in map(str.split, lines)]
            for thread in threads:
                own = [position for name, position in got if name == thread]
                assert own[:1] in ([], [taken.get(thread, 0)]), "it begins at the cursor"
                assert all(after == before + 1 for before, after in pairwise(own)), "it is in order, without a gap"
            passed |= set(got)
            taken = await cursor(pool)
            assert {(thread, at) for thread, end in taken.items() for at in range(end)} <= passed
        assert threads[0] in taken
        assert {name for name, _ in got} == {threads[1]}, "what was taken is not repeated"
        for thread in threads:
            recorded = len(await PostgresThreads(pool).read(thread, 0))
            assert {at for name, at in passed if name == thread} == set(range(recorded))

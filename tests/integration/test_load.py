"""What `doctor --load` measures on the real servers."""

import asyncio
from uuid import uuid4

from temporalio.client import Client

from holdfast.cli.checks.load import limit_of, rows_of
from holdfast.cli.checks.load_probe import measure
from holdfast.config.stack_file import Stack


async def test_tasks_without_a_worker_are_seen_to_wait(stack: Stack, client: Client) -> None:
    """Starts that no worker takes make a backlog, whose limit is that nobody fetches it."""
    queue = f"nobody-{uuid4().hex[:8]}"
    started = [await client.start_workflow("Unknown", id=f"{queue}-{n}", task_queue=queue) for n in range(3)]
    try:
        await asyncio.sleep(1.1)  # not for a condition: the age of the tasks is what is measured
        found = await measure(client, queue, stack=stack, database_url=stack.database_url, seconds=0.1)
    finally:
        for each in started:
            await each.terminate()
    assert (found.workers, found.worker_cpu, found.backlog) == (0, (), 3)
    assert found.waits
    assert next(row for row in rows_of(found) if row.name == "pollers").limits
    assert found.database_ms is not None
    assert found.connections[0] >= 1
    assert found.server_cpu is not None
    assert limit_of(rows_of(found)) != "nothing"

"""`doctor --load`: which part of the system limits the throughput, for each measurement."""

from dataclasses import replace

import pytest

from holdfast.cli.checks.load import SLOTS, Limit, Load, limit_of, report, rows_of

IDLE = Load(
    seconds=5,
    cores=8,
    machine=0.2,
    workers=2,
    worker_cpu=(0.1, 0.2),
    server_ms=3,
    server_cpu=0.3,
    backlog=0,
    backlog_seconds=0,
    runs=4,
    calls={},
    retrying=0,
    database_ms=1,
    connections=(20, 100),
)
WAITS = replace(IDLE, backlog=500, backlog_seconds=7)


@pytest.mark.parametrize(
    ("load", "limit"),
    [
        (IDLE, "nothing"),
        (replace(IDLE, backlog=3, backlog_seconds=0.1), "nothing"),
        (replace(WAITS, worker_cpu=(0.4, 0.97)), "worker CPU"),
        (replace(WAITS, worker_cpu=(0.97,), server_cpu=3.1), "server"),
        (replace(WAITS, worker_cpu=(0.97,), machine=0.99, server_cpu=3.1), "machine"),
        (replace(IDLE, server_cpu=None, server_ms=180), "server"),
        (replace(WAITS, worker_cpu=(0.97,), database_ms=120), "database"),
        (replace(IDLE, connections=(97, 100)), "database"),
        (replace(IDLE, lock_waits=4), "database"),
        (replace(WAITS, calls={"call_tool": 2 * SLOTS}), "slots"),
        (WAITS, "pollers"),
        (replace(WAITS, workers=0, worker_cpu=()), "pollers"),
        (replace(IDLE, calls={"call_llm": 40, "call_tool": 3}), "llm"),
        (replace(IDLE, calls={"call_llm": 4, "call_tool": 30}, retrying=3), "llm"),
        (replace(IDLE, calls={"call_llm": 4, "call_tool": 30}), "nothing"),
        (replace(IDLE, database_ms=None, connections=(0, 0)), "nothing"),
    ],
)
def test_the_first_part_that_is_used_up_is_the_limit(load: Load, limit: Limit) -> None:
    """A part that is used up hides those behind it: workers are slow because the server is, and not the reverse."""
    rows = rows_of(load)
    assert limit_of(rows) == limit
    assert f"The limit is: {limit}" in report(rows).plain
    assert all(row.advice for row in rows if row.limits)

"""Counters of the servers, read before and after a run, outside the contender's process."""

import re
import time
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psycopg

from bench.peers.contender import Setup

_ADDRESS = re.compile(r"^Temporal Metrics: +(http://\S+)$", re.MULTILINE)
_ACTION = re.compile(r'^action\{[^}]*namespace="default"[^}]*\} (\S+)$', re.MULTILINE)


REPORTED = 1.5
"""The server reports metrics once a second; after this long without a change, all are reported."""


def settled_actions(setup: Setup) -> int:
    """Return the actions since the Temporal server was started, once all of them are reported."""
    seen = actions(setup)
    for _ in range(10):
        time.sleep(REPORTED)
        before, seen = seen, actions(setup)
        if seen == before:
            break
    return seen


def actions(setup: Setup) -> int:
    """Return the actions since the Temporal server was started by its metric `action`, up to a second old."""
    address = _ADDRESS.search(Path(setup.temporal_log).read_text(encoding="utf-8", errors="replace"))
    if address is None:
        raise RuntimeError(f"{setup.temporal_log} does not contain the address of the server's metrics")
    with build_opener(ProxyHandler({})).open(address[1], timeout=10) as response:
        return count_actions(response.read().decode())


def count_actions(metrics: str) -> int:
    """Sum the actions of every kind in the namespace of the runs, without the server's own namespace."""
    return round(sum(map(float, _ACTION.findall(metrics))))


def transactions(setup: Setup) -> int:
    """Return the number of writing transactions on the PostgreSQL server, by the counter of transaction ids.

    The counter is always exact. `pg_stat_database` would include read-only transactions, but idle connections report to
    it up to ten seconds late.
    """
    with psycopg.connect(setup.database_url("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return int(row[0])

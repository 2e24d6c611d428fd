"""What the servers count, read before a run and after it. Nothing of it runs in the contender's process."""

import re
import time
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psycopg

from bench.peers.contender import Setup

_ADDRESS = re.compile(r"^Temporal Metrics: +(http://\S+)$", re.MULTILINE)
_ACTION = re.compile(r'^action\{[^}]*namespace="default"[^}]*\} (\S+)$', re.MULTILINE)


REPORTED = 1.5
"""The server reports its metrics once a second; this long without a change, and all is reported."""


def settled_actions(setup: Setup) -> int:
    """Actions since the Temporal server was started, when the server has reported the last of them."""
    seen = actions(setup)
    for _ in range(10):
        time.sleep(REPORTED)
        before, seen = seen, actions(setup)
        if seen == before:
            break
    return seen


def actions(setup: Setup) -> int:
    """Actions since the Temporal server was started, by its own metric `action`, up to a second ago."""
    address = _ADDRESS.search(Path(setup.temporal_log).read_text(encoding="utf-8", errors="replace"))
    if address is None:
        raise RuntimeError(f"{setup.temporal_log} does not say where the server's metrics are")
    with build_opener(ProxyHandler({})).open(address[1], timeout=10) as response:
        return count_actions(response.read().decode())


def count_actions(metrics: str) -> int:
    """Actions in the namespace of the runs, of every kind; the server has a namespace of its own, too."""
    return round(sum(map(float, _ACTION.findall(metrics))))


def transactions(setup: Setup) -> int:
    """Transactions on the PostgreSQL server that have written, by the counter of their ids.

    `pg_stat_database` has those that only read, too; but an idle connection reports its last ones up to ten seconds
    late, and the counter is exact at any moment.
    """
    with psycopg.connect(setup.database_url("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return int(row[0])

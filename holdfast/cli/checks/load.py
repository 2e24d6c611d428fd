"""`doctor --load`: says what limits the throughput now, from measurements of a few seconds. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rich.text import Text

from holdfast.cli.text import count

Limit = Literal["machine", "server", "database", "worker CPU", "slots", "pollers", "llm", "nothing"]
"""What more work would wait for."""

BUSY_MACHINE = 0.95
"""The share of all cores from which a machine has nothing left."""
BUSY_WORKER = 0.85
"""The cores from which a worker process has nothing left: Python uses one."""
BUSY_SERVER = 2.5
"""The cores from which the embedded server gets no faster: its throughput falls with further workers."""
SLOW_SERVER_MS, SLOW_DATABASE_MS = 100.0, 50.0
"""The median answer from which a server is overloaded, or far away."""
SLOTS = 100
"""Activities that a worker makes at a time, by the SDK's default."""
WAITING_SECONDS = 1.0
"""The age of the oldest task in a queue from which tasks wait for workers."""


@dataclass(frozen=True)
class Load:
    """What was measured."""

    seconds: float
    """How long."""
    cores: int
    """Of this machine."""
    machine: float
    """The share of them that was used, from 0 to 1."""
    workers: int
    """Workers that polled the task queue, on any machine."""
    worker_cpu: tuple[float, ...]
    """Cores that each worker process of this machine used."""
    server_ms: float
    """The median answer of Temporal."""
    server_cpu: float | None
    """Cores that the embedded server used; None for another server."""
    backlog: int
    """Tasks that wait in the queue for a worker."""
    backlog_seconds: float
    """The age of the oldest."""
    runs: int
    """Open runs that were looked at, the newest ones."""
    calls: Mapping[str, int]
    """Their activities that a worker is making, by type."""
    retrying: int
    """Their LLM calls that have failed, and are repeated."""
    database_ms: float | None
    """The median answer of the database; None if it is not reached from here."""
    connections: tuple[int, int] = (0, 0)
    """The database's connections, and their limit."""
    lock_waits: int = 0
    """Its sessions that wait for a lock."""

    @property
    def waits(self) -> bool:
        """Whether tasks wait for workers."""
        return self.backlog > 0 and self.backlog_seconds >= WAITING_SECONDS


@dataclass(frozen=True)
class Row:
    """A part of the system, and how far it is used."""

    name: str
    detail: str
    limits: bool = False
    """Whether it is used up."""
    advice: str = ""


def rows_of(load: Load) -> tuple[Row, ...]:
    """Return the parts of the system, in the order in which one hides the next: the first that limits is the limit."""
    return (_machine(load), _server(load), _database(load), *_workers(load), _llm(load))


def limit_of(rows: tuple[Row, ...]) -> Limit:
    """Return what more work would wait for."""
    found = next((row.name for row in rows if row.limits), "nothing")
    return found  # type: ignore[return-value]  # the names of rows are limits


def report(rows: tuple[Row, ...]) -> Text:
    """Return the report for people."""
    limit, screen = limit_of(rows), Text()
    for row in rows:
        style = "bold red" if row.limits else "green"
        screen.append(f"{'limits' if row.limits else 'ok':<8}", style).append(f"{row.name:<19}", "bold")
        screen.append(row.detail + "\n")
        if row.limits and row.advice:
            screen.append(f"{'':<27}→ {row.advice}\n", "dim")
    screen.append(f"\nThe limit is: {limit}", "bold")
    return screen


def _machine(load: Load) -> Row:
    detail = f"{load.machine:.0%} of {count(load.cores, 'core')}, for {load.seconds:g} s"
    return Row("machine", detail, load.machine >= BUSY_MACHINE, "run workers, server or database on another machine")


def _server(load: Load) -> Row:
    detail = f"answers in {load.server_ms:.0f} ms"
    slow = load.server_ms >= SLOW_SERVER_MS
    if load.server_cpu is None:
        return Row("server", detail, slow, "scale Temporal's frontend, history and database; move workers nearer to it")
    busy = load.server_cpu >= BUSY_SERVER
    advice = "it is the embedded server: use fewer workers, or a Temporal cluster (docs/how-to/size-a-deployment.md)"
    return Row("server", f"{detail}, and uses {load.server_cpu:.1f} cores (embedded)", slow or busy, advice)


def _database(load: Load) -> Row:
    if load.database_ms is None:
        return Row("database", "not reached from here: set DATABASE_URL to the one that workers have")
    used, most = load.connections
    detail = f"answers in {load.database_ms:.0f} ms; {used} of {most} connections; {load.lock_waits} wait for a lock"
    full = most > 0 and used >= 0.9 * most
    advice = (
        "raise max_connections, or put PgBouncer before it" if full else "look at its disk, CPU and long transactions"
    )
    return Row("database", detail, load.database_ms >= SLOW_DATABASE_MS or full or load.lock_waits > 0, advice)


def _workers(load: Load) -> tuple[Row, ...]:
    busiest = max(load.worker_cpu, default=0.0)
    own = len(load.worker_cpu)
    here = f"{own:,} {'process' if own == 1 else 'processes'} here" if own else "none on this machine"
    queue = f"{load.backlog:,} tasks wait, the oldest for {load.backlog_seconds:.1f} s"
    busy = busiest >= BUSY_WORKER
    calls = sum(load.calls.values())
    full = load.waits and load.workers > 0 and calls >= 0.9 * SLOTS * load.workers
    return (
        Row(
            "worker CPU",
            f"{count(load.workers, 'worker')}, {here}; the busiest uses {busiest:.2f} cores",
            busy,
            "start another worker process: each uses one core",
        ),
        Row(
            "slots",
            f"{calls:,} calls of {load.runs:,} runs under way",
            full,
            "calls are long, and every slot is taken: start another worker, or shorten them",
        ),
        Row("pollers", queue, load.waits and not busy and not full, "no worker fetches them: start another worker"),
    )


def _llm(load: Load) -> Row:
    calling, calls = load.calls.get("call_llm", 0), sum(load.calls.values())
    detail = f"{calling:,} calls under way, {load.retrying:,} of them repeated"
    failing = load.retrying > 0 and load.retrying >= 0.1 * max(calling, 1)
    waiting = calling > 0 and calling >= 0.5 * calls and not load.waits
    advice = (
        "its endpoint fails or limits the rate: `show THREAD` has the error"
        if failing
        else ("runs wait for its replies, and more runs at once cost nothing: workers have room")
    )
    return Row("llm", detail, failing or waiting, advice)

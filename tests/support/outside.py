"""The outside systems of the kill matrix: an HTTP server that counts, a growing file, and a PostgreSQL table.

Its catalog has tools of each effect class that act on them, all by requests to the server, which outlive the worker
that sent them. Only the idempotent API would prevent a second effect.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx2
import psycopg

from holdfast import Absent, Agent, Catalog, Found, Limits, Policy, ToolContext, allow, ask, tool

LATE = 0.1
"""The share of late requests in kill tests."""

LATEST = 4.0
"""Seconds that a request may take to arrive."""

SETTLES = LATEST + 2
"""The limits that the tools declare, with room for a busy machine."""


class Api:
    """An HTTP server that stores `POST /charges` once per key, and every `POST /transfers`.

    Args:
        seconds: The delay between an effect and its answer.
        late: The share of requests that take 1 to `LATEST` seconds to have their effect, even if their sender is gone.
    """

    def __init__(self, seconds: float = 0.0, *, late: float = 0.0) -> None:
        self.seconds = seconds
        self.charges: Counter[str] = Counter()
        self.transfers: Counter[str] = Counter()
        self.carriers: dict[str, Callable[[str, str], None]] = {}
        """The effects of further paths, given a key and an order."""
        self.asked = 0
        """Requests to charge."""
        self._late, self._chance = late, random.Random(7)
        self._lock = threading.Lock()
        self.under_way = 0
        """Requests that have arrived and have not had their effect."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (_Served,), {"api": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def apply(self, path: str, key: str, order: str) -> None:
        """Perform an effect, now or late."""
        with self._lock:
            self.asked += path == "/charges"
            self.under_way += 1
            late = self._chance.uniform(1, LATEST) if self._chance.random() < self._late else 0
        try:
            time.sleep(late)
            if path == "/charges":
                self.charges[key] = 1
            elif path == "/transfers":
                with self._lock:
                    self.transfers[key] += 1
            else:
                self.carriers[path](key, order)
        finally:
            with self._lock:
                self.under_way -= 1

    def drain(self) -> None:
        """Wait until every request that has arrived has had its effect."""
        while self.under_way:
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Served(BaseHTTPRequestHandler):
    api: Api

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Perform the effect."""
        key = self.headers["Idempotency-Key"]
        order = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            self.api.apply(self.path, key, order)
        except (OSError, psycopg.Error):  # the database is down, so nothing has happened
            self._answer({}, status=503)
            return
        time.sleep(self.api.seconds)
        self._answer({"receipt": key})

    def do_GET(self) -> None:
        """Look up a transfer."""
        self._answer({"found": self.api.transfers[self.path.rpartition("/")[2]]})

    def _answer(self, answer: dict[str, Any], *, status: int = 200) -> None:
        body = json.dumps(answer).encode()
        with suppress(ConnectionError):  # the caller may have been killed
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


class Outside:
    """The test's view of the outside systems.

    Args:
        api: The running API.
        file: The outbox.
        database_url: The database with the table `outside.shipments`; None while there is none.
    """

    def __init__(self, api: Api, file: Path) -> None:
        self.api = api
        self.file = file
        self.database_url: str | None = None
        self._lock = threading.Lock()
        api.carriers |= {"/mails": self._mail, "/shipments": self._ship}

    @property
    def environ(self) -> dict[str, str]:
        """The environment that the worker's tools need."""
        return {"OUTSIDE_API": self.api.url, "OUTSIDE_FILE": str(self.file)}

    def _mail(self, key: str, order: str) -> None:
        with self._lock, self.file.open("a") as outbox:
            outbox.write(f"{key}\n")

    def _ship(self, key: str, order: str) -> None:
        with psycopg.connect(self.database_url or "", connect_timeout=60) as connection:
            connection.execute("INSERT INTO outside.shipments VALUES (%s, %s)", [key, order])

    def effects(self) -> Counter[str]:
        """Return how often each effect has happened, by key."""
        seen = self.api.charges + self.api.transfers
        if self.file.exists():
            seen.update(self.file.read_text().splitlines())
        if self.database_url:
            with psycopg.connect(self.database_url, connect_timeout=60) as connection:
                seen.update(key for (key,) in connection.execute("SELECT key FROM outside.shipments").fetchall())
        return seen

    def prepare(self, database_url: str) -> None:
        """Create the table, which accepts the same key repeatedly."""
        with psycopg.connect(database_url) as connection:
            connection.execute("CREATE SCHEMA outside")
            connection.execute("CREATE TABLE outside.shipments (key text NOT NULL, parcel text NOT NULL)")
        self.database_url = database_url


async def _send(path: str, key: str, order: str) -> str:
    """Send a request, and return the receipt."""
    async with httpx2.AsyncClient(trust_env=False, timeout=120) as client:
        url, headers = os.environ["OUTSIDE_API"] + path, {"Idempotency-Key": key}
        answer = await client.post(url, headers=headers, content=order)
    answer.raise_for_status()
    return str(answer.json()["receipt"])


@tool(effect="idempotent")
async def charge(order: str, context: ToolContext) -> str:
    """Charge a card, by an API with idempotency keys."""
    return await _send("/charges", context.key, order)


async def _find_transfer(context: ToolContext) -> Found | Absent:
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{os.environ['OUTSIDE_API']}/transfers/{context.key}")
    return Found("found the transfer") if answer.json()["found"] else Absent()


@tool(effect="verifiable", check=_find_transfer, settles_within=SETTLES)
async def transfer(order: str, context: ToolContext) -> str:
    """Transfer money, by an API that can be queried afterwards."""
    await _send("/transfers", context.key, order)
    return "transferred"


def _find_shipment(context: ToolContext) -> Found | Absent:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        rows = connection.execute("SELECT parcel FROM outside.shipments WHERE key = %s", [context.key]).fetchall()
    return Found(rows[0][0]) if rows else Absent()


@tool(effect="verifiable", check=_find_shipment, settles_within=SETTLES)
async def ship(order: str, context: ToolContext) -> str:
    """Ship a parcel: a row in a table."""
    await _send("/shipments", context.key, order)
    return "shipped"


@tool(effect="unsafe", settles_within=SETTLES)
async def mail(order: str, context: ToolContext) -> str:
    """Mail the customer; the effect cannot be verified."""
    await _send("/mails", context.key, order)
    return "mailed"


@tool(effect="idempotent")
def stamp(order: str, context: ToolContext) -> str:
    """Stamp the order. Wrongly declared idempotent: a second call leaves a second stamp."""
    with Path(os.environ["OUTSIDE_FILE"]).open("a") as outbox:
        outbox.write(f"{context.key}\n")
    return "stamped"


@tool(effect="read")
async def look(order: str) -> str:
    """Look at the order."""
    return f"order {order} is open"


catalog = Catalog(
    agents=[
        Agent(
            name="shop",
            instructions="Serve the order.",
            policy=Policy(rules=(ask("ship", reason="it leaves the house"), allow())),
            dormancy=True,
            subagents=("helper",),
            limits=Limits(history_events=40, max_steps=100_000, repeats_slowed=0, repeats_warned=0, repeats_asked=0),
            tools=[charge, transfer, ship, mail, stamp, look],
        ),
        Agent(name="helper", instructions="Help.", tools=()),
    ],
    tools=[charge, transfer, ship, mail, stamp, look],
)

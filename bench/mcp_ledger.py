"""The MCP servers and the agent of `bench.mcp_kills`: a desk over stdio and a shop over HTTP, of one program.

    python -m bench.mcp_ledger BOOK [PORT]

Each effect is a line of the book with its effect key. `charge` keeps keys, as a server with idempotency does; `mail`
does not, so a second request would be a second mail. Both take a moment before the effect and after it, so that kills
hit either.
"""

import asyncio
import fcntl
import os
import random
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from holdfast import MCP, Agent, Limits, Policy, allow, ask
from holdfast.core.tools.decorator import EffectName

BOOK, PORT = "LEDGER_BOOK", "LEDGER_PORT"
"""Variables of the worker: the path of the book, and the port of the shop."""
SLOWEST = 0.4
"""The most seconds before an effect, and again after it."""
TIMEOUT = 5.0
"""The time limit of a call, in seconds."""

server = MCPServer("ledger", version="1")


async def _write(context: Context, *, once: bool) -> None:
    key = str(dict(context.request_context.meta or {})["holdfast/effect-key"])
    await asyncio.sleep(random.uniform(0, SLOWEST))
    _add(key, once=once)
    await asyncio.sleep(random.uniform(0, SLOWEST))


def _add(key: str, *, once: bool) -> None:
    with Path(sys.argv[1]).open("a+") as book:
        fcntl.flock(book, fcntl.LOCK_EX)
        book.seek(0)
        if not (once and key in book.read().split()):
            book.write(f"{key}\n")


@server.tool()
async def charge(order: str, context: Context) -> str:
    """Charge a card, once per key."""
    await _write(context, once=True)
    return f"charged {order}"


@server.tool()
async def mail(order: str, context: Context) -> str:
    """Mail the customer, each time."""
    await _write(context, once=False)
    return f"mailed {order}"


@server.tool()
def look(order: str) -> str:
    """Look at the order."""
    return f"order {order} is open"


CLERK = Agent(
    name="clerk",
    instructions="Serve the order.",
    tools=["desk_*", "shop_*"],
    policy=Policy(rules=(ask("shop_mail", reason="it leaves the house"), allow())),
    limits=Limits(history_events=60, max_steps=100_000, repeats_slowed=0, repeats_warned=0, repeats_asked=0),
    dormancy=True,
)


def make_servers() -> list[MCP]:
    """Return the two servers, as the environment has them."""
    effects: dict[str, EffectName] = {"look": "read", "charge": "idempotent"}
    command = [sys.executable, "-m", "bench.mcp_ledger", os.environ[BOOK]]
    path = os.pathsep.join(filter(None, sys.path))
    desk = MCP("desk", command=command, env={"PYTHONPATH": path}, effects=effects, timeout=TIMEOUT, confined=False)
    return [desk, MCP("shop", url=f"http://127.0.0.1:{os.environ[PORT]}/mcp", effects=effects, timeout=TIMEOUT)]


if __name__ == "__main__":
    if sys.argv[2:]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")

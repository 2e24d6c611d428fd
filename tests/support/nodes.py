"""The catalog of runs that only some nodes may execute: tools that say on which node they ran, and one that cannot run
on each.
"""

import os
import threading
from collections import Counter
from functools import partial

import httpx2

from holdfast import Agent, Cannot, Catalog, Policy, ToolContext, allow, ask, tool
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.moved import END, LIMITS
from tests.support.outside import SETTLES, Api

CANNOT = "NODES_CANNOT"
"""The environment variable with the tools that a node cannot run, separated by commas."""
TURNS: tuple[tuple[str, ...], ...] = (
    ("charge", "look"),
    ("transfer",),
    ("mail", "charge"),
    ("pay",),
    ("wait",),
    ("look", "mail", "transfer"),
)


class Witness:
    """Counts the effects of the tools, and remembers the nodes that made them.

    Args:
        api: The running API, which calls this object; some of its requests have their effect late.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.nodes: dict[str, set[str]] = {}
        """The nodes that sent a request, by effect key."""
        self._effects = Counter[str]()
        self._lock = threading.Lock()
        api.carriers |= {"/once": partial(self._happen, once=True), "/each": self._happen}

    @property
    def environ(self) -> dict[str, str]:
        """The environment that the tools need."""
        return {"OUTSIDE_API": self.api.url}

    def _happen(self, key: str, node: str, *, once: bool = False) -> None:
        with self._lock:
            self.nodes.setdefault(key, set()).add(node)
            self._effects[key] = 1 if once else self._effects[key] + 1

    def effects(self) -> Counter[str]:
        """Return how often each effect has happened, by key."""
        with self._lock:
            return Counter(self._effects)


async def _send(path: str, tool_name: str, context: ToolContext) -> str | Cannot:
    """Send a request with the name of this node, unless it cannot run the tool."""
    if tool_name in os.environ.get(CANNOT, "").split(","):
        return Cannot(f"{tool_name} has no route from here", scope="node")
    async with httpx2.AsyncClient(trust_env=False, timeout=120) as client:
        url, headers = os.environ["OUTSIDE_API"] + path, {"Idempotency-Key": context.key}
        answer = await client.post(url, headers=headers, content=os.environ["HOLDFAST_NODE"])
    answer.raise_for_status()
    return str(answer.json()["receipt"])


@tool(effect="idempotent")
async def charge(order: str, context: ToolContext) -> str | Cannot:
    """Charge a card, by an API with idempotency keys."""
    return await _send("/once", "charge", context)


@tool(effect="idempotent")
async def transfer(order: str, context: ToolContext) -> str | Cannot:
    """Transfer money, which not every node may."""
    return await _send("/once", "transfer", context)


@tool(effect="unsafe", settles_within=SETTLES)
async def mail(order: str, context: ToolContext) -> str | Cannot:
    """Mail the customer, which not every node can."""
    return await _send("/each", "mail", context)


@tool(effect="unsafe", settles_within=SETTLES)
async def pay(order: str, context: ToolContext) -> str | Cannot:
    """Pay, which one node may not and another cannot."""
    return await _send("/each", "pay", context)


@tool(effect="read")
async def look(order: str) -> str:
    """Look at the order."""
    return f"{order} seen on {os.environ['HOLDFAST_NODE']}"


def script(conversation: Conversation) -> Reply:
    """Make the next calls, until the message ends the run."""
    if any(END in str(message["content"]) for message in conversation.messages if message["role"] == "user"):
        return say("served")
    order, turn = str(conversation.replies), TURNS[conversation.replies % len(TURNS)]
    wait = call("wait_for_event", name="paid")
    return together(*(wait if each == "wait" else call(each, order=order) for each in turn))


catalog = Catalog(
    agents=[
        Agent(
            name="shop",
            instructions="Serve the order.",
            policy=Policy(rules=(ask("mail", reason="it leaves the house"), allow())),
            tools=[charge, transfer, mail, pay, look],
            dormancy=True,
            limits=LIMITS,
        )
    ],
    tools=[charge, transfer, mail, pay, look],
)

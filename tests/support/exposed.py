"""Agents that tests expose to MCP clients, and the gateway that serves them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from holdfast import Agent, Catalog, Context, Policy, allow, tool
from holdfast.client.threads import Threads
from holdfast.core.stores import ArtifactStore
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Token
from holdfast.gateway.mcp.exposed import expose
from holdfast.testing import call, say, steps
from tests.support.rig import Rig, StartRig
from tests.support.serving import served, sha256

EXPOSED = ("clerk", "quoter")
POLICY = Policy(rules=(allow("look"), allow("report")))
EVERYTHING: Any = ("start", "read", "decide", "cancel", "transcript", "artifacts")


class Item(BaseModel):
    """A line of a quote."""

    name: str
    cents: int


class Quote(BaseModel):
    """The result of the quoter."""

    items: list[Item]


class Address(BaseModel):
    """Where a customer lives."""

    city: str


class Customer(BaseModel):
    """The context of the quoter."""

    number: str
    address: Address | None = None


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="read")
def look(customer: Context[Customer]) -> str:
    """Look at the customer."""
    return customer.number


@tool(effect="read")
def report() -> str:
    """Return a long report."""
    return "größer " * 20_000


def catalog(policy: Policy = POLICY, artifacts: ArtifactStore | None = None) -> Catalog:
    """Return three agents, of which one is not exposed."""
    return Catalog(
        agents=[
            Agent(name="clerk", instructions="A secret of the house.", policy=policy, tools=[pay, report]),
            Agent(
                name="quoter",
                instructions="Quote.",
                description="Writes quotes.",
                policy=policy,
                tools=[look],
                context=Customer,
                result=Quote,
            ),
            Agent(name="private", instructions="Work.", policy=policy),
        ],
        artifacts=artifacts,
    )


PAYS = steps([call("pay", amount=7), say("Paid.")])


CALLERS = CallersFile(
    tokens=(
        Token(name="alice", sha256=sha256("of-alice"), scopes=EVERYTHING),
        Token(name="bob", sha256=sha256("of-bob"), scopes=EVERYTHING),
        Token(name="starter", sha256=sha256("of-starter"), scopes=("start", "read")),
        Token(name="reader", sha256=sha256("of-reader"), scopes=("read",)),
        Token(name="tenant", sha256=sha256("of-tenant"), scopes=EVERYTHING, threads=("tenant-",)),
    )
)


@dataclass
class Site:
    """A gateway with exposed agents, and the worker behind it."""

    rig: Rig
    url: str


@asynccontextmanager
async def site(
    rig: StartRig,
    policy: Policy = POLICY,
    replies: Any = PAYS,
    *,
    key: str | None = None,
    artifacts: ArtifactStore | None = None,
    **options: Any,
) -> AsyncIterator[Site]:
    """Run a gateway that exposes the clerk and the quoter, and a worker."""
    agents = catalog(policy, artifacts)
    async with rig(agents, replies) as worker:
        threads = Threads(worker.client, task_queue=worker.task_queue, answer_within=60.0)
        exposed = expose(agents, EXPOSED, key=key)
        app = build_app(
            threads,
            Callers(CALLERS, policy),
            key=key,
            audience="http://gateway.example",
            exposed=exposed,
            artifacts=artifacts,
            **options,
        )
        async with served(app) as url:
            yield Site(worker, url)

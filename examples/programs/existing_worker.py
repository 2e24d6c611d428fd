"""An existing worker with the plugin: the shop's worker, its workflow and its activities, and an agent beside them.

    TEMPORAL_ADDRESS=localhost:7233 python -m holdfast.examples.programs.existing_worker

The one new line is the plugin. The order workflow is what it was; the agent answers customers, and a person decides
whether it may refund an order: `holdfast pending`, `holdfast approve THREAD 1`.
"""

import asyncio
import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

import holdfast
from holdfast import Agent, Catalog, HoldfastPlugin, Policy, allow, ask, tool
from holdfast.testing import Conversation, Reply, call, say

QUEUE = "shop"
PRICES = {"kettle": 2900, "teapot": 1900}
CHARGED: dict[str, int] = {}
"""The till of the example, in cents by order."""

# What the shop had before.


@activity.defn
async def charge(order: str, item: str) -> int:
    """Charge the price of an item."""
    return CHARGED.setdefault(order, PRICES[item])


@workflow.defn
class OrderWorkflow:
    """An order of one item."""

    @workflow.run
    async def run(self, order: str, item: str) -> int:
        """Return what was charged, in cents."""
        return await workflow.execute_activity(charge, args=[order, item], start_to_close_timeout=timedelta(seconds=30))


# What is new.


@tool(effect="read")
async def find_order(order: str) -> str:
    """Look up an order."""
    return f"{CHARGED[order] / 100:.2f} EUR were charged." if order in CHARGED else "There is no such order."


@tool(effect="idempotent")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{CHARGED.pop(order, 0) / 100:.2f} EUR go back."


catalog = Catalog(
    agents=[
        Agent(
            name="support",
            instructions="Answer customers of the shop. Look orders up; refund one if the customer is right.",
            tools=("find_order", "refund"),
            policy=Policy(rules=(allow("find_order"), ask("refund"))),
        )
    ],
    tools=[find_order, refund],
)


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    order = conversation.last_user_message.split()[-1].rstrip(".")
    match conversation.replies:
        case 0:
            return call("find_order", order=order)
        case 1:
            return call("refund", order=order)
        case _:
            return say(conversation.results[-1])


async def connect() -> Client:
    """Connect the shop's client, whose workers now run agents, too."""
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    return await Client.connect(address, plugins=[HoldfastPlugin(catalog, script=script)])


def worker(client: Client) -> Worker:
    """Return the shop's worker, as it was."""
    return Worker(client, task_queue=QUEUE, workflows=[OrderWorkflow], activities=[charge])


async def main() -> None:
    """Sell a teapot, and let the agent answer a customer who wants the money back."""
    client = await connect()
    async with worker(client), holdfast.Client.connect(client, task_queue=QUEUE, by="shop") as agents:
        await client.execute_workflow(OrderWorkflow.run, args=["4711", "teapot"], id="order-4711", task_queue=QUEUE)
        thread = await agents.start("The spout is broken. Please refund order 4711.", thread="complaint-4711")
        waiting = await thread.result(until="attention")
        for request in waiting.pending:
            print(f"Waits for a person: holdfast approve {thread.id} {request.request}")
        print((await thread.result()).text)


if __name__ == "__main__":
    asyncio.run(main())

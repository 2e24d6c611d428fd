"""Existing activities as tools: one of the program's own, as it is, and one of another team's workers, by its name.

    TEMPORAL_ADDRESS=localhost:7233 python -m holdfast.examples.programs.activity_as_tool

`render` is sync, takes one object, and sends heartbeats. `PrintLabel` belongs to a worker on another task queue, which
may be written in any language, and knows nothing of agents.
"""

import asyncio
import os
from dataclasses import dataclass

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

import holdfast
from holdfast import Agent, Catalog, HoldfastPlugin, Policy, activity_tool, allow, tool
from holdfast.testing import Conversation, Reply, call, say

QUEUE = "office"
LABELS = "labels"


@dataclass
class Letter:
    """What to render."""

    to: str
    lines: list[str]


@activity.defn
def render(letter: Letter) -> str:
    """Render a letter as a page."""
    page = [f"Dear {letter.to},"]
    for number, line in enumerate(letter.lines):
        activity.heartbeat(number)
        page.append(line)
    return "\n".join(page)


@activity_tool("PrintLabel", task_queue=LABELS, effect="idempotent")
def print_label(to: str, copies: int = 1) -> str:
    """Print an address label.

    Args:
        to: The name of the recipient.
        copies: How many.
    """
    raise NotImplementedError("the workers of the task queue `labels` have it")


catalog = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Render the letter, and print one label for it.",
            tools=("render", "print_label"),
            policy=Policy(rules=(allow("*"),)),
        )
    ],
    tools=[tool(effect="read")(render), print_label],
)


class Labels:
    """The other team's activities. In the example they are in this process; in life they are elsewhere."""

    def __init__(self) -> None:
        self.printed: list[str] = []

    @activity.defn(name="PrintLabel")
    async def print(self, to: str, copies: int) -> str:
        """Print labels."""
        self.printed += copies * [to]
        return f"printed {copies}"


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    match conversation.replies:
        case 0:
            return call("render", letter={"to": "Ada", "lines": ["the engine works."]})
        case 1:
            return call("print_label", to="Ada")
        case _:
            return say("The letter and its label are ready.")


async def main() -> None:
    """Run both workers until the letter is ready."""
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, plugins=[HoldfastPlugin(catalog, script=script)])
    theirs = await Client.connect(address)
    async with (
        Worker(client, task_queue=QUEUE),
        Worker(theirs, task_queue=LABELS, activities=[Labels().print]),
        holdfast.Client.connect(client, task_queue=QUEUE) as agents,
    ):
        thread = await agents.start("Write to Ada that the engine works.")
        print((await thread.result()).text)


if __name__ == "__main__":
    asyncio.run(main())

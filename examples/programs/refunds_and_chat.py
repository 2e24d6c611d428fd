"""A chat that continues while a refund waits for its approval, for a week if need be.

    python -m holdfast.examples.programs.refunds_and_chat customer-7
    python -m holdfast.examples.programs.refunds_and_chat customer-7 --approve

The first command chats, line by line: "Please refund order 7", "When do you open?". The second one approves the refund,
in another terminal or a week later. The chat's agent gives the refund to a sub-agent in the background, and only that
one waits for people.
"""

import asyncio
import re
import sys

import holdfast
from holdfast import Agent, Catalog, Client, Limits, Policy, Thread, ThreadNotFound, allow, ask, tool
from holdfast.testing import Conversation, Reply, call, say

DAY = 86_400
DESK = "refund desk"
"""The name under which the program tells the chat about decided refunds."""


@tool(effect="unsafe")
def refund(order: int, cents: int) -> str:
    """Refund an order."""
    return f"order {order} is refunded: {cents} cents"


def script(conversation: Conversation) -> Reply:
    """Play the chat, and the clerk who refunds."""
    last = str(conversation.messages[-1]["content"])
    if "run_agent" not in conversation.tools:
        return say(conversation.results[-1]) if conversation.results else call("refund", order=7, cents=500)
    if conversation.results and conversation.messages[-1]["role"] == "tool":
        return say("I have asked for your refund. It takes until somebody approves it; is there anything else?")
    if "refund" in last and "desk" not in last:
        return call("run_agent", agent="clerk", task=last, background=True)
    return say(f"Good news: {last}" if "desk" in last else "We open at nine.")


catalog = Catalog(
    agents=[
        Agent(
            name="chat",
            instructions="Talk to customers. Have the clerk refund, in the background: never wait for a refund.",
            tools=(),
            subagents=("clerk",),
            policy=Policy(rules=(allow(),)),
            limits=Limits(idle_limit=30 * DAY),
        ),
        Agent(
            name="clerk",
            description="refunds an order, with the approval of the desk",
            instructions="Refund the order.",
            tools=("refund",),
            policy=Policy(rules=(ask("refund"),)),
        ),
    ],
    tools=[refund],
)


async def answer(client: Client, chat: str, message: str, *, by: str) -> str:
    """Send a message to a chat, which begins with it; return the agent's answer."""
    thread = client.thread(chat)
    try:
        await thread.say(message, by=by)
    except ThreadNotFound:
        thread = await client.start(message, agent="chat", thread=chat, by=by)
    result = await thread.result(until="answer")  # the refund's request, however old, does not end this wait
    return result.text or f"The chat is {result.status}: {[need.cause for need in result.attention]}"


async def approve_refunds(thread: Thread, client: Client, *, by: str) -> list[str]:
    """Approve the open refunds of a chat, and tell the customer; return what was done."""
    done = []
    for request in await thread.pending():
        await thread.decide(request, "approve", by=by)  # in the clerk's thread, which the request names
        text = (await client.thread(request.path[-1]).result()).text
        await thread.say(f"From the {DESK}: {text}", by=DESK.replace(" ", "-"))
        await thread.result(until="answer")
        done.append(text)
    return done


async def main(chat: str, *, approve: bool) -> None:
    """Approve the chat's refunds, or chat line by line."""
    async with holdfast.running(catalog, script=script, by="desk") as client:
        if approve:
            print("\n".join(await approve_refunds(client.thread(chat), client, by="desk")) or "no refund is open")
            return
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(await answer(client, chat, line, by=re.sub(r"[^A-Za-z0-9.-]", "-", chat)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if sys.argv[1:] else "customer-7", approve="--approve" in sys.argv))

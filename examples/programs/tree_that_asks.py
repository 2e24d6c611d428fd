"""A tree whose sub-agent asks while the program waits: it shows each request with its place in the tree, and decides.

    python -m holdfast.examples.programs.tree_that_asks issue-12 "Publish issue 12"

Answer with y, or decide in another terminal, with `holdfast pending` and `holdfast approve`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import holdfast
from holdfast import Agent, Catalog, PendingRequest, Policy, Thread, allow, ask, tool
from holdfast.testing import Conversation, Reply, call, say


@tool(effect="read")
def proofread(text: str) -> str:
    """Proofread a text."""
    return f"{text}: no mistakes"


@tool(effect="unsafe")
def publish(text: str) -> str:
    """Publish a text."""
    return f"{text}: published"


def script(conversation: Conversation) -> Reply:
    """As the editor, run the desk; as the desk, run the printer; as the printer, proofread and publish."""
    below = {"You edit.": "desk", "You run the desk.": "printer"}.get(str(conversation.messages[0]["content"]))
    task = str(conversation.messages[1]["content"])
    if below:
        return say(conversation.results[-1]) if conversation.results else call("run_agent", agent=below, task=task)
    if not conversation.results:
        return call("publish" if conversation.replies else "proofread", text=task)
    checked = "no mistakes" in conversation.results[-1]
    return call("publish", text=task) if checked else say(f"The printer says: {conversation.results[-1]}")


ASKS = Policy(rules=(allow("proofread"), allow("run_agent"), ask("publish", reason="readers cannot be taken back")))
catalog = Catalog(
    agents=[
        Agent(name="editor", instructions="You edit.", tools=(), subagents=("desk",), policy=ASKS),
        Agent(name="desk", instructions="You run the desk.", tools=(), subagents=("printer",), policy=ASKS),
        Agent(name="printer", instructions="You print.", tools=("proofread", "publish"), policy=ASKS),
    ],
    tools=[proofread, publish],
)

Decide = Callable[[PendingRequest], Awaitable[bool]]
"""Shows a person a request; returns whether it is approved."""


async def see_through(thread: Thread, decide: Decide, *, by: str) -> str:
    """Wait for a tree, and decide all requests of its runs; return its answer, or why it cannot continue.

    Raises:
        RunFailed: The run at the top failed.
    """
    while (result := await thread.result(until="attention")).status != "completed":
        if not result.pending:
            return "; ".join(f"{need.thread} is {need.status} ({need.cause})" for need in result.attention)
        for request in result.pending:
            await thread.decide(request, "approve" if await decide(request) else "deny", by=by)
    return result.text


async def ask_at_terminal(request: PendingRequest) -> bool:
    """Ask the person at the terminal."""
    place = " > ".join(request.path) or "the run itself"
    print(f"{place}\n  may it call {request.tool} with {request.arguments}? ({request.why}) [y/n]", flush=True)
    answer: str = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip() == "y"


async def main(name: str = "issue-12", task: str = "Publish issue 12") -> None:
    """See one tree through, then show it."""
    async with holdfast.running(catalog, script=script, by="editor") as client:
        thread = await client.start(task, agent="editor", thread=name)
        print(await see_through(thread, ask_at_terminal, by="editor"))
        for run in (await thread.tree()).walk():
            print(f"{run.thread}: {run.agent} {run.status}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))

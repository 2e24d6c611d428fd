"""Plan and execute: one agent plans, another carries out each step, and the first one plans again or answers.

    python -m holdfast.examples.programs.plan_and_execute trip-1 "Plan a trip to Lisbon"

The planner's result is one of two types, so the program knows what comes next without reading prose. Thread ids derive
from the goal's name: run again after a crash, the program finds each finished run, and continues with the next.
"""

import asyncio
import sys

from pydantic import BaseModel, Field

import holdfast
from holdfast import Agent, Catalog, Client, Policy, allow, tool
from holdfast.testing import Conversation, Reply, call, say

MOST_PLANS = 10


class Plan(BaseModel):
    """The steps that are still to be done, the next one first."""

    steps: list[str] = Field(min_length=1)


class Answer(BaseModel):
    """The goal is reached."""

    text: str


@tool(effect="read")
def look_up(what: str) -> str:
    """Look something up."""
    return f"{what}: found"


def script(conversation: Conversation) -> Reply:
    """Plan three steps, drop each that is done, and answer when none is left."""
    task = str(conversation.messages[1]["content"])
    if "final_result" not in conversation.tools:
        return say(conversation.results[-1]) if conversation.results else call("look_up", what=task)
    steps = [step for step in ("flights", "hotels", "weather") if f"- {step}:" not in task]
    result = {"steps": steps} if steps else {"text": f"All is settled. {task.count(': found')} steps were done."}
    return call("final_result", result=result)


ALLOWED = Policy(rules=(allow(),))
catalog = Catalog(
    agents=[
        Agent(
            name="planner",
            instructions="Plan what is left to do for the goal, or answer if nothing is.",
            tools=(),
            result=Plan | Answer,
            policy=ALLOWED,
            when_blocked="fail",
        ),
        Agent(name="worker", instructions="Do this one step.", tools=("look_up",), policy=ALLOWED, when_blocked="fail"),
    ],
    tools=[look_up],
)


async def reach(client: Client, name: str, goal: str) -> str:
    """Plan and execute until the goal is reached; return the answer.

    Raises:
        RunFailed: A planner or a worker failed; nobody is waited for.
        TimeoutError: The goal is not reached after so many plans.
    """
    done: list[str] = []
    for number in range(MOST_PLANS):
        task = "\n".join([f"Goal: {goal}", "Done so far:", *(done or ["- nothing"])])
        planner = await client.start(task, agent="planner", thread=f"{name}-plan-{number}")
        match (await planner.result()).parse(Plan | Answer):
            case Answer(text=text):
                return text
            case Plan(steps=[step, *_]):
                worker = await client.start(step, agent="worker", thread=f"{name}-step-{number}")
                done.append(f"- {step}: {(await worker.result()).text}")
    raise TimeoutError(f"{goal!r} is not reached after {MOST_PLANS} plans")


async def main(name: str = "trip-1", goal: str = "Plan a trip to Lisbon") -> None:
    """Reach one goal."""
    async with holdfast.running(catalog, script=script, by="planner") as client:
        print(await reach(client, name, goal))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))

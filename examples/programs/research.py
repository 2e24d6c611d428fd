"""Research as a script: one agent plans the searches, they run side by side, and another agent writes the report.

    python -m holdfast.examples.programs.research "How do bees find their way?"

Each task is done once. Kill the script whenever you like, and run it again with the same question: what was found is
not searched again, and what was under way resumes.
"""

import asyncio
import sys

from pydantic import BaseModel, Field

import holdfast
from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.testing import Conversation, Reply, call, say

NOTES = {
    "sun compass": "Bees navigate by the sun, and correct for its movement with an internal clock.",
    "polarised light": "Under a clouded sky, bees read the sun's position from the polarisation of light.",
    "waggle dance": "A forager's dance tells the others the direction and the distance of flowers.",
    "landmarks": "Near the hive, bees follow landmarks that they learned on flights around it.",
}
"""Where the example searches; yours asks a search engine."""


class Plan(BaseModel):
    """What to search for."""

    searches: list[str] = Field(min_length=1, max_length=8)


class Report(BaseModel):
    """What was found."""

    title: str
    paragraphs: list[str]


@tool(effect="read")
async def search(query: str) -> list[str]:
    """Search the notes.

    Args:
        query: A few words.
    """
    words = set(query.lower().split())
    return [note for topic, note in NOTES.items() if words & set(topic.split())]


catalog = Catalog(
    agents=[
        Agent(
            name="planner", instructions="Plan two to five searches that answer the question.", tools=(), result=Plan
        ),
        Agent(
            name="searcher",
            instructions="Search, and answer with what you found, in two sentences.",
            tools=("search",),
            policy=Policy(rules=(allow("search"),)),
        ),
        Agent(name="writer", instructions="Write a report from the findings alone.", tools=(), result=Report),
    ],
    tools=[search],
)


async def research(question: str) -> Report:
    """Research a question, inside a block of `holdfast.running`."""
    plan = await holdfast.run(catalog, question, agent="planner", result=Plan)
    searches = (holdfast.run(catalog, query, agent="searcher") for query in plan.searches)
    findings = [found.text for found in await asyncio.gather(*searches)]
    return await holdfast.run(catalog, "\n\n".join([question, *findings]), agent="writer", result=Report)


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    task = conversation.last_user_message
    if "search" in conversation.tools:
        return say(" ".join(conversation.results)) if conversation.replies else call("search", query=task)
    question, *findings = task.split("\n\n")
    if findings:
        return call("final_result", result={"title": question, "paragraphs": findings})
    return call("final_result", result={"searches": list(NOTES)})


async def main(question: str) -> None:
    """Print the report on a question."""
    async with holdfast.running(catalog, script=script):
        report = await research(question)
    print("\n\n".join([report.title, *report.paragraphs]))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "How do bees find their way?"))

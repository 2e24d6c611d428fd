"""Research in a Temporal workflow: one agent plans the searches, they run side by side, and another writes the report.

    TEMPORAL_ADDRESS=localhost:7233 python -m holdfast.examples.programs.research_workflow "How do bees find their way?"

The workflow is ordinary Temporal code, with timers, signals and activities of its own if you like. Each agent's run is
recorded in its history once. Kill the program whenever you like, and run it again: the workflow continues.
"""

import asyncio
import os
import sys
from collections.abc import Sequence

from pydantic import BaseModel, Field
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from holdfast import Agent, Catalog, HoldfastPlugin, Policy, allow, tool
from holdfast.testing import Conversation, Reply, call, say
from holdfast.workflow import run_agent

QUEUE = "research"
NOTES = {
    "sun compass": "Bees navigate by the sun, and correct for its movement with an internal clock.",
    "polarised light": "Under a clouded sky, bees read the sun's position from the polarisation of light.",
    "waggle dance": "A forager's dance tells the others the direction and the distance of flowers.",
    "landmarks": "Near the hive, bees follow landmarks that they learned on flights around it.",
    "odour plumes": "Close to flowers, bees follow the scent upwind.",
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
async def search(query: str) -> str:
    """Search the notes.

    Args:
        query: A few words.
    """
    words = set(query.lower().split())
    return " ".join(note for topic, note in NOTES.items() if words & set(topic.split()))


catalog = Catalog(
    agents=[
        Agent(name="planner", instructions="Plan five searches that answer the question.", tools=(), result=Plan),
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


@workflow.defn
class ResearchWorkflow:
    """A question in, a report out."""

    @workflow.run
    async def run(self, question: str) -> Report:
        """Plan, search side by side, and report."""
        plan = await run_agent("planner", question, result=Plan)
        findings = await asyncio.gather(*(run_agent("searcher", query) for query in plan.searches))
        return await run_agent("writer", "\n\n".join([question, *findings]), result=Report)


def script(conversation: Conversation) -> Reply:
    """Answer in place of an LLM, as long as none is configured."""
    task = conversation.last_user_message
    if "search" in conversation.tools:
        return say(" ".join(conversation.results)) if conversation.replies else call("search", query=task)
    question, *findings = task.split("\n\n")
    if findings:
        return call("final_result", result={"title": question, "paragraphs": findings})
    return call("final_result", result={"searches": list(NOTES)})


async def main(arguments: Sequence[str]) -> None:
    """Run a worker until the report on a question is there, and print it."""
    question = " ".join(arguments) or "How do bees find their way?"
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"),
        data_converter=pydantic_data_converter,  # the program's own: for `Report`
        plugins=[HoldfastPlugin(catalog, script=script)],
    )
    async with Worker(client, task_queue=QUEUE, workflows=[ResearchWorkflow]):
        report = await client.execute_workflow(
            ResearchWorkflow.run,
            question,
            id=f"research {question}"[:200],
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
    print("\n\n".join([report.title, *report.paragraphs]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

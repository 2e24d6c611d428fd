"""Workflows and activities of a program that runs agents, in a module that Temporal's sandbox can import cheaply."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel
from temporalio import activity, workflow

from holdfast import PersonInput
from holdfast.workflow import (
    AgentRunFailed,
    agent_handle,
    carried,
    is_proven,
    run_agent,
    start_agent,
)


class Plan(BaseModel):
    """The result of a planner."""

    queries: list[str]


class Research(PersonInput):
    """The input of a research workflow, with the person who asked."""

    topic: str
    rounds: int = 1


@activity.defn
async def price(order: str) -> int:
    """Return the price of an order."""
    return len(order) * 100


@workflow.defn
class OrderWorkflow:
    """A workflow without agents."""

    @workflow.run
    async def run(self, order: str) -> int:
        """Return the price of an order."""
        return await workflow.execute_activity(price, order, start_to_close_timeout=timedelta(seconds=30))


@workflow.defn
class ResearchWorkflow:
    """Plans, searches side by side, and reports."""

    @workflow.run
    async def run(self, topic: str) -> str:
        """Return the report."""
        plan = await run_agent("planner", f"Plan: {topic}", result=Plan)
        found = await asyncio.gather(*(run_agent("searcher", f"Search: {query}") for query in plan.queries))
        return await run_agent("writer", "Report: " + ", ".join(found))


@workflow.defn
class AskWorkflow:
    """Runs one agent for the person in its input, once in each of several Temporal runs."""

    @workflow.run
    async def run(self, asked: Research) -> str:
        """Return whether the person was proven in the last Temporal run, and the last answer."""
        answer = await run_agent("writer", f"Report: {asked.topic}", by=asked)
        if asked.rounds > 1:
            workflow.continue_as_new(carried(asked.model_copy(update={"rounds": asked.rounds - 1})))
        return f"{is_proven(asked)}: {answer}"


@workflow.defn
class NightlyWorkflow:
    """Runs agents with a context, and nobody beside them."""

    @workflow.run
    async def run(self, contexts: list[dict[str, str]]) -> list[str]:
        """Return the answer with each context, or the cause of the failure."""
        answers = []
        for context in contexts:
            try:
                answers.append(await run_agent("cashier", "Pay.", context=context, unattended=True))
            except AgentRunFailed as error:
                answers.append(error.type or "")
        return answers


@workflow.defn
class LaunderWorkflow:
    """Passes its input on unchanged, as a program does that does not know better."""

    @workflow.run
    async def run(self, asked: Research) -> bool:
        """Return whether the person is proven in the last of two Temporal runs."""
        if asked.rounds > 1:
            workflow.continue_as_new(asked.model_copy(update={"rounds": asked.rounds - 1}))
        return is_proven(asked)


@workflow.defn
class ChatWorkflow:
    """Talks with an agent."""

    @workflow.run
    async def run(self, words: list[str]) -> list[str]:
        """Return the answers, the last one from a handle that knows the thread's id alone."""
        agent = await start_agent("writer", words[0], idle_limit=3600)
        answers = [await agent.say(each) for each in words[1:]]
        state = await agent_handle(agent.id).state()
        await agent.cancel("enough")
        try:
            await agent_handle(agent.id).result()
        except AgentRunFailed as error:
            return [*answers, state.status, error.type or ""]
        return answers


@workflow.defn
class RawActivity:
    """Passes what it is given to an activity."""

    @workflow.run
    async def run(self, name: str, order: dict[str, str]) -> None:
        """Call the activity."""
        await workflow.execute_activity(name, order, start_to_close_timeout=timedelta(seconds=30))


@workflow.defn
class ImpatientWorkflow:
    """Runs an agent for a while."""

    @workflow.run
    async def run(self) -> str:
        """Return how the run ended."""
        agent = await start_agent("searcher", "Hang.")
        try:
            return await asyncio.wait_for(agent.result(), timeout=1)
        except TimeoutError:
            return (await agent.state()).status

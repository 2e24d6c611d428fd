"""LangGraph: model and `ToolNode` in a loop, with the PostgreSQL checkpointer, as its documentation shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bench.peers.contender import Contender, Setup, create_database, observation, table_bytes
from bench.peers.contenders import INSTRUCTIONS, LANGGRAPH, task


async def observe(n: int) -> str:
    """Look at something."""
    return observation()


class Runs:
    """Runs of the graph, one thread each."""

    def __init__(self, saver: AsyncPostgresSaver, database_url: str, durability: Literal["async", "sync"]) -> None:
        self._database_url = database_url
        self._durability = durability
        llm = ChatOpenAI(model="bench").bind_tools([observe])

        async def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await llm.ainvoke([SystemMessage(INSTRUCTIONS), *state["messages"]])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", ask)
        graph.add_node("tools", ToolNode([observe]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self._graph = graph.compile(checkpointer=saver)

    async def run(self, name: str, steps: int) -> None:
        """See `Contender`."""
        await self._invoke(name, {"messages": [{"role": "user", "content": task(steps)}]})

    async def resume(self, name: str) -> None:
        """See `Contender`. Without input, the graph resumes from the last checkpoint."""
        await self._invoke(name, None)

    async def stored(self, name: str) -> int:
        """Return the bytes of its tables."""
        return await table_bytes(self._database_url)

    async def diagnose(self, name: str) -> str:
        """Return nothing, because there is no server."""
        return ""

    async def _invoke(self, name: str, given: dict[str, Any] | None) -> None:
        config = {"configurable": {"thread_id": name}, "recursion_limit": 1_000_000}
        await self._graph.ainvoke(given, config, durability=self._durability)


@asynccontextmanager
async def open_contender(
    setup: Setup, *, database: str = LANGGRAPH, durability: Literal["async", "sync"] = "async"
) -> AsyncIterator[Contender]:
    """Open the graph; "async" is LangGraph's default durability."""
    url = await create_database(setup, database)
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield Runs(saver, url, durability)

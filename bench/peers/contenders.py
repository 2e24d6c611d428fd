"""Who takes part, and how each is set up. Pure: modules that need a contender's packages are named, not imported."""

from dataclasses import dataclass

HOLDFAST = "holdfast"
OPENAI_AGENTS = "openai_agents"
PYDANTIC_AI = "pydantic_ai"
AGENT_HARNESS = "agent_harness"
LANGGRAPH = "langgraph"
LANGGRAPH_SYNC = "langgraph_sync"
DBOS = "dbos"

INSTRUCTIONS = "Call observe until you are done."
"""What every agent is told."""


def task(steps: int) -> str:
    """What every agent is asked; the model server reads the length of the run off it."""
    return f"Look at things: steps={steps}"


@dataclass(frozen=True)
class About:
    """What the table says of a contender."""

    title: str
    packages: tuple[str, ...]
    """Distributions whose versions are reported."""
    temporal: bool
    """Whether it runs on a Temporal server: the server's settings matter, and its actions are counted."""
    postgres: bool
    """Whether it writes to PostgreSQL: its transactions are counted."""
    settings: str
    """What was set, and where its documentation says so."""
    longest: int | None = None
    """The longest run that is tried; None for any."""

    def module(self, name: str) -> str:
        """The module that implements the contender called `name`."""
        return f"bench.peers.{name}_"


CONTENDERS = {
    HOLDFAST: About(
        title="Holdfast",
        packages=("temporalio", "openai"),
        temporal=True,
        postgres=True,
        settings="As `worker.py` builds it: heartbeats every 2 s with a time-out of 5 s, sticky queue 3 s, workflows "
        "outside the sandbox; a worker that starts takes over from one of this machine that was killed. Bytes are "
        "history plus growth of its tables.",
    ),
    OPENAI_AGENTS: About(
        title="OpenAI Agents SDK on Temporal",
        packages=("temporalio-openai-agents", "openai-agents"),
        temporal=True,
        postgres=False,
        settings="`OpenAIAgentsPlugin`, the tool by `activity_as_tool`, chat completions. Time-outs of the README's "
        "examples: model call 30 s (the library's default is 60 s), tool 10 s; no heartbeats, sticky queue 10 s and "
        "sandbox, which are the defaults. Tracing off; `max_turns` raised. A provider "
        "that keeps the conversation (`previous_response_id` of the Responses API) would spare it the growth of its "
        "history; chat completions cannot.",
    ),
    PYDANTIC_AI: About(
        title="pydantic-ai on Temporal",
        packages=("pydantic-ai-slim",),
        temporal=True,
        postgres=False,
        settings="`TemporalDurability` (`TemporalAgent` is deprecated in its favour) with its `continue_as_new` hook, "
        "which is off by default; without it the history limit ended it at step 170. Defaults: calls 60 s, heartbeat "
        "of model calls 30 s, sticky queue 10 s, sandbox. `request_limit` lifted.",
    ),
    AGENT_HARNESS: About(
        title="Temporal Agent Harness",
        packages=("temporal-agent-harness", "openai-agents"),
        temporal=True,
        postgres=False,
        settings="`OpenAIAgentsPlugin` and `AgentHarnessPlugin`, `Runner.run`, chat completions; the tool by "
        "`activity_tool_defn`, approved by `allow_inherently_safe`. Time-outs of its README and of its OpenAI example: "
        "model call 120 s with a heartbeat time-out of 30 s, tool 30 s; sticky queue 10 s and sandbox, which are the "
        "defaults. One message, then `close`: nobody reads the stream of events, and replies are not streamed, either "
        "of which adds to its history. Payloads from 1.5 MB on go to files, which are counted.",
    ),
    LANGGRAPH: About(
        title="LangGraph",
        packages=("langgraph", "langgraph-checkpoint-postgres", "langchain-openai"),
        temporal=False,
        postgres=True,
        settings='`StateGraph` of model and `ToolNode` with `AsyncPostgresSaver`; durability "async", the default: '
        "checkpoints are written while the next nodes run, so a crash may lose some, and the more the faster the "
        "model answers. Nobody resumes a run by itself: the new worker is told which thread to invoke. "
        "`recursion_limit` raised.",
    ),
    LANGGRAPH_SYNC: About(
        title="LangGraph, durability sync",
        packages=("langgraph", "langgraph-checkpoint-postgres", "langchain-openai"),
        temporal=False,
        postgres=True,
        settings="The same with every checkpoint written before the next node starts. Not tried beyond 200 steps.",
        longest=200,
    ),
    DBOS: About(
        title="DBOS",
        packages=("dbos",),
        temporal=False,
        postgres=True,
        settings="A `@DBOS.workflow` whose model and tool calls are `@DBOS.step`s, with the openai client. All "
        "defaults; the new worker has the same executor id and recovers at launch.",
    ),
}

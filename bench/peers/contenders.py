"""The contenders and their settings. Pure: modules that need a contender's packages are named, not imported."""

from dataclasses import dataclass

HOLDFAST = "holdfast"
OPENAI_AGENTS = "openai_agents"
PYDANTIC_AI = "pydantic_ai"
AGENT_HARNESS = "agent_harness"
LANGGRAPH = "langgraph"
LANGGRAPH_SYNC = "langgraph_sync"
DBOS = "dbos"
HOLDFAST_STREAM = "holdfast_stream"
OPENAI_AGENTS_STREAM = "openai_agents_stream"
PYDANTIC_AI_STREAM = "pydantic_ai_stream"

INSTRUCTIONS = "Call observe until you are done."
"""The instructions of every agent."""


def module_of(name: str) -> str:
    """Return the module that implements the contender called `name`."""
    return f"bench.peers.{name}_"


def task(steps: int) -> str:
    """Return the task of every agent; the model server reads the length of the run from it."""
    return f"Look at things: steps={steps}"


@dataclass(frozen=True)
class About:
    """The description of a contender for the report."""

    title: str
    packages: tuple[str, ...]
    """Distributions whose versions are reported."""
    temporal: bool
    """True if it runs on a Temporal server; the server's actions are then counted."""
    postgres: bool
    """True if it writes to PostgreSQL; the transactions are then counted."""
    settings: str
    """Its settings, and their source in its documentation."""
    longest: int | None = None
    """The longest run to try; None for no limit."""


CONTENDERS = {
    HOLDFAST: About(
        title="Holdfast",
        packages=("temporalio", "openai"),
        temporal=True,
        postgres=True,
        settings="As `worker.py` builds it: heartbeats every 2 s with a time-out of 5 s, sticky queue 3 s, workflows "
        "outside the sandbox; workers take over from killed workers of the same machine. Bytes are history plus growth "
        "of its tables.",
    ),
    OPENAI_AGENTS: About(
        title="OpenAI Agents SDK on Temporal",
        packages=("temporalio-openai-agents", "openai-agents"),
        temporal=True,
        postgres=False,
        settings="`OpenAIAgentsPlugin`, the tool by `activity_as_tool`, chat completions. Time-outs of the README's "
        "examples: model call 30 s (the library's default is 60 s), tool 10 s; no heartbeats, sticky queue 10 s and "
        "sandbox, which are the defaults. Tracing off; `max_turns` raised. With a provider that stores the "
        "conversation (`previous_response_id` of the Responses API), its history would grow less; chat completions do "
        "not offer that.",
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
        "defaults. One message, then `close`: the stream of events is not read and replies are not streamed, both of "
        "which would add to its history. Payloads of 1.5 MB and more go to files, which are counted.",
    ),
    LANGGRAPH: About(
        title="LangGraph",
        packages=("langgraph", "langgraph-checkpoint-postgres", "langchain-openai"),
        temporal=False,
        postgres=True,
        settings='`StateGraph` of model and `ToolNode` with `AsyncPostgresSaver`; durability "async", the default: '
        "checkpoints are written while the next nodes run, so a crash may lose some, and more of them the faster the "
        "model answers. Runs are not resumed automatically: the benchmark names the thread for the new worker to "
        "invoke. `recursion_limit` raised.",
    ),
    LANGGRAPH_SYNC: About(
        title="LangGraph, durability sync",
        packages=("langgraph", "langgraph-checkpoint-postgres", "langchain-openai"),
        temporal=False,
        postgres=True,
        settings="The same, with every checkpoint written before the next node starts. Not run beyond 200 steps.",
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


STREAMED = {HOLDFAST: HOLDFAST_STREAM, OPENAI_AGENTS: OPENAI_AGENTS_STREAM, PYDANTIC_AI: PYDANTIC_AI_STREAM}
"""The contenders that stream a reply to readers outside of the worker, each with its streaming variant."""

STREAM_SETTINGS = {
    HOLDFAST: "Streams in PostgreSQL, as `worker.py` has by default. The reader follows the rule of the ids: a chunk "
    "`superseded` and the event of the reply replace the chunks before them.",
    OPENAI_AGENTS: "`Runner.run_streamed` with `streaming_topic`, a `WorkflowStream` in the workflow, read with "
    "`WorkflowStreamClient`; batches of 100 ms, the default. A heartbeat time-out of 10 s, which its documentation "
    "recommends for streams. Its README says that a retry publishes a second sequence of events; the model activity "
    "is the library's own, so the application cannot publish the `RETRY` event which that page proposes.",
    PYDANTIC_AI: "`TemporalDurability(event_stream_topic=…)` with `AgentEventStream` in the workflow, read with "
    "`stream_agent_events`; batches of 100 ms and a heartbeat time-out of 30 s, the defaults. Its docstrings say that "
    "a retry of the activity publishes its events again, and name no event that tells a reader so.",
}
"""The settings of the streaming variants, and what their documentation says of retries."""

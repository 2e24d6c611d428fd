"""The names and arguments of the tools with which an agent runs other agents."""

from typing import Any

from pydantic import ValidationError

from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.spec import ToolSpec

RUN_AGENT = "run_agent"
AGENT_RESULT = "agent_result"
SUBAGENT_TOOLS = (RUN_AGENT, AGENT_RESULT)
"""The tools of an agent with `Agent(subagents=(…))`; the run itself carries out their calls."""


class RunAgent(Frozen):
    """The arguments of `run_agent`."""

    agent: str
    task: str
    background: bool = False


class AgentResult(Frozen):
    """The arguments of `agent_result`."""

    thread: str


def read_run_agent(call: ToolCall) -> RunAgent | None:
    """Parse the arguments of a call of `run_agent`; None if they are malformed."""
    try:
        return RunAgent.model_validate_json(call.arguments)
    except ValidationError:
        return None


def read_agent_result(call: ToolCall) -> AgentResult | None:
    """Parse the arguments of a call of `agent_result`; None if they are malformed."""
    try:
        return AgentResult.model_validate_json(call.arguments)
    except ValidationError:
        return None


def child_thread(thread: str, number: int) -> str:
    """Return the id of the thread that call `number` starts."""
    return f"{thread}.{number}"


def parent_thread(thread: str) -> str:
    """Return the id of the parent thread, if the id has the form of a sub-agent's; empty otherwise."""
    parent, dot, number = thread.rpartition(".")
    return parent if dot and number.isascii() and number.isdigit() else ""


def offered(tool: ToolSpec, agents: dict[str, str]) -> ToolSpec:
    """Return the tool as offered to one agent: with the names of the agents that it may run.

    Args:
        tool: Any tool; only `run_agent` changes.
        agents: Name → description.
    """
    if tool.name != RUN_AGENT or tool.kind != "runtime":
        return tool
    parameters: dict[str, Any] = dict(tool.parameters)
    properties = dict(parameters.get("properties", {}))
    properties["agent"] = {**properties.get("agent", {}), "enum": list(agents)}
    lines = [f"- {name}: {words}" if words else f"- {name}" for name, words in agents.items()]
    description = f"{tool.description}\n\nAgents:\n" + "\n".join(lines)
    return tool.model_copy(update={"description": description, "parameters": {**parameters, "properties": properties}})

"""The activities a worker runs: idempotent I/O. They import `holdfast`; `worker.py` hands them what they need."""

from collections.abc import Callable
from typing import Any

from activities.agents import Agents
from activities.llm import LLM
from activities.tools import Tools


def build_activities(*, agents: Agents, llm: LLM, tools: Tools) -> list[Callable[..., Any]]:
    """The implementations of the stubs in `holdfast.contracts`."""
    return [agents.load_agent, llm.call_llm, tools.call_tool]

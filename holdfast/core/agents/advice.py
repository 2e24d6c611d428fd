"""Advice on a catalog: definitions that are allowed but probably mistakes.

A rule that matches no tool of the catalog is not an error, because the same policy may govern several catalogs. But a
misspelt rule is easily overlooked, so workers, `doctor` and `policy check` report it.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.run_functions import ToolSet
from holdfast.core.authority.node_policy import EXECUTE_RUN
from holdfast.core.authority.policy import Policy, Rule
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.effects import Effect

BUILTIN_TOOLS: Mapping[str, Effect] = {
    **dict.fromkeys(("read_skill", "read_artifact", "recall", "run_status"), Effect.READ),
    **dict.fromkeys(("sleep_until", "wait_for_event", "wait_for_run", "check_back"), Effect.READ),
    **dict.fromkeys(("run_agent", "agent_result", "final_result"), Effect.READ),
    **dict.fromkeys(("remember", "remember_always", "forget"), Effect.IDEMPOTENT),
    **dict.fromkeys(("update_progress", "note_learning", "refine_task"), Effect.IDEMPOTENT),
}
"""The tools that Holdfast adds, and their effects: a rule may name one whether or not an agent has it today."""


def advice_on(catalog: Catalog) -> list[str]:
    """Return a sentence for each probable mistake: in rules, tools without agents, and parameters."""
    return [*rule_advice(catalog), *idle_tool_advice(catalog), *description_advice(catalog)]


def rule_advice(catalog: Catalog) -> list[str]:
    """Return a sentence for each rule of the agents' policies that matches nothing in the catalog."""
    holders: dict[str, list[str]] = {}
    policies: dict[str, Policy] = {}
    for agent in catalog.agents.values():
        holders.setdefault(agent.policy.hash, []).append(agent.name)
        policies[agent.policy.hash] = agent.policy
    found = []
    for digest, policy in policies.items():
        whose = "" if len(policies) == 1 else f"the policy of {', '.join(holders[digest])}, "
        found += [f"{whose}rules[{number}] ({rule.label}) {why}" for number, rule, why in unmatched(policy, catalog)]
    return found


def unmatched(policy: Policy, catalog: Catalog) -> Iterator[tuple[int, Rule, str]]:
    """Yield each rule that matches nothing in the catalog, with its index and the reason."""
    for number, rule in enumerate(policy.rules):
        if why := _mismatch(rule, catalog):
            yield number, rule, why


def idle_tool_advice(catalog: Catalog) -> list[str]:
    """Return a sentence if an agent has no tools although the catalog has some that are no agent's.

    Before 0.3.0, such an agent had all tools of the catalog.
    """
    agents = catalog.agents.values()
    without = [agent.name for agent in agents if not agent.tools]
    if any(isinstance(agent.tools, ToolSet) for agent in agents):
        return []  # its function may select any tool
    idle = catalog.tools.keys() - {name for agent in agents for name in agent.tool_names}
    if not (without and idle):
        return []
    tools = ", ".join(name for name in catalog.tools if name in idle)
    return [
        f"no agent has {tools}, and {', '.join(without)} has no tools: give an agent its tools with Agent(tools=[…])"
    ]


def description_advice(catalog: Catalog) -> list[str]:
    """Return a sentence for each tool with a parameter without description."""
    return [f"tool {name!r} {why}" for name, tool in catalog.tools.items() if (why := _undescribed(tool))]


def _mismatch(rule: Rule, catalog: Catalog) -> str:
    if rule.tool == EXECUTE_RUN:
        return ""  # about runs of any catalog that this node may execute
    effects = {**BUILTIN_TOOLS, **{name: tool.spec.effect for name, tool in catalog.tools.items()}}
    named = [name for name in effects if fnmatchcase(name, rule.tool)]
    if not named:
        return f"matches no tool of the catalog{_nearest(rule.tool, list(effects))}"
    if rule.tool != "*" and rule.effect is not None and all(effects[name] is not rule.effect for name in named):
        have = ", ".join(f"{name} is {effects[name]}" for name in named[:3])
        return f"matches no tool of the catalog with the effect {rule.effect}: {have}"
    if not any(fnmatchcase(name, rule.agent) for name in catalog.agents):
        return f"matches no agent of the catalog{_nearest(rule.agent, list(catalog.agents))}"
    if rule.tool != "*" and rule.depth and not any(agent.subagents for agent in catalog.agents.values()):
        return "matches no run: it is for sub-agents, and no agent of the catalog has any"
    return ""


def _nearest(pattern: str, names: list[str]) -> str:
    lowered = {name.lower(): name for name in names}
    close = get_close_matches(pattern.lower(), list(lowered), n=1)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


def _undescribed(tool: Tool) -> str:
    schema = tool.spec.parameters
    bare = [name for name, parameter in schema.get("properties", {}).items() if not _described(parameter, schema)]
    parameters = f"{'parameter' if len(bare) == 1 else 'parameters'} {', '.join(bare)}"
    advice = "the LLM writes the arguments by it: add an `Args:` section to the docstring"
    return f"has no description of its {parameters}; {advice}" if bare else ""


def _described(parameter: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a parameter's schema, or the type that it refers to, has a description."""
    if not isinstance(parameter, dict):
        return False
    name = str(parameter.get("$ref", "")).rpartition("/")[2]
    return bool(parameter.get("description") or schema.get("$defs", {}).get(name, {}).get("description"))

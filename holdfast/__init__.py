"""Holdfast: a durable agent runtime on Temporal. A user's catalog imports these names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent, Limits, Memory
    from holdfast.agents.catalog import Catalog
    from holdfast.agents.skills import Skill
    from holdfast.authority.policy import Approver, Escalation, Gateway, Policy, Rule, Terms, allow, ask, deny
    from holdfast.base.paths import WorkspacePath
    from holdfast.tools.decorator import Absent, Found, Tool, ToolContext, Unknown, tool
    from holdfast.tools.effects import Effect

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Agent",
    "Approver",
    "Catalog",
    "Effect",
    "Escalation",
    "Found",
    "Gateway",
    "Limits",
    "Memory",
    "Policy",
    "Rule",
    "Skill",
    "Terms",
    "Tool",
    "ToolContext",
    "Unknown",
    "WorkspacePath",
    "allow",
    "ask",
    "deny",
    "tool",
]

_HOME = {
    **dict.fromkeys(["Agent", "Limits", "Memory"], "holdfast.agents.agent"),
    **dict.fromkeys(["Catalog"], "holdfast.agents.catalog"),
    **dict.fromkeys(["Effect"], "holdfast.tools.effects"),
    **dict.fromkeys(
        ["Approver", "Escalation", "Gateway", "Policy", "Rule", "Terms", "allow", "ask", "deny"],
        "holdfast.authority.policy",
    ),
    **dict.fromkeys(["WorkspacePath"], "holdfast.base.paths"),
    **dict.fromkeys(["Skill"], "holdfast.agents.skills"),
    **dict.fromkeys(["Absent", "Found", "Tool", "ToolContext", "Unknown", "tool"], "holdfast.tools.decorator"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: workflows and the CLI need few of them and start faster."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")

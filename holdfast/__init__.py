"""Holdfast: a durable agent runtime on Temporal. These are the names that a user's catalog imports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.agent import Agent, Limits, Memory
    from holdfast.catalog import Catalog
    from holdfast.effects import Effect
    from holdfast.paths import WorkspacePath
    from holdfast.policy import Approver, Escalation, Gateway, Policy, Rule, Terms, allow, ask, deny
    from holdfast.skills import Skill
    from holdfast.tools import Absent, Found, Tool, ToolContext, Unknown, tool

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
    **dict.fromkeys(["Agent", "Limits", "Memory"], "holdfast.agent"),
    **dict.fromkeys(["Catalog"], "holdfast.catalog"),
    **dict.fromkeys(["Effect"], "holdfast.effects"),
    **dict.fromkeys(
        ["Approver", "Escalation", "Gateway", "Policy", "Rule", "Terms", "allow", "ask", "deny"], "holdfast.policy"
    ),
    **dict.fromkeys(["WorkspacePath"], "holdfast.paths"),
    **dict.fromkeys(["Skill"], "holdfast.skills"),
    **dict.fromkeys(["Absent", "Found", "Tool", "ToolContext", "Unknown", "tool"], "holdfast.tools"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: workflows and the CLI need few of them, and start fast."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")

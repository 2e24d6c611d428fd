"""The catalog of the kill test of middleware: a tool whose effects are lines in a file, and middleware that shouts."""

import os
from pathlib import Path

from holdfast import (
    Absent,
    Agent,
    Catalog,
    Found,
    Middleware,
    Policy,
    ProceedTool,
    ToolCall,
    ToolContext,
    ToolResult,
    allow,
    tool,
)

PAYMENTS = Path(os.environ.get("PAYMENTS", "/nowhere"))


class Shout(Middleware):
    """Replaces each result."""

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Shout."""
        return ToolResult(str((await proceed()).content).upper())


def find_payment(context: ToolContext) -> Found | Absent:
    """Look for the line."""
    return Found("paid before") if context.key in PAYMENTS.read_text().splitlines() else Absent()


@tool(effect="verifiable", check=find_payment, settles_within=1)
def pay(cents: int, context: ToolContext) -> str:
    """Pay."""
    with PAYMENTS.open("a") as payments:
        payments.write(f"{context.key}\n")
    return f"paid {cents}"


catalog = Catalog(
    agents=[Agent(name="clerk", instructions="", policy=Policy(rules=(allow(),)), tools=[pay])], middleware=[Shout()]
)

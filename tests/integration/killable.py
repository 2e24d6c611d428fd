"""The catalog of the kill tests: tools whose effects are lines in a file, and which can be held during an effect."""

import asyncio
import os

from holdfast import Absent, Agent, Catalog, Found, Policy, ToolContext, allow, ask, tool


def _lines(context: ToolContext) -> list[str]:
    file = context.workspace / "effects"
    return file.read_text().splitlines() if file.exists() else []


async def _act(context: ToolContext) -> None:
    """Append the line, then wait while the file `hold` exists."""
    with (context.workspace / "effects").open("a") as effects:
        effects.write(f"{context.key}\n")
    while (context.workspace / "hold").exists():  # noqa: ASYNC110  # held by a file, so that a kill cannot lose it
        await asyncio.sleep(0.02)


def _find(context: ToolContext) -> Found | Absent:
    return Found("found it done") if context.key in _lines(context) else Absent()


@tool(effect="verifiable", check=_find)
async def ship(context: ToolContext) -> str:
    """Ship; the effect can be verified."""
    await _act(context)
    return "shipped"


@tool(effect="unsafe")
async def mail(context: ToolContext) -> str:
    """Mail; the effect cannot be verified."""
    await _act(context)
    return "mailed"


@tool(effect="read")
async def stare(context: ToolContext) -> str:
    """Wait while the file `hold` exists."""
    (context.workspace / "staring").touch()
    while (context.workspace / "hold").exists():  # noqa: ASYNC110  # see above
        await asyncio.sleep(0.02)
    return "seen"


def _crash(context: ToolContext) -> str:
    with (context.workspace / "crashes").open("a") as crashes:
        crashes.write("x")
    os._exit(139)


@tool(effect="read")
def parse(context: ToolContext) -> str:
    """Crash the process, as native code may."""
    return _crash(context)


@tool(effect="idempotent")
def render(context: ToolContext) -> str:
    """Crash the process, as native code may."""
    return _crash(context)


@tool(effect="read")
def look(context: ToolContext) -> str:
    """Count the effects."""
    return str(len(_lines(context)))


catalog = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            policy=Policy(rules=(ask("ship", reason="it leaves the house"), allow())),
        )
    ],
    tools=[ship, mail, look, stare, parse, render],
)

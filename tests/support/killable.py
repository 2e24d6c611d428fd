"""The catalog of the kill tests: tools whose effects are lines in a file, and which can be held during an effect."""

import asyncio
import os
import time
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from typing import Any

from holdfast import Absent, Agent, Catalog, Found, Memory, Policy, Tool, ToolContext, allow, ask, tool
from holdfast.worker import construction
from holdfast.workspace.memory.progress_tool import update_progress
from holdfast.workspace.memory.tools import complete_task, note_learning

if "STICKY_SECONDS" in os.environ:  # so long that a takeover comes first, on any machine
    construction.STICKY_TIMEOUT = timedelta(seconds=int(os.environ["STICKY_SECONDS"]))


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


def _holding(builtin: Tool) -> Tool:
    """Run the tool; after its effect, wait while the file `hold` has its name."""

    @wraps(builtin.function)
    def run(*arguments: Any, **named: Any) -> Any:
        result = builtin.function(*arguments, **named)
        workspace = (named.get("context") or named["call"]).workspace
        hold = workspace.parent / "hold"
        while hold.exists() and hold.read_text() == builtin.spec.name:
            (workspace.parent / f"held {builtin.spec.name}").touch()
            time.sleep(0.02)
        return result

    return replace(builtin, function=run)


catalog = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            tools=("ship", "mail", "look", "stare", "parse", "render"),
            policy=Policy(rules=(ask("ship", reason="it leaves the house"), allow())),
        ),
        Agent(
            name="archivist",
            instructions="Work.",
            tools=("complete_task", "note_learning", "update_progress"),
            memory=Memory(progress=True, learn=True),
            policy=Policy(rules=(allow(),)),
        ),
    ],
    tools=[ship, mail, look, stare, parse, render, *map(_holding, (complete_task, note_learning, update_progress))],
)

"""Mistakes that `mypy --strict` must find in a user's project: each line's comment is the expected error.

mypy reports an unneeded comment, so a mistake that it missed would be an error, too.
"""

import holdfast
from holdfast import (
    Agent,
    Catalog,
    Limits,
    Policy,
    Skill,
    SyncThread,
    Terms,
    Thread,
    Tool,
    ToolContext,
    allow,
    ask,
    tool,
)


@tool(effect="reed")  # type: ignore[call-overload, untyped-decorator]
def misspelt(path: str) -> str:
    """Name an effect that is none."""
    return path


@tool(effect="read", timeout="5s")  # type: ignore[call-overload, untyped-decorator]
def slow(path: str) -> str:
    """Write seconds as text."""
    return path


@tool(effect="read")
def count(path: str, context: ToolContext) -> int:
    """Count something."""
    context.workspace.joinpath(1)  # type: ignore[arg-type]
    context.thread = path  # type: ignore[misc]
    context.secrets_of(path)  # type: ignore[attr-defined]
    return len(path)


def plain(path: str) -> str:
    """Lack the decorator."""
    return path


text: str = count("x")  # type: ignore[assignment]
other: Tool[str] = count  # type: ignore[assignment]
Agent(name=1, instructions="x")  # type: ignore[arg-type]
Agent(name="a")  # type: ignore[call-arg]
Agent(name="a", instructions="x", tool=("count",))  # type: ignore[call-arg]
Agent(name="a", instructions="x", limits=Limits(max_step=1))  # type: ignore[call-arg]
Policy(rules=("allow",))  # type: ignore[arg-type]
Policy(rules=(allow(),), signatures="maybe")  # type: ignore[arg-type]
allow(effect="read")  # type: ignore[arg-type]
ask("pay", term=Terms())  # type: ignore[call-arg]
ask("pay", terms=Terms(quorum="two"))  # type: ignore[arg-type]
Catalog(agents=[], tools=[plain])  # type: ignore[list-item]
Catalog(agents=[], skills=["test-first"])  # type: ignore[list-item]
Catalog(agents=[], threads=Skill)  # type: ignore[arg-type]
Catalog(agents=[], resources=["pool"])  # type: ignore[list-item]
Catalog(agents=[], middleware=[plain])  # type: ignore[list-item]
Catalog([])  # type: ignore[call-arg]
holdfast.no_such_name()  # type: ignore[attr-defined]
holdfast.running("agents:catalog")  # type: ignore[arg-type]
holdfast.run_sync(Catalog(agents=[]), "x", agents="a")  # type: ignore[call-overload]


async def program(thread: Thread, sync: SyncThread) -> None:
    """Misuse the client."""
    await thread.result(until="ever")  # type: ignore[arg-type]
    await thread.decide("1", "aprove")  # type: ignore[arg-type]
    await thread.say("x", when_busy=True)  # type: ignore[arg-type]
    sync.result(until="ever")  # type: ignore[arg-type]
    sync.decide("1")  # type: ignore[call-arg]
    sync.events(follow="yes")  # type: ignore[arg-type]
    Limits(max_steps=sync.result())  # type: ignore[arg-type]

"""Record histories of today's code under `tests/replay/histories/<version>/` (`make histories`).

A recorded history of a released version is never changed or removed: it stands for runs that are open somewhere.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
from temporalio.client import Client, WorkflowHandle

import holdfast
from activities.stores.postgres import migrate, open_pool
from holdfast import Agent, Catalog, Limits, Policy, allow, deny, tool
from holdfast.contracts import WORKFLOW, RunInput
from holdfast.payloads import data_converter
from holdfast.runtime.devstack import DevStack
from holdfast.runtime.ports import Ports, any_free
from holdfast.testing import Script, ScriptedLLM, call, call_verbatim, cut_off, fail, say, steps, together
from tests.rig import status_of
from worker import build_worker

ROOT = Path(__file__).parents[2]
HISTORIES = Path(__file__).parent / "histories"

Handle = WorkflowHandle[Any, Any]


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="unsafe")
def wipe() -> str:
    """Wipe everything."""
    raise AssertionError("a denied tool ran")


@tool(effect="unsafe", timeout=0.2)
async def stall() -> str:
    """Never come back."""
    await asyncio.sleep(60)
    return "never"


CATALOG = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            policy=Policy(rules=(deny("wipe"), allow("look"), allow("stall"))),
            limits=Limits(max_steps=4),
        )
    ],
    tools=[look, pay, wipe, stall],
)


async def plain(run: Handle, llm: ScriptedLLM) -> None:
    """Nothing to do but wait for the end."""
    await run.result()


async def approvals(run: Handle, llm: ScriptedLLM) -> None:
    """Two open requests, decided out of order, by signal and by update, with a duplicate and a denial."""
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "9", "by": "alice"})
    await run.signal("nonsense", {"request": "1"})
    await run.execute_update("decide", {"decision": "deny", "request": "2", "by": "bob", "reason": "no"})
    await run.signal("approve", {"request": "1", "by": "alice"})
    await run.result()


async def retried(run: Handle, llm: ScriptedLLM) -> None:
    """Blocked by the provider, mended, retried."""
    await status_of(run, "blocked")
    llm.script = steps([call("look", at="a"), say("done")])
    await run.signal("retry", {"by": "carol"})
    await run.result()


async def unknown_outcome(run: Handle, llm: ScriptedLLM) -> None:
    """A call that nobody can tell about, run again on a person's word, then given up."""
    await status_of(run, "waiting_approval")
    await run.execute_update("decide", {"decision": "absent", "request": "1", "by": "alice"})
    await status_of(run, "waiting_approval")
    await run.execute_update("decide", {"decision": "abandon", "request": "2", "by": "alice"})
    await run.result()


async def step_limit(run: Handle, llm: ScriptedLLM) -> None:
    """At the limit of steps, and on."""
    await status_of(run, "blocked")
    await run.signal("retry")
    await run.result()


async def cancelled(run: Handle, llm: ScriptedLLM) -> None:
    """Cancelled while a request is open."""
    await status_of(run, "waiting_approval")
    await run.cancel()
    await status_of(run, "cancelled")


Scenario = tuple[Script, Callable[[Handle, ScriptedLLM], Awaitable[None]]]

SCENARIOS: dict[str, Scenario] = {
    "plain": (steps([together(call("look", at="a"), call("look", at="b")), call("wipe"), say("done")]), plain),
    "rejected_replies": (
        steps([together(call_verbatim("look", "{"), call("fly")), cut_off("I will"), say("done")]),
        plain,
    ),
    "approvals": (steps([together(call("pay", amount=1), call("pay", amount=2)), say("done")]), approvals),
    "retried": (lambda _: fail(401, "wrong key"), retried),
    "unknown_outcome": (steps([call("stall"), say("done")]), unknown_outcome),
    "step_limit": (steps([call("look", at=str(number)) for number in range(5)] + [say("done")]), step_limit),
    "cancelled": (steps([call("pay", amount=1)]), cancelled),
}


async def record(folder: Path) -> None:
    """Play every scenario on a real server, and write its history."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        stack = DevStack(Path(temporary) / "home", usual=Ports(any_free(), any_free(), any_free()))
        servers = await asyncio.to_thread(stack.start)
        try:
            # A fixed identity: the default one tells the name of the machine.
            client = await Client.connect(servers.temporal_address, data_converter=data_converter, identity="holdfast")
            await migrate(servers.database_url)
            workspace = Path(temporary) / "workspace"
            workspace.mkdir()
            async with open_pool(servers.database_url, size=4) as pool:
                for name, (script, play) in SCENARIOS.items():
                    with ScriptedLLM(script) as llm:
                        endpoint = openai.AsyncOpenAI(api_key="scripted", base_url=llm.base_url, max_retries=0)
                        worker = build_worker(
                            client,
                            task_queue=name,
                            catalog=CATALOG,
                            llm=endpoint,
                            default_llm="scripted",
                            pool=pool,
                            database_url=servers.database_url,
                            workspaces=workspace,
                            identity="holdfast",
                        )
                        async with endpoint, worker:
                            run = await client.start_workflow(
                                WORKFLOW, RunInput(task="do it", workspace=str(workspace)), id=name, task_queue=name
                            )
                            await play(run, llm)
                            history = await run.fetch_history()
                    file = folder / f"{name}.json"
                    # Stack traces of failed activities name the folders of the machine that recorded them.
                    file.write_text(history.to_json().replace(f"{ROOT}/", "").replace(sys.prefix, ".venv") + "\n")
                    print(f"{file.relative_to(HISTORIES.parent)}: {len(history.events)} events")
        finally:
            await asyncio.to_thread(stack.stop)


if __name__ == "__main__":
    version = sys.argv[1] if len(sys.argv) > 1 else holdfast.__version__
    asyncio.run(record(HISTORIES / version))

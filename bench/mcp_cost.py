"""`python -m bench.mcp_cost`: what a step costs that calls a tool of an MCP server over stdio.

Runs whose LLM calls a tool of the SDK's own server alternate with runs that call the same function in Python, on one
worker. The server's own time is measured beside them: by a bare client, which writes a line to another process of the
same server, and reads its answer. All runs share one connection, and so one server.
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import openai
import psutil
import typer
import uvloop
from mcp.server import MCPServer
from temporalio.client import Client

from bench import document
from bench.environment import leave, observation, open_stack
from bench.llm import serve_llm
from holdfast import MCP, Agent, Catalog, Limits, Secrets, tool
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.hosting.assembly import build_worker
from holdfast.mcp.lock_file import LOCK, write_lock
from holdfast.mcp.pinning import read_lists, with_pinned_tools
from holdfast.storage.pool import migrate, open_pool
from holdfast.worker.construction import running
from holdfast.worker.resources import open_resources

LIMIT = 1.15
"""The most that a step may cost, relative to the same step in Python and the server's own time."""
QUEUE = "mcp-cost"
ABOUT = (
    "Runs that call a tool of an MCP server over stdio (of the official SDK, unconfined) alternate with runs that call "
    "the same function in Python, on one worker. The server's own time is that of calls by a bare client to another "
    "process of the same server, in the same minute. On a busy machine, compare the times with each other alone."
)
COMMAND = [sys.executable, "-m", "bench.mcp_cost", "--serve"]
ROOT = str(Path(__file__).resolve().parents[1])
TEXT = observation()


@tool(effect="read")
async def observe(n: int) -> str:
    """Look at something."""
    return TEXT


def serve_over_stdio() -> None:
    """Be the server."""
    server = MCPServer("observer", version="1")  # which configures the logs of its process
    server.add_tool(observe.function, name="observe", structured_output=False)
    server.run("stdio")


class BareClient:
    """Another process of the server, which is called without an SDK."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
        self._ask(0, "initialize", about)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, number: int) -> float:
        """Call the tool; return the seconds until its answer has arrived."""
        began = time.perf_counter()
        answer = self._ask(number, "tools/call", {"name": "observe", "arguments": {"n": number}})
        seconds = time.perf_counter() - began
        assert json.loads(answer)["result"]["content"][0]["text"] == TEXT
        return seconds

    def _ask(self, number: int, method: str, params: dict[str, Any]) -> bytes:
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.communicate()


async def make_catalog(folder: Path) -> Catalog:
    """Return a catalog with the tool in Python, and the accepted one of the server."""
    observer = MCP("far", command=COMMAND, env={"PYTHONPATH": ROOT}, effects={"*": "read"}, confined=False)
    write_lock(folder / LOCK, await read_lists([observer], Secrets({})))
    limits = Limits(max_steps=1_000_000, compaction_tokens=10**9, repeats_slowed=0, repeats_warned=0, repeats_asked=0)
    agents = [
        Agent(name=each, instructions="Look until you are done.", tools=(each,), limits=limits)
        for each in ("observe", "far_observe")
    ]
    return with_pinned_tools(Catalog(agents=agents, tools=[observe], mcp=[observer]), folder)


async def run_for(client: Client, name: str, agent: str, steps: int) -> float:
    """Make a run; return the seconds of a step."""
    began = time.perf_counter()
    handle = await client.start_workflow(
        WORKFLOW,
        RunInput(task=f"Look at things: uses={agent} steps={steps}", agent=agent),
        id=name,
        task_queue=QUEUE,
        result_type=RunResult,
    )
    result = await handle.result()
    assert result.steps == steps + 1, result
    return (time.perf_counter() - began) / steps


async def measure(stack: Stack, home: Path, *, steps: int, rounds: int) -> list[str]:
    """Return the figures, and print them; the last line says whether the limit is kept."""
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    await migrate(stack.database_url)
    catalog, bare = await make_catalog(home), BareClient()
    pairs, own = list[tuple[float, float]](), list[float]()
    with serve_llm() as llm_url:
        async with (
            open_pool(stack.database_url, size=4) as pool,
            openai.AsyncOpenAI(api_key="bench", base_url=llm_url, max_retries=0) as llm,
            open_resources(catalog, NO_SECRETS) as resources,
        ):
            worker = build_worker(
                client,
                task_queue=QUEUE,
                catalog=catalog,
                llm=llm,
                default_llm="bench",
                pool=pool,
                database_url=stack.database_url,
                workspaces=home / "workspaces",
                resources=resources,
            )
            async with running(worker):
                for number in range(rounds + 1):
                    near = await run_for(client, f"near-{number}", "observe", steps)
                    far = await run_for(client, f"far-{number}", "far_observe", steps)
                    calls = [await asyncio.to_thread(bare.call, 1 + each) for each in range(steps)]
                    if number:  # the first pair warms up
                        pairs.append((near, far))
                        own += calls
                at_once = [run_for(client, f"shared-{number}", "far_observe", 5) for number in range(20)]
                await asyncio.gather(*at_once)
                servers = [each for each in psutil.Process().children() if "--serve" in each.cmdline()]
    bare.close()
    assert len(servers) == 2, "ours, and that of the bare client"
    mean = sum(own) / len(own)
    ratios = sorted(far / (near + mean) for near, far in pairs)
    low, _, high = quantiles(ratios, n=4)
    met = median(ratios) <= LIMIT
    return [
        f"- a step with the tool in Python: {1_000 * median(near for near, _ in pairs):.1f} ms; with that of the MCP "
        f"server: {1_000 * median(far for _, far in pairs):.1f} ms; the server's own time: {1_000 * mean:.1f} ms",
        f"- **{median(ratios):.2f} ×** the step in Python plus the server's own time (median of {rounds} pairs of runs "
        f"of {steps} steps; half of them between {low:.2f} and {high:.2f}); the limit is {LIMIT}"
        + ("" if met else ": **MISSED**"),
        "- 20 runs at once used one server process",
    ]


def main(
    steps: Annotated[int, typer.Option(min=5, help="Steps of each run.")] = 50,
    rounds: Annotated[int, typer.Option(min=3, help="Pairs of runs.")] = 9,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
    serve: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Measure on a separate embedded stack. Exits with 1 if the limit is missed."""
    if serve:
        serve_over_stdio()
        return
    with open_stack() as (stack, home):
        lines = uvloop.run(measure(stack, home, steps=steps, rounds=rounds))
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.mcp_cost --steps {steps} --rounds {rounds}`. {ABOUT}"
        document.write("mcp-cost", "\n".join(["## A tool of an MCP server", "", about, "", *lines]))
    leave("MISSED" in lines[1])


if __name__ == "__main__":
    typer.run(main)

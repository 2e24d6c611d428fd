"""`python -m bench.forks`: fork a long thread near its end, repeatedly.

It prints the time until the fork's LLM is called, and checks that no tool with an effect ran, and that the fork's
prompt begins with the bytes of the original's.
"""

import asyncio
import time
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from bench import document
from bench.environment import leave, open_stack
from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.forks import fork
from holdfast.client.start_options import issued
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say
from holdfast.testing.scripted_worker import scripted_worker

QUEUE = "forks"
WITHIN = 2.0
"""Seconds within which a fork should call its LLM."""
made: list[int] = []


@tool(effect="read")
def look(at: int) -> str:
    """Look at something."""
    return f"it is {at}. " + "x" * 200


@tool(effect="unsafe")
def act(at: int) -> str:
    """Have an effect."""
    made.append(at)
    return "done"


async def measure(stack: Stack, home: Path, steps: int, at: int, repeat: int) -> None:
    """Run one thread, fork it after a step, and measure each fork."""
    servers: list[ScriptedLLM] = []
    prompts: list[bytes] = []
    """The request of that step, of the original and of each fork."""

    def script(conversation: Conversation) -> Reply:
        step = conversation.replies
        if step == at:
            prompts.append(servers[0].requests[-1].body)
        if step >= steps:
            return say("done")
        return call("act", at=step) if step % 50 == 49 else call("look", at=step)

    limits = Limits(max_steps=2 * steps, compaction_tokens=10**9, repeats_slowed=0, repeats_warned=0, repeats_asked=0)
    policy = Policy(rules=(allow(),))
    catalog = Catalog(agents=[Agent(name="bench", instructions="W", policy=policy, limits=limits, tools=[look, act])])
    client, worker_client = await connect_stack(stack), await connect_stack(stack)
    await ensure_search_attributes(client)
    await migrate(stack.database_url)
    times: list[float] = []
    cpu: list[float] = []
    """Seconds of CPU time of client and worker for each fork: both are in this process."""
    async with (
        open_pool(stack.database_url, size=8) as pool,
        scripted_worker(
            worker_client,
            catalog,
            script,
            task_queue=QUEUE,
            pool=pool,
            database_url=stack.database_url,
            workspaces=home / "workspaces",
        ) as llm,
    ):
        servers.append(llm)
        threads = Threads(client, task_queue=QUEUE, record=PostgresThreads(pool))
        thread = f"forks-{uuid4().hex[:6]}"
        run_input = issued(RunInput(task="go"))
        await (await client.start_workflow(WORKFLOW, run_input, id=thread, task_queue=QUEUE)).result()
        events = await threads.recorded_events(thread)
        replies = [event.position for event in events if event.type == "llm_replied"]
        position, effects, wrong = replies[at] - 1, len(made), 0
        for _ in range(repeat):
            count, began, used = len(prompts), time.perf_counter(), time.process_time()
            forked = await fork(threads, thread, at=position, by="bench")
            while len(prompts) == count:  # noqa: ASYNC110  # the worker is in this process
                await asyncio.sleep(0.002)
            times.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
            wrong += prompts[count] != prompts[0]
            await client.get_workflow_handle(forked.thread).terminate()
        wrong += len(made) - effects
    best, worst = min(times), max(times)
    lines = [
        f"- a thread of {steps:,} steps ({len(events):,} events), forked after step {at:,}: the fork's LLM is called"
        f" after {best:.2f} to {worst:.2f} s (at most {WITHIN:g} s); client and worker take {min(cpu):.2f} to"
        f" {max(cpu):.2f} s of CPU time",
        f"- {wrong} effects, or prompts that differ from the original's, in {repeat} forks",
    ]
    print("\n".join(lines))
    about = "One worker, `python -m bench.forks`; all calls until then come from the log."
    document.write("forks", "\n".join(["## Forks", "", about, "", *lines]))


def main(
    steps: Annotated[int, typer.Option(min=2)] = 1_000,
    at: Annotated[int, typer.Option(min=1)] = 900,
    repeat: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Fork a thread of that many steps after one of them, on a separate embedded stack."""
    with open_stack() as (stack, home):
        asyncio.run(measure(stack, home, steps, at, repeat))
    leave()


if __name__ == "__main__":
    typer.run(main)

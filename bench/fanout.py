"""`python -m bench.fanout`: the cost of a hundred sub-agents for their parent.

Parents run one after the other on one worker, in alternating order. Each makes its first calls in one reply, and then
the same number of steps, which are measured from the second one to the last:

1. `alone` makes no first call.
2. `calls` makes ordinary calls, so its transcript is as long as those below: an LLM call sends all of it.
3. `beside` does the same while as many other runs wait on the worker, which makes its garbage collections longer.
4. `ended` runs sub-agents, and waits for them.
5. `open` runs sub-agents in the background, each of which waits for an approval until the parent ends. The steps begin
   when all of them wait, and the parent has polled all of them. It polls by the clock and not by the step: 20 s after
   the start, and then at growing intervals. The cost of such a poll is measured separately.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
import uvloop
from temporalio.client import Client, WorkflowHandle

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import FIRST as FIRST_CALLS
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, Policy, allow, ask, tool
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput

QUEUE = "fanout"
ALONE, CALLS, BESIDE, ENDED, OPEN = "alone", "calls", "beside", "ended", "open"
FIRST = {CALLS: "note", BESIDE: "note", ENDED: "rest", OPEN: "wait"}
"""The name of each parent's first calls in `bench.llm`."""
EXPECTED = {ENDED: "completed", OPEN: "open"}
"""The state of the sub-agents after the parent's steps, as the parent sees it."""
WITHOUT = {ENDED: CALLS, OPEN: BESIDE}
"""The parent without sub-agents to compare with."""
LIMIT = 1.10
"""The most CPU time of a step beside sub-agents, relative to one without them. Noise is up to 5 %."""
BYTES = 2_048
"""The most bytes of growth of the parent's history for each sub-agent."""
PATIENCE = 600.0
"""Time limit of one parent in seconds."""


@dataclass(frozen=True)
class Sample:
    """One parent."""

    ms: float
    """A step's time."""
    cpu_ms: float
    """A step's CPU time in the process of the worker."""
    history_bytes: int
    """The total of all its Temporal runs."""
    seconds: float
    """Seconds from its start to its first step."""
    children: tuple[str, ...]
    """The states of its sub-agents after the last step, as the parent sees them."""
    closed: int
    """The number of sub-agents that Temporal lists as closed after the parent's end."""
    poll_ms: float = 0
    """The CPU time of a poll of all open sub-agents."""


@dataclass(frozen=True)
class Tick:
    """A moment in a run."""

    at: float
    cpu: float


class Parents:
    """Runs parents, and measures them.

    Args:
        ticks: The moments of the current parent's steps, by step.
        settled: Lets the parent make its steps.
        count: First calls of each parent.
        steps: Steps of each parent.
    """

    def __init__(
        self, client: Client, ticks: dict[int, Tick], settled: asyncio.Event, *, count: int, steps: int
    ) -> None:
        self._client, self._ticks, self._settled, self._count, self._steps = client, ticks, settled, count, steps

    async def run(self, kind: str, number: int) -> Sample:
        """Run a parent of one kind."""
        self._ticks.clear()
        self._settled.clear()
        first = f"first={self._count}x{FIRST[kind]} " if kind in FIRST else ""
        # The last call asks for an approval, so that the state after it can be read.
        task = RunInput(task=f"{first}steps={self._steps} then=pay", agent="parent")
        thread = f"{QUEUE}-{kind}-{number}"
        others = await self._start_others(thread) if kind == BESIDE else []
        began = time.perf_counter()
        run = await self._client.start_workflow(WORKFLOW, task, id=thread, task_queue=QUEUE)
        async with asyncio.timeout(PATIENCE):
            poll_ms = await self._poll_cost(run) if kind == OPEN else 0
            self._settled.set()
            while (state := await run.query("state"))["status"] != "waiting_approval":  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            await run.execute_update(
                "decide", {"decision": "approve", "request": state["pending"][0]["request"], "by": "bench"}
            )
            await run.result()
            closed = f"WorkflowId STARTS_WITH '{thread}.' AND ExecutionStatus != 'Running'"
            while (closed_count := (await self._client.count_workflows(closed)).count) < len(state["subagents"]):  # noqa: ASYNC110
                await asyncio.sleep(0.2)  # visibility lags
            for other in others:
                await other.terminate()
        early, late = self._ticks[2], self._ticks[self._steps]
        measured = self._steps - 2
        return Sample(
            ms=(late.at - early.at) / measured * 1e3,
            cpu_ms=(late.cpu - early.cpu) / measured * 1e3,
            history_bytes=await self._bytes(thread),
            seconds=self._ticks[1].at - began,
            children=tuple(child["status"] for child in state["subagents"]),
            closed=closed_count,
            poll_ms=poll_ms,
        )

    async def _poll_cost(self, run: WorkflowHandle[Any, Any]) -> float:
        """Wait until all sub-agents wait and the parent has polled them; return the CPU time of the poll in ms."""
        await self._wait_for_approvals(f"{run.id}.")
        size, before = await self._events(run), time.process_time()
        while await self._events(run) == size:
            before = time.process_time()
            await asyncio.sleep(0.2)
        while (grown := await self._events(run)) != size:
            size = grown
            await asyncio.sleep(0.5)
        return (time.process_time() - before) * 1e3

    async def _start_others(self, thread: str) -> list[WorkflowHandle[Any, Any]]:
        """Start other runs that wait for an approval, and wait until all of them do."""
        task = RunInput(task=str(FIRST_CALLS["wait"][1]["task"]), agent="wait")
        runs = [
            await self._client.start_workflow(WORKFLOW, task, id=f"{thread}-other-{number}", task_queue=QUEUE)
            for number in range(self._count)
        ]
        async with asyncio.timeout(PATIENCE):
            await self._wait_for_approvals(f"{thread}-other-")
        return runs

    async def _wait_for_approvals(self, prefix: str) -> None:
        """Wait until all runs with ids of this prefix wait for an approval."""
        waiting = f"WorkflowId STARTS_WITH '{prefix}' AND HoldfastStatus = 'waiting_approval'"
        while (await self._client.count_workflows(waiting)).count < self._count:  # noqa: ASYNC110
            await asyncio.sleep(0.2)

    async def _events(self, run: WorkflowHandle[Any, Any]) -> int:
        """Return the number of events in a run's history."""
        return (await run.describe()).history_length

    async def _bytes(self, thread: str) -> int:
        """Return the size of a thread's history, over all its Temporal runs."""
        size = 0
        async for row in self._client.list_workflows(f"WorkflowId = '{thread}'"):
            handle = self._client.get_workflow_handle(thread, run_id=row.run_id)
            info = (await handle.describe()).raw_description.workflow_execution_info
            size += info.history_size_bytes
        return size


async def measure(stack: Stack, home: Path, url: str, *, count: int, steps: int, rounds: int) -> bool:
    """Run parents of each kind alternately, and compare them; return whether all limits are met."""
    text, ticks, settled = observation(), dict[int, Tick](), asyncio.Event()

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        ticks[n] = Tick(time.perf_counter(), time.process_time())
        return text

    @tool(effect="read")
    async def note(text: str) -> str:
        """Note something."""
        # As long as the message to the LLM about the end of a sub-agent.
        return f"Agent note (thread fanout-ended-1.100) has completed in 1 step. What follows is its answer: {text:<40}"

    @tool(effect="idempotent", timeout=PATIENCE)  # a read would first be attempted as a local activity
    async def settle() -> str:
        """Wait until the sub-agents have nothing to do."""
        await settled.wait()
        return "settled"

    @tool(effect="idempotent")
    async def pay(n: int) -> str:
        """Pay."""
        return "paid"

    policy = Policy(rules=(ask("pay"), allow()))
    limits = Limits(
        max_steps=10 * steps,
        max_calls=count + 1,
        max_subagents=count,
        subagents_at_once=count,
        compaction_tokens=10**9,
        history_events=50_000,
    )
    agents = [
        Agent(
            name="parent",
            instructions="Go on.",
            policy=policy,
            limits=limits,
            subagents=("rest", "wait"),
            tools=[observe, note, settle, pay],
        ),
        Agent(name="rest", instructions="Go on.", tools=()),
        Agent(name="wait", instructions="Go on.", tools=("pay",), policy=policy),
    ]
    samples: dict[str, list[Sample]] = {kind: [] for kind in _WHAT}
    catalog = Catalog(agents=agents, tools=[observe, note, settle, pay])
    async with serving(stack, home, url, catalog, queue=QUEUE, connections=8) as (client, _, _):
        parents = Parents(client, ticks, settled, count=count, steps=steps)
        for number in range(-1, rounds):
            for kind in list(samples)[:: 1 if number % 2 else -1]:
                sample = await parents.run(kind, number)
                if number >= 0:  # the first round warms up
                    samples[kind].append(sample)
    lines, met = judge(samples, count=count)
    print("\n".join(lines))
    about = (
        f"`python -m bench.fanout --agents {count} --steps {steps} --rounds {rounds}`: parents with {count} sub-agents "
        f"that have ended, with {count} that are open, with {count} ordinary calls instead (beside no other runs, and "
        f"beside {count}), and with none, alternately on one worker. Steps are measured after the first calls; their "
        "CPU time is that of the process of the worker."
    )
    document.write("fanout", "\n".join(["## A hundred sub-agents of one parent", "", about, "", *lines]))
    return met


def judge(samples: dict[str, list[Sample]], *, count: int) -> tuple[list[str], bool]:
    """Return the figures, one sentence each, and whether all limits are met."""
    all_of = [len(each.children) == each.closed == count for kind in EXPECTED for each in samples[kind]]
    as_expected = all(set(each.children) == {status} for kind, status in EXPECTED.items() for each in samples[kind])
    begun = {kind: median(each.seconds for each in samples[kind]) for kind in EXPECTED}
    growth = {
        kind: median(
            (a.history_bytes - b.history_bytes) / count for a, b in zip(samples[kind], samples[ALONE], strict=True)
        )
        for kind in (CALLS, ENDED, OPEN)
    }
    ratios = {
        (kind, field): _ratio(samples[kind], samples[WITHOUT[kind]], field)
        for kind in (ENDED, OPEN)
        for field in ("ms", "cpu_ms")
    }
    ended = f"**all {count} sub-agents of each parent ended**" if all(all_of) and as_expected else "NOT ALL ENDED"
    lines = [
        f"- {len(samples[ENDED])} rounds: {ended}; {count} answers were there after {begun[ENDED]:.1f} s in the median",
        f"- the parent's history grew by {growth[ENDED]:,.0f} bytes for each that ended while it waited, by "
        f"{growth[OPEN]:,.0f} for each that it cancelled at its end (at most {BYTES:,}), by {growth[CALLS]:,.0f} for "
        "each ordinary call",
        *(
            f"- a step {what}: {_median(samples[kind], 'ms'):.2f} ms, {_median(samples[kind], 'cpu_ms'):.2f} ms of CPU"
            for kind, what in _WHAT.items()
        ),
        *(
            f"- a step {_WHAT[kind]} takes {ratios[kind, 'cpu_ms']:.3f} × the CPU of one {_WHAT[WITHOUT[kind]]} "
            f"(at most {LIMIT:.2f}), in the median of the rounds; {ratios[kind, 'ms']:.2f} × the time"
            for kind in EXPECTED
        ),
        f"- a poll of {count} open sub-agents: {_median(samples[OPEN], 'poll_ms'):.0f} ms of CPU; the first one comes "
        "after 20 s, and the next ones at intervals of up to five minutes",
    ]
    few = max(growth[ENDED], growth[OPEN]) < BYTES
    return lines, all(all_of) and as_expected and few and all(ratios[kind, "cpu_ms"] <= LIMIT for kind in EXPECTED)


_WHAT = {
    ALONE: "of a parent alone",
    CALLS: "after ordinary calls",
    BESIDE: "after ordinary calls, beside as many open runs of others",
    ENDED: "after sub-agents that have ended",
    OPEN: "beside open sub-agents",
}


def _median(samples: Sequence[Sample], field: str) -> float:
    return float(median(getattr(each, field) for each in samples))


def _ratio(samples: Sequence[Sample], others: Sequence[Sample], field: str) -> float:
    """Return the median over rounds of the ratio of a field between two kinds."""
    return float(median(getattr(a, field) / getattr(b, field) for a, b in zip(samples, others, strict=True)))


def main(
    agents: Annotated[int, typer.Option(min=2, max=499, help="Sub-agents of each parent.")] = 100,
    steps: Annotated[int, typer.Option(min=10, help="Steps of each parent.")] = 150,
    rounds: Annotated[int, typer.Option(min=1)] = 7,
) -> None:
    """Compare parents on a separate embedded stack. Takes about eight minutes. Exits with 1 if a limit is missed."""
    with open_stack() as (stack, home), serve_llm() as url:
        met = uvloop.run(measure(stack, home, url, count=agents, steps=steps, rounds=rounds))
    leave(not met)


if __name__ == "__main__":
    typer.run(main)

"""`python -m bench.seals`: the cost of MACs, of signed results and of a node's own policy for a step.

The same agent runs on four workers of one process and one server. One neither adds nor verifies the MACs of payloads,
one does, one also signs the results of calls, and one also judges them by a policy of its own, not the agent's.
Everything else is the same, down to the length of names.

1. The workers take turns, and every other round has the opposite order, so that no worker is always the first or the
   last one. A pair of such rounds gives one ratio, the geometric mean of both.
2. The median of these ratios counts, of time and of CPU time. If it is nearer to the limit than twice its standard
   error (`noise`), the measurement decides nothing.
3. Signing and judging are also measured where they happen, in CPU time of the thread. That is exact to a few percent of
   itself, but leaves out what a longer history and longer events cost.
"""

import gc
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import median, stdev
from typing import Annotated, Any, cast

import typer
import uvloop
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import CompositePayloadConverter, DataConverter

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, Policy, allow, deny, tool
from holdfast.activities.node_gate import NodeGate
from holdfast.activities.signed_results import ResultSigner
from holdfast.client.connect import connect_stack, stack_config
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import SigningKey, encode_key
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.temporal.converter import LeanPayloadConverter

LIMIT = 1.03
"""The maximum cost of MACs, of signatures, and of the node's policy, each relative to a step without."""

NAMES = ("bare", "sealed", "signed", "judged")
"""The workers, each with everything that the one before has."""


class Bare(LeanPayloadConverter):
    """A converter that neither adds nor verifies MACs."""

    seals = FleetKeys({"none": b""})
    """A placeholder, because a worker requires keys."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return CompositePayloadConverter.to_payloads(self, values)

    def _opened(self, payload: Payload, hint: Any) -> Any:
        if issubclass(hint, bytes):
            return hint(payload.data)
        if issubclass(hint, dict | list):
            return hint(CompositePayloadConverter.from_payloads(self, [payload], None)[0])
        return CompositePayloadConverter.from_payloads(self, [payload], [hint])[0]


Costs = dict[str, list[tuple[float, float]]]
"""By worker, for each round: milliseconds of a step, and those of its CPU time."""


@contextmanager
def own_time() -> Iterator[dict[str, float]]:
    """Yield the milliseconds of CPU time that signing and judging take, which grow as workers run."""
    spent = {"sign": 0.0, "judge": 0.0}
    signer, gate = cast(Any, ResultSigner), cast(Any, NodeGate)
    sign, judge = signer.sign, gate.judge

    async def timed_sign(*args: Any) -> str:
        began = time.thread_time()
        try:
            return str(await sign(*args))
        finally:
            spent["sign"] += (time.thread_time() - began) * 1e3

    def timed_judge(*args: Any) -> Any:
        began = time.thread_time()
        try:
            return judge(*args)
        finally:
            spent["judge"] += (time.thread_time() - began) * 1e3

    signer.sign, gate.judge = timed_sign, timed_judge
    try:
        yield spent
    finally:
        signer.sign, gate.judge = sign, judge


async def measure(
    stack: Stack, home: Path, url: str, *, steps: int, rounds: int
) -> tuple[Costs, dict[str, int], dict[str, dict[str, float]]]:
    """Run the workers in turn; return what their steps cost, the bytes of a run's history by worker, and by worker the
    milliseconds of a step that signing and judging take.
    """
    text = observation()

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        return text

    limits = Limits(max_steps=10 * steps, compaction_tokens=10**9)
    policy = Policy(rules=(allow(),))
    agent = Agent(
        name="a", instructions="Call observe until you are done.", policy=policy, limits=limits, tools=[observe]
    )
    catalog = Catalog(agents=[agent])
    bare = await Client.connect(**stack_config(stack), data_converter=DataConverter(payload_converter_class=Bare))
    clients = {name: bare if name == "bare" else await connect_stack(stack) for name in NAMES}
    keys = dict.fromkeys(("signed", "judged"), SigningKey(encode_key(os.urandom(32))))
    policies = {"judged": Policy(rules=(deny("pay", when="args.cents > 100"), allow("*", when="args.n >= 0")))}
    costs: Costs = {name: [] for name in NAMES}
    sizes: dict[str, int] = {}
    own: dict[str, dict[str, float]] = {name: dict.fromkeys(("sign", "judge"), 0.0) for name in NAMES}
    async with AsyncExitStack() as workers:
        spent = workers.enter_context(own_time())
        for name, client in clients.items():
            node = {"node_key": keys.get(name), "node_policy": policies.get(name)}
            worker = serving(stack, home, url, catalog, queue=f"{name:_<6}", client=client, **node)  # type: ignore[arg-type]
            await workers.enter_async_context(worker)
        for number in range(-1, rounds):
            for name in NAMES[:: -1 if number % 2 else 1]:
                client, thread = clients[name], f"seals-{name:_<6}-{number + 1:03}"
                gc.collect()  # so that the garbage of another worker's run is not measured
                began, burnt = time.perf_counter(), time.process_time()
                run = RunInput(task=f"steps={steps}")
                before = dict(spent)
                await client.execute_workflow(WORKFLOW, run, id=thread, task_queue=f"{name:_<6}")
                took, burnt = time.perf_counter() - began, time.process_time() - burnt
                if number >= 0:  # the first round warms up
                    costs[name].append((took / steps * 1e3, burnt / steps * 1e3))
                    for part in spent:
                        own[name][part] += (spent[part] - before[part]) / steps / rounds
                described = await client.get_workflow_handle(thread).describe()
                sizes[name] = described.raw_description.workflow_execution_info.history_size_bytes
    return costs, sizes, own


def ratios(costs: Costs, name: str, other: str, part: int) -> list[float]:
    """Return the ratio of two workers for each pair of rounds, in order of size.

    Args:
        costs: What their steps cost.
        name: The one.
        other: The other, in the denominator.
        part: 0 for time, 1 for CPU time.
    """
    each = [mine[part] / theirs[part] for mine, theirs in zip(costs[name], costs[other], strict=True)]
    return sorted(sqrt(one * two) for one, two in zip(each[::2], each[1::2], strict=True))


def noise(each: Sequence[float]) -> float:
    """Return the standard error of the median of some ratios, as of normally distributed ones."""
    return 1.25 * stdev(each) / sqrt(len(each))


def verdict(both: Sequence[Sequence[float]]) -> str:
    """Return in words whether a cost is within the limit, by the ratios of time and of CPU time."""
    if all(median(each) + 2 * noise(each) <= LIMIT for each in both):
        return "within the limit"
    if any(median(each) - 2 * noise(each) > LIMIT for each in both):
        return "ABOVE the limit"
    return "not decided: the noise is too large"


def report(costs: Costs, sizes: dict[str, int], own: dict[str, dict[str, float]], *, steps: int) -> list[str]:
    """Return the lines of the results."""
    lines = []
    for other, name in pairwise(NAMES):
        shown, both = [], []
        for part, word in enumerate(("time", "CPU time")):
            each = ratios(costs, name, other, part)
            before, after = (median(cost[part] for cost in costs[worker]) for worker in (other, name))
            both.append(each)
            shown.append(
                f"{median(each):.3f} × the {word} ({before:.2f} → {after:.2f} ms a step; noise ± {noise(each):.3f}; "
                f"{each[0]:.2f} to {each[-1]:.2f})"
            )
        lines.append(f"- {name}, compared with {other}: {' and '.join(shown)}; {verdict(both)} ({LIMIT:.2f} ×)")
    time_of_step, cpu_of_step = (median(cost[part] for cost in costs["sealed"]) for part in (0, 1))
    for word, took in (
        ("signing", own["signed"]["sign"]),
        ("judging by the node's policy", own["judged"]["judge"] - own["signed"]["judge"]),
    ):
        shares = f"{took / time_of_step:.1%} of its time and {took / cpu_of_step:.1%} of its CPU time"
        lines.append(f"- {word} itself: {took:.2f} ms a step, {shares}")
    signature = (sizes["signed"] - sizes["sealed"]) / (2 * steps + 1)  # the last reply calls no tool
    lines.append("- history: " + ", ".join(f"{sizes[name] / steps:.0f} bytes a step {name}" for name in NAMES))
    lines.append(f"- a signature: {signature:.1f} bytes, twice a step and once for the last reply")
    return lines


def main(steps: Annotated[int, typer.Option(min=10)] = 100, pairs: Annotated[int, typer.Option(min=3)] = 12) -> None:
    """Compare four workers on a separate embedded stack. Takes about four minutes on a quiet machine."""
    with open_stack() as (stack, home), serve_llm() as url:
        costs, sizes, own = uvloop.run(measure(stack, home, url, steps=steps, rounds=2 * pairs))
    lines = [f"- {pairs} pairs of rounds of {steps} steps", *report(costs, sizes, own, steps=steps)]
    print("\n".join(lines))
    about = (
        "`python -m bench.seals`: a step of one LLM call and one read on workers that take turns: bare, sealed, also "
    )
    about += (
        "signed, and also judged by a policy of the node that is not the agent's. Each ratio is of a pair of rounds "
    )
    about += "in opposite order."
    document.write("seals", "\n".join(["## What seals and signatures cost", "", about, "", *lines]))
    leave()


if __name__ == "__main__":
    typer.run(main)

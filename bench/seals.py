"""`python -m bench.seals`: the cost of MACs, of signed results and of a node's own policy for a step.

The same agent runs alternately on four workers of one server. One neither adds nor verifies the MACs of payloads, one
does, one also signs the results of calls, and one also has a policy of its own. Everything else is the same: the
activities of all check the origin of their requests.
"""

import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
import uvloop
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import CompositePayloadConverter, DataConverter

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.connect import connect_stack, stack_config
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import SigningKey, encode_key
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.temporal.converter import LeanPayloadConverter

LIMIT = 0.03
"""The maximum cost of MACs, of signatures, and of the node's policy, each as a share of a step's time."""


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


async def measure(stack: Stack, home: Path, url: str, *, steps: int, rounds: int) -> None:
    """Run the workers alternately, and compare the medians."""
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
    clients = {"bare": bare, "sealed": await connect_stack(stack), "signed": await connect_stack(stack)}
    clients["judged"] = await connect_stack(stack)
    keys = dict.fromkeys(("signed", "judged"), SigningKey(encode_key(os.urandom(32))))
    policies = {"judged": Policy(rules=(allow(),))}
    times: dict[str, list[float]] = {name: [] for name in clients}
    cpu: dict[str, list[float]] = {name: [] for name in clients}
    sizes: dict[str, int] = {}
    async with AsyncExitStack() as workers:
        for name, client in clients.items():
            own = {"node_key": keys.get(name), "node_policy": policies.get(name)}
            worker = serving(stack, home, url, catalog, queue=name, client=client, **own)  # type: ignore[arg-type]
            await workers.enter_async_context(worker)
        for number in range(-1, rounds):
            # The order alternates, because the server has slightly more data for the second run.
            for name, client in list(clients.items())[:: 1 if number % 2 else -1]:
                run, thread = RunInput(task=f"steps={steps}"), f"seals-{name}-{number}"
                began, burnt = time.perf_counter(), time.process_time()
                await client.execute_workflow(WORKFLOW, run, id=thread, task_queue=name)
                if number >= 0:  # the first round warms up
                    times[name].append((time.perf_counter() - began) / steps * 1e3)
                    cpu[name].append((time.process_time() - burnt) / steps * 1e3)
                described = await client.get_workflow_handle(thread).describe()
                sizes[name] = described.raw_description.workflow_execution_info.history_size_bytes
    lines = [f"- {rounds} rounds of {steps} steps"]
    for name, other in (("sealed", "bare"), ("signed", "sealed"), ("judged", "signed")):
        ratios = sorted(mine / theirs for theirs, mine in zip(times[other], times[name], strict=True))
        burns = median(mine / theirs for theirs, mine in zip(cpu[other], cpu[name], strict=True))
        lines += [
            f"- {median(times[other]):.2f} ms a step {other}, {median(times[name]):.2f} {name}: ratio within a round "
            f"{median(ratios):.3f} in the median (at most {1 + LIMIT:.2f}), {ratios[0]:.2f} to {ratios[-1]:.2f}; "
            f"of CPU time {burns:.3f}, from {median(cpu[other]):.2f} ms",
        ]
    lines.append("- history: " + ", ".join(f"{size / steps:.0f} bytes a step {name}" for name, size in sizes.items()))
    print("\n".join(lines))
    about = "`python -m bench.seals`: a step of one LLM call and one read, alternately bare, sealed, signed, and judged"
    about += " by a policy of the node."
    document.write("seals", "\n".join(["## What seals and signatures cost", "", about, "", *lines]))


def main(steps: Annotated[int, typer.Option(min=10)] = 100, rounds: Annotated[int, typer.Option(min=3)] = 15) -> None:
    """Compare three workers on a separate embedded stack. Takes about three minutes."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, steps=steps, rounds=rounds))
    leave()


if __name__ == "__main__":
    typer.run(main)

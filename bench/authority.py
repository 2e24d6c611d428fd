"""`python -m bench.authority`: the cost of a policy for a step that needs no approval.

Runs the same agent alternately on one worker, with one rule that allows everything and with a policy of twenty rules,
five conditions on arguments, approvers with keys, and terms.
"""

import time
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
import uvloop

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Approver, Catalog, Limits, Policy, Terms, allow, ask, deny, tool
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput

QUEUE = "authority"
LIMIT = 0.04
"""The maximum cost of a verdict, as a share of a step's time."""


def policies() -> dict[str, Policy]:
    """Return the two policies, trivial and large."""
    people = [
        Approver(name=f"p{n}", roles=("finance",), keys=(public_key(encode_key(bytes([n]) * 32)),)) for n in range(9)
    ]
    names = [deny(f"wipe_{n}_*", reason="we keep it") for n in range(14)]
    conditions = [ask("observe", when=f"args.n < 0 && args.n != {n}", terms=Terms(quorum=2)) for n in range(5)]
    rules = (*names, *conditions, allow("observe"))
    return {"one rule": Policy(rules=(allow(),)), "twenty rules": Policy(rules=rules, approvers=tuple(people))}


async def measure(stack: Stack, home: Path, url: str, *, steps: int, rounds: int) -> None:
    """Run both policies alternately, and compare the medians."""
    text = observation()

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        return text

    limits = Limits(max_steps=10 * steps, compaction_tokens=10**9)
    names = {policy: f"agent-{number}" for number, policy in enumerate(policies())}
    agents = [
        Agent(
            name=names[name],
            instructions="Call observe until you are done.",
            policy=policy,
            limits=limits,
            tools=[observe],
        )
        for name, policy in policies().items()
    ]
    times: dict[str, list[float]] = {name: [] for name in names}
    async with serving(stack, home, url, Catalog(agents=agents), queue=QUEUE) as (client, _, _):
        for number in range(-1, rounds):
            # The order alternates, because the server has slightly more data for the second run.
            for name, agent in list(names.items())[:: 1 if number % 2 else -1]:
                run = RunInput(task=f"steps={steps}", agent=agent)
                start = time.perf_counter()
                await client.execute_workflow(WORKFLOW, run, id=f"{QUEUE}-{agent}-{number}", task_queue=QUEUE)
                if number >= 0:  # the first round warms up
                    times[name].append((time.perf_counter() - start) / steps * 1e3)
    plain, ruled = times.values()
    ratios = sorted(with_rules / without for without, with_rules in zip(plain, ruled, strict=True))
    lines = [
        f"- {rounds} rounds of {steps} steps: {median(plain):.2f} ms a step under one rule, "
        f"{median(ruled):.2f} under twenty",
        f"- ratio within a round: {median(ratios):.3f} in the median (at most {1 + LIMIT:.2f}), "
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
    ]
    print("\n".join(lines))
    about = "`python -m bench.authority`: a step that needs no approval, under two policies, alternately."
    document.write("authority", "\n".join(["## What a policy costs", "", about, "", *lines]))


def main(steps: Annotated[int, typer.Option(min=10)] = 100, rounds: Annotated[int, typer.Option(min=3)] = 15) -> None:
    """Compare two policies on a separate embedded stack. Takes about a minute."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, steps=steps, rounds=rounds))
    leave()


if __name__ == "__main__":
    typer.run(main)

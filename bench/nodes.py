"""`python -m bench.nodes`: kills the workers of nodes with different labels, keys and policies, and moves their runs.

Four nodes are in one place, and a fifth in another. Finally, the logs are compared with the outside world, which
knows the node of each request.
"""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from bench import document
from bench.environment import open_stack
from bench.move_places import Cluster, open_place, preload
from bench.moves import PATIENCE, Plan, Traveller, drive, kill_worker, report_progress
from holdfast import Budget
from holdfast.client.start_options import StartOptions
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key
from holdfast.core.log.events import (
    AgentEvent,
    NodeAccepted,
    NodeAwaited,
    ToolCallFinished,
    ToolCallRerouted,
    ToolCallStarted,
)
from holdfast.core.nodes import scope_text
from holdfast.errors import HoldfastError
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.nodes import CANNOT, Witness, catalog, script
from tests.support.outside import LATE, Api

ABOUT = (
    "Runs with the trust scope `region=eu` in two places. In the first, a node in scope whose policy denies `transfer` "
    "and `pay`, and which starts after the agents are loaded; one in scope that has no route for `mail` and `pay`; and "
    "a node out of scope. In the second, one in scope that may and can do everything. Half of the runs have the scope "
    "`region=eu,desk=front`, which one node of each place meets; that of the first place has loaded their agents, "
    "and is there for 5 of 30 seconds from then on: the runs wait, and must say for which node, until it is back or "
    "they are moved. Runs are moved at random, too. Half of the kills (SIGKILL) hit workers, the others `move` and "
    "`import`. At the end, every effect in the logs must have happened once, on a node in scope that may and can, and "
    "every thread must verify, with the scope with which it began."
)
SCOPE = "region=eu"
DESK = "region=eu,desk=front"
"""A scope that no node of the first place meets, once its clerk is gone."""
STRICT, UNABLE, FOREIGN, CLERK, ABLE = "strict", "unable", "paris", "clerk", "able"
REFUSED = {
    STRICT: {"transfer", "pay"},
    UNABLE: {"mail", "pay"},
    FOREIGN: {*catalog.tools},
    CLERK: set[str](),
    ABLE: set[str](),
}
"""The tools that each node does not run."""
LABELS = {STRICT: SCOPE, UNABLE: SCOPE, FOREIGN: "region=us", CLERK: DESK, ABLE: DESK}
"""The labels of each node."""
POLICY = """\
rules:
  - deny: transfer
    reason: no money leaves from here
  - deny: pay
    reason: no money leaves from here
  - allow: "*"
"""


class NodeTraveller(Traveller):
    """A thread with a trust scope, which is moved if it waits for a node, and sometimes otherwise."""

    scope = SCOPE
    awaited = 0
    """How often it has been moved because no node took its work."""

    async def start(self) -> None:
        """Start the thread's run."""
        budget = Budget(steps=50_000, tokens=500_000_000)
        options = StartOptions(agent="shop", nodes=(self.scope,), budget=budget, by="dana")
        await self._here.threads.start("Serve.", self.thread, options)

    async def loaded(self) -> None:
        """Wait until a worker has loaded the agent."""
        until = time.monotonic() + PATIENCE
        while not (await self._here.threads.state(self.thread))["agent"]:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.thread}: no worker has loaded its agent")
            await asyncio.sleep(0.2)

    async def travel(self) -> None:
        """Move the thread until the plan has enough kills, and then end it."""
        while self._plan.killed.total() < self._plan.kills and time.monotonic() < self._plan.until:
            await self._stay(self._plan.chance.uniform(1, 4))
            waits = await self._waits_for_node()
            if self._leaves(waits=waits):
                self.awaited += waits
                await self._move()
        await self._finish()

    def _leaves(self, *, waits: bool) -> bool:
        """Whether the thread is moved now."""
        return waits or self._plan.chance.random() < 0.3

    async def _unblock(self) -> None:
        if await self._waits_for_node():
            self.awaited += 1
            await self._move()

    async def _waits_for_node(self) -> bool:
        try:
            state = await self._here.threads.state(self.thread)
        except HoldfastError:
            return False  # its worker has just been killed
        waits_for = (state.get("places") or {}).get("waits_for")
        if waits_for and waits_for["nodes"] != self.scope:
            self._plan.wrong.append(f"{self.thread} waits for {waits_for['nodes']}, and its scope is {self.scope}")
        return bool(waits_for)

    async def nodes(self) -> tuple[list[AgentEvent], list[str]]:
        """Return the events of the ended thread, and what is wrong about the nodes in them."""
        events = await self._here.threads.recorded_events(self.thread)
        return events, [f"{self.thread}: {what}" for what in scope_faults(events, self.scope)]


class DeskTraveller(NodeTraveller):
    """A thread that waits in place `a` while the clerk is away, and is moved for that reason.

    It never comes back: an import needs a node that may load the agent.
    """

    scope = DESK

    def _leaves(self, *, waits: bool) -> bool:
        return waits and self._here.name == "a" and self._plan.chance.random() < 0.1

    async def nodes(self) -> tuple[list[AgentEvent], list[str]]:
        """Return the events of the ended thread, and what is wrong about the nodes in them."""
        events, wrong = await super().nodes()
        waited = any(isinstance(event, NodeAwaited) for event in events)
        return events, wrong if waited else [*wrong, f"{self.thread} never waited for a node"]


def scope_faults(events: Sequence[AgentEvent], selector: str) -> list[str]:
    """Return the nodes out of a thread's scope that took its work, and the waits that name another scope.

    Args:
        events: The thread's events.
        selector: The only selector of the scope with which it was started.
    """
    taken = [event.node for event in events if isinstance(event, NodeAccepted)]
    awaited = [event.scope for event in events if isinstance(event, NodeAwaited)]
    wrong = [f"{node.name} is out of scope" for node in taken if not node.fits(selector)]
    return wrong + [
        f"it waited for {scope_text(scope)}, not {selector}" for scope in awaited if scope != ((selector,),)
    ]


@dataclass
class Tally:
    """What happened."""

    kinds: Counter[str] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)
    """Effects by node."""
    wrong: list[str] = field(default_factory=list)


def judge(witness: Witness, threads: Sequence[Sequence[AgentEvent]], tally: Tally) -> None:
    """Compare the nodes of the effects with those that may and can make them."""
    for events in threads:
        names = {event.key: _name(events, event.number) for event in events if isinstance(event, ToolCallStarted)}
        for key, name in names.items():
            for node in witness.nodes.get(key, ()):
                tally.ran[node] += 1
                if name in REFUSED[node]:
                    tally.wrong.append(f"{name} ({key}) ran on {node}")
        tally.kinds += Counter(event.type for event in events)
        tally.kinds["denied"] += sum(isinstance(e, ToolCallFinished) and e.status == "denied" for e in events)
        tally.kinds["rejections"] += sum(len(e.rejected) for e in events if isinstance(e, NodeAwaited | NodeAccepted))
        tally.kinds["rerouted"] += sum(isinstance(e, ToolCallRerouted) for e in events)


def _name(events: Sequence[AgentEvent], number: int) -> str:
    return next(e.call.name for e in events if e.type == "tool_call_requested" and e.number == number)


def environ(home: Path, name: str) -> dict[str, str]:
    """Return the environment of a node, with a key of its own."""
    folder = home / name
    folder.mkdir(parents=True)
    key = folder / "node.key"
    key.write_text(encode_key(name.encode().ljust(32, b".")))
    key.chmod(0o600)
    own = {
        "HOLDFAST_CATALOG": "tests.support.nodes:catalog",
        "HOLDFAST_NODE": name,
        "HOLDFAST_NODE_LABELS": LABELS[name],
        "HOLDFAST_NODE_KEY": str(key),
    }
    if name == UNABLE:
        own[CANNOT] = ",".join(sorted(REFUSED[UNABLE]))
    if name == STRICT:
        (folder / "policy.yaml").write_text(POLICY)
        own["HOLDFAST_POLICY"] = str(folder / "policy.yaml")
    return own


async def measure(
    stacks: Sequence[tuple[Stack, Path]], witness: Witness, *, kills: int, runs: int, seed: int
) -> tuple[Plan, Tally, list[NodeTraveller]]:
    """Kill the processes that often; then check everything."""
    plan, tally = Plan(max(1, kills // 3), kills, random.Random(seed)), Tally()
    preload()
    (one, home), (two, other) = stacks
    first = {name: environ(home, name) for name in (UNABLE, STRICT, FOREIGN, CLERK)}
    second = {ABLE: environ(other, ABLE)}
    with ScriptedLLM(script) as llm:
        async with (
            open_place("a", one, home, llm, witness.environ, nodes=first, late=(STRICT,)) as a,
            open_place("b", two, other, llm, witness.environ, nodes=second) as b,
        ):
            kinds = (NodeTraveller, DeskTraveller)
            travellers = [kinds[n % 2](f"r-{n}", (a, b), witness.effects, plan) for n in range(runs)]
            for each in travellers:
                await each.start()
            for each in travellers:
                await each.loaded()
            # A worker's own policy that loads the agent becomes the run's: it would deny the call, not send it on.
            await asyncio.to_thread(a.workers[[*first].index(STRICT)].start)
            clerk = a.workers[[*first].index(CLERK)]
            await asyncio.to_thread(clerk.stop)
            a = replace(a, workers=[worker for worker in a.workers if worker is not clerk])
            await drive(travellers, plan, _kill_workers(plan, (a, b)), _come_and_go(clerk), report_progress(plan))
            for each in travellers:
                tally.wrong += (await each.audit())[0]
            found = [await each.nodes() for each in travellers]
    witness.api.drain()
    tally.wrong += plan.wrong + [fault for _, faults in found for fault in faults]
    judge(witness, [events for events, _ in found], tally)
    return plan, tally, travellers


async def _kill_workers(plan: Plan, places: Sequence[Cluster]) -> None:
    """Kill a worker at random moments until half of the kills are done."""
    while plan.killed["worker"] < plan.kills / 2:
        await asyncio.sleep(plan.chance.uniform(0.5, 3))
        kill_worker(plan, places)


async def _come_and_go(clerk: KillableWorker) -> None:
    """Start the clerk again and again, for a few seconds."""
    while True:
        await asyncio.sleep(25)
        await asyncio.to_thread(clerk.start)
        await asyncio.sleep(5)
        await asyncio.to_thread(clerk.stop)


def main(
    kills: Annotated[int, typer.Option(min=1)] = 100,
    runs: Annotated[int, typer.Option(min=2, help="Every second one waits in place a.")] = 6,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill workers and commands that often, on two separate embedded stacks."""
    start = time.monotonic()
    with open_stack() as one, open_stack() as two, Api(0.05, late=LATE) as api:
        witness = Witness(api)
        plan, tally, travellers = asyncio.run(measure((one, two), witness, kills=kills, runs=runs, seed=seed))
        effects = witness.effects()
    killed = ", ".join(f"{count} of {target}s" for target, count in sorted(plan.killed.items()))
    lines = [
        f"- {plan.killed.total()} SIGKILLs ({killed}) over {plan.moved} moves of {runs} runs, in "
        f"{(time.monotonic() - start) / 60:.0f} min: **{len(tally.wrong)} effects doubled, lost, or made by a node "
        "that must not, or logs that do not verify**",
        f"- {len(effects):,} effects, {sum(count > 1 for count in effects.values())} of them more than once; "
        + ", ".join(f"{count:,} on `{node}`" for node, count in sorted(tally.ran.items())),
        f"- {tally.kinds['rejections']:,} rejections by nodes in the logs, {tally.kinds['rerouted']:,} calls rerouted "
        f"after `Cannot`, {tally.kinds['node_awaited']:,} waits for a node, {sum(t.awaited for t in travellers)} moves "
        f"for that reason; {tally.kinds['denied']:,} calls denied",
        *(f"- WRONG: {what}" for what in tally.wrong),
    ]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.nodes --kills {kills} --runs {runs} --seed {seed}`. {ABOUT}"
        document.write("nodes", "\n".join(["## Nodes with scopes and policies", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(tally.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)

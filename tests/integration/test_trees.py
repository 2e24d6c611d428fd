"""Trees of sub-agents whose worker is killed, and the audit of their logs, accounts and effects."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bench.environment import open_stack
from bench.tree_audit import Run, audit_tree
from bench.trees import measure
from holdfast import Budget, Catalog, ToolContext, tool
from holdfast.core.log.events import AgentEvent, LLMReplied, SubagentEnded, ToolCallFinished
from tests.support.outside import LATE, Api, Outside
from tests.support.rig import StartRig, check_thread
from tests.support.treed import Member, catalog, script, task_of
from tests.workflow.test_allowances import logs_of


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_trees_survive_kills_of_their_worker() -> None:
    """After SIGKILL at random moments, each sub-agent, answer and effect exists once, and all accounts balance."""
    with open_stack() as (stack, home), Api(late=LATE) as api:
        outside = Outside(api, home / "outbox")
        outside.prepare(stack.database_url)
        result = await measure(stack, home, outside, kills=6, at_once=2, seed=1)
    assert (result.kills, result.wrong) == (6, [])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["budget_reserved", "continue_as_new", "subagent_ended", "check_subagents"])
async def test_allowances_survive_kills_where_they_are_reserved_carried_on_and_settled(place: str) -> None:
    """After kills around each of these steps, nothing is reserved or settled twice, and no tree exceeds its budget."""
    boundaries = (f"before {place}", f"after {place}")
    with open_stack() as (stack, home), Api(late=LATE) as api:
        outside = Outside(api, home / "outbox")
        outside.prepare(stack.database_url)
        result = await measure(stack, home, outside, kills=4, at_once=2, seed=3, boundaries=boundaries)
    assert result.wrong == []
    assert result.where == dict.fromkeys(boundaries, 2)


def changed(kind: type[AgentEvent], **fields: Any) -> Callable[[AgentEvent], AgentEvent]:
    """Return a function that changes these fields in the events of a kind."""
    return lambda event: event.model_copy(update=fields) if isinstance(event, kind) else event


@pytest.mark.slow
async def test_the_audit_of_trees_detects_faults(rig: StartRig) -> None:
    """The audit reports a lost or repeated sub-agent, another answer, a second effect and an unbalanced account."""
    effects: Counter[str] = Counter()

    @tool(effect="idempotent")
    def charge(order: str, context: ToolContext) -> str:
        """Charge a card."""
        effects[context.key] += 1
        return "charged"

    @tool(effect="idempotent")
    def transfer(order: str, context: ToolContext) -> str:
        """Transfer money."""
        return charge.function(order, context)

    @tool(effect="idempotent")
    def ship(order: str, context: ToolContext) -> str:
        """Ship a parcel."""
        return charge.function(order, context)

    leaf = Member(name="leaf", effects=("transfer",))
    root = Member(
        name="root",
        effects=("charge",),
        awaited=(Member(name="middle", effects=("ship",), awaited=(leaf,)),),
        background=(Member(name="aside", effects=("charge",)),),
    )
    own = Catalog(agents=list(catalog.agents.values()), tools=[charge, transfer, ship])
    async with rig(own, script) as r:
        run = await r.start(task_of(root), budget=Budget(steps=1_000, usd="9"), features=1)
        await run.result()
        logs = await logs_of(r, run.id, await check_thread(r.client, run))
    tree = {thread: Run(thread, events) for thread, events in logs.items()}
    assert audit_tree(tree, effects=effects) == []
    assert len(tree) == len(list(root.walk()))

    def found(thread: str, by: Callable[[AgentEvent], AgentEvent]) -> str:
        other = replace(tree[thread], events=[by(event) for event in tree[thread].events])
        return "\n".join(audit_tree({**tree, thread: other}, effects=effects))

    (middle, *_) = [thread for thread in tree if thread.startswith(f"{run.id}.") and thread.count(".") == 1]
    without = {thread: each for thread, each in tree.items() if thread != middle}
    twice = {**tree, middle: replace(tree[middle], chains=2)}
    asked = {**tree, middle: replace(tree[middle], asked=10**9)}
    key = next(iter(effects))
    assert f"{middle} is lost" in "\n".join(audit_tree(without, effects=effects))
    assert f"{middle}: it was started 2 times" in audit_tree(twice, effects=effects)
    assert "happened 2 times" in "\n".join(audit_tree(tree, effects={**effects, key: 2}))
    assert "is lost: the log says that it happened" in "\n".join(audit_tree(tree, effects={**effects, key: 0}))
    assert "the LLM received" in "\n".join(audit_tree(asked, effects=effects))
    assert "does not have the answer of" in found(run.id, changed(ToolCallFinished, content="hello\nworld"))
    assert "is unknown" in found(run.id, changed(SubagentEnded, cost=None))
    assert "has settled" in found(middle, changed(LLMReplied, attempt=3))

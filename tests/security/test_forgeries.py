"""Each forgery of a closed thread, tried on real servers: none is ever `proven`.

One recorded thread is forged in three settings: while Temporal has its history, afterwards with the anchors that the
embedded servers have by default, and afterwards without any witness.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Policy, Terms, allow, ask, tool
from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.audit.anchors.setting import with_embedded_anchor
from holdfast.audit.evidence.anchors import Anchors
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.composition.sealing import open_sealer, signing_key
from holdfast.composition.witnesses import own_nodes, witnesses_of
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack
from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.signatures import public_key
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.node_seals import read_seal
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.stores import aside_id
from holdfast.encryption.node_key import find_node_key
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.integration.test_client import remove
from tests.support.forgeries import FORGERIES, LIMITS, Forger, Forgery
from tests.support.people import KEYS, PEOPLE, answer, decision, request_of, signed
from tests.support.rig import Rig, StartRig, eventually

SCRIPT = steps([call("dump"), call("pay", cents=100), call("pay", cents=5), say("Paid 100."), say("Nothing more.")])
POLICY = Policy(
    rules=(allow("dump"), ask("pay", terms=Terms(by=("finance",)))), approvers=PEOPLE, signatures="required"
)


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return "0123456789" * 5_000


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay.

    Args:
        cents: How much.
    """
    return f"paid {cents}"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=POLICY, tools=[dump, pay])])


async def finished(run: WorkflowHandle[Any, Any], pool: AsyncConnectionPool, anchors: Path) -> list[AgentEvent]:
    """Wait until the run has ended and its end is sealed, and return the thread's events."""
    await run.result()

    async def sealed() -> list[AgentEvent]:
        lines = await PostgresThreads(pool).read(run.id)
        seals = await asyncio.to_thread(lambda: [read_seal(line) for line in AnchoredLines([anchors], run.id)])
        done = any(each and each.events == len(lines) for each in seals)
        return run_events(run.id, read_lines(run.id, 0, lines)) if done else []

    log: list[AgentEvent] = await eventually(sealed, lambda log: log and log[-1].type == "run_finished")
    return log


async def paid(rig: Rig) -> WorkflowHandle[Any, Any]:
    """Start a run that pays once with an approval, and is denied a second payment; a key is revoked meanwhile."""
    run = await rig.start(by="dana")
    first = await request_of(run)
    revoked = signed(KeyRevocation, run.id, by="alice", revoked=public_key(KEYS["carol"]))
    assert await answer(run, "revoke_key", revoked) == "accepted"
    assert await answer(run, "decide", decision(run.id, first, by="alice")) == "accepted"
    second = await eventually(lambda: request_of(run), lambda each: each["request"] != first["request"])
    assert await answer(run, "decide", decision(run.id, second, by="alice", decision="deny")) == "accepted"
    return run


@pytest.mark.extended
async def test_no_forgery_is_proven(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Each forgery has its verdict in each setting, never `proven`; the honest thread is proven before and after."""
    settings = with_embedded_anchor(Settings.from_env({"HOLDFAST_HOME": str(tmp_path / "home")}, root=tmp_path))
    async with (
        open_pool(stack.database_url, size=4) as pool,
        open_sealer(settings, namespace="default", say=lambda line: None) as seal,
        rig(CATALOG, SCRIPT, seal=seal, node_key=signing_key(settings, say=lambda line: None)) as r,
    ):
        witnesses = witnesses_of(settings)
        assert witnesses is not None
        (node,), (folder,) = own_nodes(settings), witnesses.locations
        run, other = await paid(r), await paid(r)
        await finished(other, pool, folder)
        forger = Forger(pool, run.id, other.id, folder, node, find_node_key(settings) or "", "default")
        forger.log = await finished(run, pool, folder)
        forger.earlier = await forger.store(tmp_path / "earlier")
        again = await r.start("and then?", thread=run.id, resume=True, previous_run=run.result_run_id)
        forger.log = await finished(again, pool, folder)
        honest = await forger.store(tmp_path / "honest")
        threads = Threads(r.client, record=PostgresThreads(pool))
        store = PostgresThreads(pool)
        evidence = Evidence(partial(effects_of, pool), store.asides, PostgresArtifacts(pool))

        async def verified(anchors: Anchors | None) -> str:
            nodes = own_nodes(settings)
            found = await verify(threads, run.id, evidence=evidence, anchors=anchors, nodes=nodes)
            return found.verdict

        async def tried(forgery: Forgery, *witnesses: Anchors | None) -> list[str]:
            await forgery.forge(forger)
            verdicts = [await verified(each) for each in witnesses]
            await forger.restore(honest)
            if await store.asides(run.id):
                await forger.write([], thread=aside_id(run.id, 1))
            return verdicts

        every = (*FORGERIES, *LIMITS)
        assert [await verified(None), await verified(witnesses)] == ["proven", "proven"]
        seen = {each.name: await tried(each, None) for each in every}
        assert await verified(None) == "proven"
        await remove(r.client, run.id)
        assert [await verified(witnesses), await verified(None)] == ["proven", "not_proven"]
        for each in every:
            seen[each.name] += await tried(each, witnesses, None)
        assert [await verified(witnesses), await verified(None)] == ["proven", "not_proven"]
    assert seen == {each.name: [each.history, each.anchored, each.alone] for each in every}
    assert len(FORGERIES) >= 20
    assert not any("proven" in each[2:] for each in FORGERIES)

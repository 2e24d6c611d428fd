"""No message stops a run or its worker, whatever it contains."""

import asyncio
from itertools import cycle, islice, product
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from holdfast import Approver, Policy, ask
from holdfast.audit.evidence.verify import verify
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import SignalRejected
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES
from holdfast.testing import call, say, steps
from tests.security.test_signal_flood import decided
from tests.support.attacker import reach
from tests.support.hostile_payloads import LARGE, UNREADABLE, as_json
from tests.support.people import clerk, payments
from tests.support.rig import PATIENCE, StartRig, events_of, status_of

POLICY = Policy(rules=(ask("pay"),), approvers=(Approver(name="alice"),))
PAY = steps([call("pay", cents=5), say("done")])
APPROVAL = {"decision": "approve", "request": "1", "by": "alice"}


async def update(run: WorkflowHandle[Any, Any], name: str, *payloads: Payload) -> str:
    """Return the type of the error that rejects an update; empty if it is accepted."""
    try:
        await run.execute_update(name, args=[RawValue(each) for each in payloads])
    except WorkflowUpdateFailedError as error:
        return str(getattr(error.cause, "type", ""))
    return ""


@pytest.mark.parametrize("each_as_each", [False, pytest.param(True, marks=pytest.mark.extended)])
async def test_an_unreadable_message_is_rejected_and_the_run_continues(
    rig: StartRig, stack: Stack, each_as_each: bool
) -> None:
    """As a signal or update of any name, it is malformed; the log says why, the right approval counts, and the log
    verifies.
    """
    signals, updates = (*SIGNALS, "no_such_signal"), tuple(UPDATES)

    def pairs(names: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return each name with each payload, or each of both at least once."""
        if each_as_each:
            return list(product(names, UNREADABLE))
        return [*islice(zip(cycle(names), cycle(UNREADABLE), strict=False), max(len(names), len(UNREADABLE)))]

    async with rig(clerk(POLICY), PAY) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        hostile = (await reach(stack)).get_workflow_handle(run.id)
        for name, what in pairs(signals):
            await hostile.signal(name, RawValue(UNREADABLE[what]))
        for name, what in pairs(updates):
            assert await update(hostile, name, UNREADABLE[what]) == "malformed", (name, what)
            assert await update(hostile, name, as_json(b"{}"), UNREADABLE[what]) == "malformed", (name, what)
        assert await decided(r.client.get_workflow_handle(run.id), APPROVAL) == "accepted"
        await asyncio.wait_for(run.result(), PATIENCE)
        assert payments(r) == [5]
        rejected = [event for event in await events_of(run) if isinstance(event, SignalRejected)]
        assert rejected
        assert all("it cannot be read" in event.explanation for event in rejected if event.signal in SIGNALS)
        verified = await verify(Threads(r.client), run.id)
        assert (verified.reason, verified.ok) == ("", True)


async def test_an_oversized_update_does_not_stop_the_run(rig: StartRig, stack: Stack) -> None:
    """The server itself rejects an update of over 2 MB, and the right approval counts."""
    async with rig(clerk(POLICY), PAY) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        hostile = (await reach(stack)).get_workflow_handle(run.id)
        for size in (LARGE, 2_200_000, 3_500_000):
            huge = as_json(b'{"decision":"approve","request":"1","by":"alice","reason":"' + b"x" * size + b'"}')
            with pytest.raises((RPCError, WorkflowUpdateFailedError)):
                await hostile.execute_update("decide", RawValue(huge))
        assert await decided(r.client.get_workflow_handle(run.id), APPROVAL) == "accepted"
        await asyncio.wait_for(run.result(), PATIENCE)
        assert payments(r) == [5]

"""`publish_event` and `wake_run`: the tools with which an agent sends events to other runs.

1. They are calls like any other: judged, approved and recorded, with an effect key, which is the event's id. So a run
   takes an event once, however often an attempt is repeated.
2. They reach only threads that the person or program that started the agent's own thread also started.
3. An event says how many agents in a row led to it (`hops`). After `MAX_HOPS`, an agent cannot send another one until a
   person's message, or an event from outside, begins something new: agents that wake each other stop.
"""

from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.builtin_tools.peers import NoPeer, require_peer, starter_of
from holdfast.client.reading.executions import own_client
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import Runs
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.waits.dormancy import MAX_HOPS, Wake, read_wake
from holdfast.core.stores import ThreadStore
from holdfast.core.tools.decorator import Tool, ToolContext, tool
from holdfast.core.tools.not_done import NotDone
from holdfast.errors import HoldfastError, ThreadNotFound

ANSWER_SECONDS = 5.0
"""How long Temporal may take to answer."""

MOST = 200
"""Maximum number of waiting runs, of any starter, among which an event finds those that it is sent to."""

SHOWN = 20
"""Maximum number of threads that a result names."""


def event_tools(record: ThreadStore) -> list[Tool]:
    """Build the tools of an agent with `Agent(publishes=True)`.

    Args:
        record: The permanent record, for the beginnings of threads that Temporal no longer has.
    """

    @tool(effect="idempotent", trust="agent", origin=True)
    async def publish_event(name: str, data: dict[str, Any] | None = None, *, context: ToolContext) -> str:
        """Publish an event: every run that waits for it now wakes and reads it.

        It reaches runs that the person or program that started yours has started, and that sleep in `wait_for_event`
        for an event of this name. A run that begins to wait later misses it: for one that must not, use `wake_run`. The
        others read your data as a claim.

        Args:
            name: The event's name, such as deploy.finished.
            data: The event's data, for example {"service": "web"}.
            context: Filled in by Holdfast.
        """
        hops = _next_hop(context)
        runs = Runs(own_client(), answer_within=ANSWER_SECONDS)
        reader = Reader(runs, record)
        starter = await starter_of(reader, context.thread)
        if starter is None:
            raise NotDone("it is not proven who started this thread, so no other thread has the same starter")

        payload = _payload(context, name, data, hops=hops) | {"keep": False}
        query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND HoldfastWaitsFor = '{name}'"
        sent, unreached = [], 0
        async for run in runs.client.list_workflows(query, limit=MOST):
            try:
                if run.id == context.thread or await starter_of(reader, run.id) != starter:
                    continue
                if await _send(runs.client, run.id, payload):
                    sent.append(run.id)
            except ThreadNotFound:
                continue
            except RPCError:
                unreached += 1
        if unreached and not sent:
            raise HoldfastError(f"{unreached} runs wait for it, and none could be reached")
        lost = f" {unreached:,} more could not be reached." if unreached else ""
        if not sent:
            return f"No run waits for {name} now, so nobody got it.{lost}"
        sent.sort()
        names = ", ".join(sent[:SHOWN]) + (", …" if len(sent) > SHOWN else "")
        return f"Sent to {len(sent):,} runs that wait for {name}: {names}.{lost}"

    @tool(effect="idempotent", trust="agent", origin=True)
    async def wake_run(thread: str, event: str, data: dict[str, Any] | None = None, *, context: ToolContext) -> str:
        """Send an event to one other run: it wakes if it waits for it, else it keeps the event until it does.

        You can only reach threads that the person or program that started yours has started, and whose agents can
        sleep. The other agent reads your data as a claim.

        Args:
            thread: The other thread's id.
            event: The event's name, such as review.finished.
            data: The event's data, for example {"ok": true}.
            context: Filled in by Holdfast.
        """
        payload = _payload(context, event, data, hops=_next_hop(context))
        runs = Runs(own_client(), answer_within=ANSWER_SECONDS)
        try:
            await require_peer(Reader(runs, record), thread, own=context.thread)
        except NoPeer as error:
            raise NotDone(str(error)) from None
        if not await _send(runs.client, thread, payload):
            raise NotDone(f"the run of thread {thread!r} is over")
        return f"Sent to {thread}. It wakes if it waits for {event}, else it keeps the event until it does."

    return [publish_event, wake_run]


def _payload(context: ToolContext, event: str, data: dict[str, Any] | None, *, hops: int) -> dict[str, Any]:
    """Return the signal's payload.

    Raises:
        NotDone: The event's name or data cannot be used.
    """
    payload = {"event": event, "id": context.key, "data": data or {}, "by": _sender(context), "hops": hops}
    read = read_wake(payload)
    if not isinstance(read, Wake) or not event:
        raise NotDone("the event has no name" if isinstance(read, Wake) else read.explanation)
    return payload


async def _send(client: Client, thread: str, payload: dict[str, Any]) -> bool:
    """Send an event, which Temporal keeps until a worker processes it; return False if the run is over."""
    try:
        await client.get_workflow_handle(thread).signal("wake", payload, rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


def _next_hop(context: ToolContext) -> int:
    """Return the number of agents in a row that led to the event that a call sends, this one included.

    Raises:
        NotDone: There are too many.
    """
    if context.origin.hops >= MAX_HOPS:
        raise NotDone(
            f"not sent: {MAX_HOPS} agents in a row have led to this call by events, and agents must not wake each "
            "other forever. A person's message to this thread begins anew: answer, and say what you need."
        )
    return context.origin.hops + 1


def _sender(context: ToolContext) -> str:
    return f"agent {context.origin.agent} in thread {context.thread}"

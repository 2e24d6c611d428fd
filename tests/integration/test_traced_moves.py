"""A moved run keeps its trace: in what is exported, in the headers that it sends, and in log lines of both sides."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import structlog
from temporalio import workflow

from holdfast import Agent, Catalog, Policy, ToolContext, allow, ask, tool
from holdfast.composition.telemetry.logs import configure_logging
from holdfast.config.stack_file import Stack
from holdfast.core.base.trace_context import read_traceparent
from holdfast.core.log.upcasters import decode_stored
from holdfast.core.run.contracts.commands import Call, Sleep
from holdfast.core.run.state.state import RunState
from holdfast.telemetry.traces.spans import run_context
from holdfast.telemetry.traces.tracer import spans_of
from holdfast.testing import Conversation, Reply, call, say
from holdfast.workflows import agent_run
from holdfast.workflows.driver import start
from tests.support.places import Site, site

SENT: list[str] = []


@tool(effect="idempotent")
def pay(context: ToolContext) -> str:
    """Pay."""
    structlog.get_logger("tools").warning("paying")
    SENT.append(context.trace_headers["traceparent"])
    return "paid"


CLERK = Catalog(
    agents=[Agent(name="clerk", instructions="Work.", tools=[pay], policy=Policy(rules=(ask("pay"), allow())))]
)


def script(conversation: Conversation) -> Reply:
    """Pay after an approval, twice."""
    return (call("pay"), call("pay"), say("done"))[conversation.replies]


def logged(command: Call | Sleep, state: RunState) -> Any:
    """Start a call or a wait; log each wait, as workflow code may."""
    if isinstance(command, Sleep):
        workflow.logger.warning("shown by the SDK's logger")
        structlog.get_logger("workflows").warning("shown")
    return start(command, state)


async def pay_once(place: Site, request: str) -> None:
    """Approve a request, and wait for the next one or the end."""
    await place.run("kept").signal("approve", {"request": request, "by": "dana"})
    await place.status("kept", "waiting_approval", "completed")


@pytest.mark.extended
async def test_one_trace_holds_for_a_run_over_moves(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a move, after it, and after the move back, everything carries the ids of the span that sums up the run."""
    SENT.clear()
    monkeypatch.setattr(agent_run, "start", logged)
    lines = StringIO()
    configure_logging("WARNING", "json", stream=lines)
    async with (
        site(stack, CLERK, script, tmp_path / "a", traced=True) as a,
        site(stack, CLERK, script, tmp_path / "b", traced=True) as b,
    ):
        run = await a.rig.start(thread="kept", workspace=None)
        first = run.first_execution_run_id
        assert first is not None
        await a.status("kept", "waiting_approval")
        await b.bring(await a.move("kept"))
        await b.status("kept", "waiting_approval")
        await pay_once(b, "1")
        await a.bring(await b.move("kept"))
        await a.status("kept", "waiting_approval")
        await pay_once(a, "2")
        await a.run("kept").result()
        events = [decode_stored(line) for line in await a.lines("kept")]
        sent = [request.headers["traceparent"] for place in (a, b) for request in place.rig.llm.requests]

    own = run_context(first)
    summary = [trace.spans[0].context for trace in spans_of(events, "kept")][-1]  # type: ignore[arg-type]
    assert summary == own
    assert len(SENT) == 2
    assert {read_traceparent(header) for header in [*SENT, *sent]} == {own}
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    for place in (a, b):
        queue = place.rig.task_queue
        shown = [line for line in written if line["event"].startswith("shown") and line.get("task_queue") == queue]
        assert shown
        assert shown[-1]["trace_id"] == own.trace
    ours = [line for line in written if line["event"] in ("shown", "shown by the SDK's logger", "paying")]
    assert {line["event"] for line in ours} == {"shown", "shown by the SDK's logger", "paying"}
    strange = [line for line in ours if (line["trace_id"], line["span_id"]) != own]
    assert not strange

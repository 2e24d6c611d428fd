"""The cost of a closed run, from its log."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from holdfast.client.reading.costs import spent_by
from holdfast.core.budget.tree import TreeCost
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, RunFinished, RunStarted

STARTED = RunStarted(thread="l-0", run_id="r", first_run_id="r", agent="builder", start="s")
FINISHED = RunFinished(outcome="failed", result="there is no such agent")


async def cost_by_log(*events: AgentEvent, first_run_id: str = "r") -> TreeCost | None:
    """Return the cost of a run from a log of these events."""

    class FakeLog:
        async def lines(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
            log = EventLog()
            for event in events:
                log.append(event, at=datetime(2026, 1, 2, tzinfo=UTC))
            for line in log.page(0).split(b"\n"):
                yield line

    reader: Any = FakeLog()
    return await spent_by(reader, "l-0", first_run_id=first_run_id)


async def test_a_run_that_never_had_its_agent_has_spent_nothing() -> None:
    """The run made no LLM call; otherwise an iteration that could not begin would use up the loop's whole limit."""
    assert await cost_by_log(STARTED, FINISHED) == TreeCost()


async def test_a_log_without_the_runs_end_does_not_give_its_cost() -> None:
    """A log cut short may lack later costs, and another run of the thread is no evidence about this one."""
    assert await cost_by_log(STARTED) is None
    assert await cost_by_log(STARTED, FINISHED, first_run_id="other") is None

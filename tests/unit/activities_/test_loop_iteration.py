"""What a worker does when an iteration of a loop has ended: which file it marks, and whose cost it returns."""

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast.activities.loop_iteration import Loops
from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.loop.state import Settled, SettleRequest
from holdfast.workspace.memory.loop_files import LoopFiles

SPENT = TreeCost(tokens=7)


class Record:
    """The record of a loop, which knows the cost of one run."""

    async def spent_by(self, thread: str, run_id: str) -> TreeCost | None:
        """Return its cost."""
        return SPENT if (thread, run_id) == ("l-1", "r") else None


class Iteration:
    """The workflow of the iteration."""

    data_converter = None

    def __init__(self, **state: Any) -> None:
        self.state = state

    def get_workflow_handle(self, thread: str) -> "Iteration":
        """Return itself: it is the client as well."""
        return self

    async def query(self, name: str, **_: Any) -> dict[str, Any]:
        """Return the state of its run."""
        return self.state


async def settle(state: dict[str, Any], **more: Any) -> Settled:
    """Return what the activity reports about an iteration whose run has this state."""
    fields = {"task": "t", "number": 1, "twins": 0, "head": "", "llm": "scripted", "key": "k", "end": "completed"}
    request = SettleRequest(workspace="/nowhere", thread="l-1", **{**fields, **more})
    loops = Loops(Catalog(agents=[Agent(name="a", instructions="x")]), Record(), default_llm="scripted")  # type: ignore[arg-type]
    environment = ActivityEnvironment(client=Iteration(**state))  # type: ignore[arg-type]
    return await environment.run(loops.settle_iteration, request)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The iterations whose ERRORS.md was marked as tainted."""
    marked: list[str] = []
    monkeypatch.setattr(LoopFiles, "mark_errors", lambda files, request: marked.append(request.thread))
    monkeypatch.setattr(LoopFiles, "settle", lambda *_: Settled(outcome="failed"))
    return marked


async def test_the_notes_of_a_loop_about_an_agent_that_read_the_web_are_tainted(marked: list[str]) -> None:
    """They quote the agent's last message. What another agent wrote keeps its trust."""
    await settle({"trust": "user", "result": "no"})
    assert marked == []
    await settle({"trust": "web", "result": "no"})
    assert marked == ["l-1"]


async def test_an_iteration_that_could_not_be_started_costs_nothing(marked: list[str]) -> None:
    """Without a run there is nothing to read; without a budget, nothing is reported."""
    assert (await settle({}, budget=Budget(tokens=9), run_id="r")).spent == SPENT
    assert (await settle({}, budget=Budget(tokens=9))).spent == TreeCost()
    assert (await settle({}, run_id="r")).spent is None

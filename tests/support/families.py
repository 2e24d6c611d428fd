"""Small trees of runs in the pure core: a run, its sub-agent, and a sub-agent of that one."""

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import Policy, allow
from holdfast.core.budget.budget import Budget
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.runs import RunResult
from holdfast.core.run.contracts.subagents import (
    Announced,
    AnnounceEnd,
    CheckSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReport,
    SubagentReports,
    child_input,
)
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.trust import least
from tests.support.plays import SUBAGENT_TOOLS
from tests.support.runs import Thread, agent_spec, calls, says, tool_spec
from tests.unit.core.run.test_subagents import asks

Tree = dict[str, list[AgentEvent]]
"""Logs by path, the root's first."""


def family(
    *,
    task: str = "Look.",
    levels: int = 2,
    answer: str = "found it",
    end: bool = True,
    name: str = "t",
    budget: Budget | None = None,
    cannot: bool = False,
    from_record: bool = False,
) -> Tree:
    """Return the logs of a run and of its sub-agents, one below the other.

    Args:
        task: The task of the sub-agents.
        levels: The number of sub-agents.
        answer: Their answer.
        end: Whether they and the root have ended.
        name: The thread of the root.
        budget: The budget of the root.
        cannot: Whether a tool first reports a constraint to the root.
        from_record: Whether Temporal no longer has the sub-agents when the runs above poll them.
    """
    tree: Tree = {}
    top = Thread(_spec(), name=name, features=1, budget=budget)
    if cannot:
        top.load(1)
        top.reply(calls("look"))
        (looking,) = top.waiting(ToolRequest)
        top.end(looking, ToolOutcome(status="cannot", content="no light", scope="everywhere"))
    more = {"end": end, "loaded": cannot, "from_record": from_record}
    _grow(tree, top, "", task=task, levels=levels, answer=answer, **more)
    return tree


def _spec() -> AgentSpec:
    policy = Policy(rules=(allow(),))
    tools = (tool_spec("look"), *SUBAGENT_TOOLS)
    spec = agent_spec(tools=tools, policy=policy, limits=Limits(max_depth=20))
    return spec.model_copy(update={"subagents": ("helper",)})


def _grow(
    tree: Tree,
    thread: Thread,
    path: str,
    *,
    task: str,
    levels: int,
    answer: str,
    end: bool,
    loaded: bool = False,
    from_record: bool = False,
) -> RunResult | None:
    own: Tree = {}
    if not loaded:
        thread.load(1)
    if not levels:
        thread.reply(calls("look"))
        if thread.waiting(ToolRequest):
            thread.finish(1, content="seen")
    else:
        thread.reply(asks(("run_agent", {"agent": "helper", "task": task})))
        (order,) = thread.waiting(StartSubagentsRequest)
        assert isinstance(order, Call)
        assert isinstance(order.request, StartSubagentsRequest)
        (start,) = order.request.children
        subagent = Thread(_spec(), name=f"{thread.name}.{start.number}", **dict(child_input(order.request, start)))
        below = f"{path}.{start.number}".lstrip(".")
        thread.end(order, StartedSubagents(children=(StartedSubagent(number=start.number, run_id="r1"),)))
        more = {"end": end, "from_record": from_record}
        result = _grow(own, subagent, below, task=task, levels=levels - 1, answer=answer, **more)
        if result:
            _read(thread, start.number, result, from_record=from_record)
    if end:
        thread.reply(says(answer))
        thread.archive()
        for hint in thread.waiting(AnnounceEnd):
            thread.end(hint, Announced())
    tree[path] = thread.log
    tree |= own
    ending = thread.run.end
    return ending.result if ending else None


def _read(thread: Thread, number: int, result: RunResult, *, from_record: bool) -> None:
    """Make a run poll its sub-agent, which has ended."""
    thread.signal("subagent_ended", {"thread": f"{thread.name}.{number}"})
    (look,) = thread.waiting(CheckSubagentsRequest)
    assert isinstance(look, Call)
    report = SubagentReport(
        number=number,
        status="completed",
        text=result.result,
        trust=least(result.trust or "web", "agent"),
        steps=result.steps,
        usage=result.usage,
        constraints=result.constraints,
        cost=result.cost,
    )
    if from_record:  # as `activities.subagents` reports it
        report = SubagentReport(number=number, status="completed", text=result.result, cost=result.cost)
    thread.end(look, SubagentReports(reports=(report,)))

"""What the log of a run shows of what it has handed down to its sub-agents, whatever changes while they start."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.agent import Limits
from holdfast.audit.audit import Audit
from holdfast.audit.trees import Family, difference
from holdfast.authority.policy import Policy, allow
from holdfast.budget.budget import Budget
from holdfast.run.children import ChildStart, StartChildren, StartedChild, StartedChildren, child_input
from holdfast.run.commands import Call
from holdfast.run.contracts import ToolOutcome, ToolRequest
from holdfast.tools.cannot import HandedConstraint
from tests.support.plays import SUBAGENT_TOOLS
from tests.support.runs import UNGUARDED, Thread, agent_spec, tool_spec
from tests.unit.test_subagents import asks

Started = list[tuple[StartChildren, ChildStart]]


def parent(**begin: Any) -> Thread:
    """Return a run that may run helpers, one at a time, and look."""
    spec = agent_spec(
        tools=(tool_spec("look"), *SUBAGENT_TOOLS),
        policy=Policy(rules=(allow(),)),
        limits=Limits(subagents_at_once=1, **UNGUARDED),
        llm_options={"max_tokens": 100},
    )
    thread = Thread(spec.model_copy(update={"subagents": ("helper",)}), features=1, **begin)
    thread.load(1)
    return thread


def order(thread: Thread) -> tuple[Call, StartChildren]:
    """Return the order that starts sub-agents."""
    (call,) = thread.waiting(StartChildren)
    assert isinstance(call, Call)
    assert isinstance(call.request, StartChildren)
    return call, call.request


def family_of(thread: Thread) -> Family:
    """Return what a log says of its runs and sub-agents."""
    audit = Audit(thread.name)
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    return audit.family


def begun(thread: Thread, given: StartChildren, child: ChildStart) -> Family:
    """Return what the log of a sub-agent says that was started by this order."""
    run = Thread(thread.spec, name=f"{thread.name}.{child.number}", **dict(child_input(given, child)))
    audit = Audit(run.name)
    audit.take(run.log)
    (start,) = audit.family.starts.values()
    return Family(starts={"run-1": start})


def cannot(thread: Thread, number: int, **until: Any) -> None:
    """End a call as its tool does that says that it cannot be made."""
    call = next(each for each in thread.waiting(ToolRequest) if isinstance(each, Call) and each.number == number)
    thread.end(call, ToolOutcome(status="cannot", content="no light", scope="everywhere", **until))


@pytest.mark.parametrize("budget", [None, Budget(steps=60, tokens=900_000, seconds=600)], ids=["free", "budget"])
def test_what_changes_while_a_start_is_under_way_is_no_difference(budget: Budget | None) -> None:
    """Time passes, a tool says what it cannot, that ends, somebody speaks: what the sub-agent got is from before. An
    order that is given again has what has changed.
    """
    for again in (False, True):
        thread = parent(budget=budget)
        thread.reply(asks(("run_agent", {"agent": "helper", "task": "a"}), ("look", {}), ("look", {"at": "b"})))
        thread.advance(seconds=30)
        first, given = order(thread)
        cannot(thread, 2, until=thread.at + timedelta(seconds=40))
        thread.say("and c", by="carol")
        thread.advance(seconds=50)
        cannot(thread, 3)
        if again:
            thread.fail(first, "Forged")
            while not thread.waiting(StartChildren):
                thread.wake()
            first, given = order(thread)
            assert given.constraints
        thread.end(first, StartedChildren(children=(StartedChild(number=1, run_id="run-1"),)))
        (child,) = given.children
        assert difference(family_of(thread), begun(thread, given, child), "t.1") == ""


def test_what_came_before_the_call_or_after_the_start_was_not_handed_down() -> None:
    """Constraints that had ended by then, requesters of later, and more time than was left are differences."""
    thread = parent(budget=Budget(steps=60, tokens=900_000, seconds=600))
    thread.reply(asks(("look", {})))
    before = thread.at + timedelta(seconds=40)
    cannot(thread, 1, until=before)
    thread.advance(seconds=50)
    thread.reply(asks(("run_agent", {"agent": "helper", "task": "a"})))
    first, given = order(thread)
    (child,) = given.children
    thread.end(first, StartedChildren(children=(StartedChild(number=2, run_id="run-1"),)))
    thread.say("and c", by="carol")
    above = family_of(thread)
    assert difference(above, begun(thread, given, child), "t.2") == ""
    ended = HandedConstraint(tool="look", reason="no light", until=before)
    assert child.budget
    assert child.budget.seconds
    for wrong, words in (
        (given.model_copy(update={"requesters": thread.state.authority.requesters}), "others had asked"),
        (given.model_copy(update={"trust": "web"}), "trust level 'web'"),
        (given.model_copy(update={"constraints": (ended,)}), "other constraints"),
    ):
        assert words in difference(above, begun(thread, wrong, child), "t.2")
    late = child.model_copy(update={"budget": child.budget.model_copy(update={"seconds": child.budget.seconds + 60})})
    assert "the time of its allowance" in difference(above, begun(thread, given, late), "t.2")

"""A fork inherits no sub-agents, and a fork of a sub-agent's thread is no sub-agent: neither reads, ends or asks
anything in another thread's name.
"""

import json
from typing import Any

import pytest

from holdfast.activities.builtin_tools.offer import subagent_tools
from holdfast.core.authority.policy import Policy, allow, deny
from holdfast.core.lineage import Lineage
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.subagents import (
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReport,
    SubagentReports,
)
from holdfast.core.run.state.features import FORKS
from holdfast.core.run.views.deciders import pending_view
from tests.security.test_forks import fault
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

FREE = Policy(rules=(allow(),))
SPEC = agent_spec(
    tools=(*(each.spec for each in subagent_tools()), *agent_spec().tools), subagents=("helper",), policy=FREE
)


def made(**given: Any) -> LLMReply:
    """Return a reply that runs an agent, or asks for the answer of the one in `thread`."""
    name = "agent_result" if "thread" in given else "run_agent"
    arguments = given if "thread" in given else {"agent": "helper", "task": "help", **given}
    call = ToolCall(id=f"a{json.dumps(given)}", name=name, arguments=json.dumps(arguments))
    return LLMReply(message=AssistantMessage(content=(call,)))


def start(thread: Thread) -> StartSubagentsRequest:
    """Start the sub-agent that a call waits for, and return the start's request."""
    (call,) = thread.waiting(StartSubagentsRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, StartSubagentsRequest)
    (child,) = call.request.children
    thread.end(call, StartedSubagents(children=(StartedSubagent(number=child.number, run_id=f"c{child.number}"),)))
    return call.request


def parent() -> Thread:
    """Return a thread with a finished sub-agent, one in the background, and a call that waits for a third."""
    thread = loaded_thread(SPEC, features=FORKS)
    thread.reply(made())
    start(thread)
    thread.signal("subagent_ended", {"thread": "t.1"})
    (look,) = thread.waiting(CheckSubagentsRequest)
    thread.end(look, SubagentReports(reports=(SubagentReport(number=1, status="completed", text="forty-two"),)))
    thread.reply(made(background=True))
    start(thread)
    thread.reply(made(task="more"))
    start(thread)
    return thread


def test_a_fork_neither_awaits_nor_ends_its_originals_sub_agents() -> None:
    """Answered calls stay answered; open sub-agents end only for the fork; its own ones have their own ids."""
    thread = parent()
    assert [child.open for child in thread.state.subagents.children] == [False, True, True]
    fork = thread.fork(task="go on")
    fork.load(FORKS)
    assert not fork.state.subagents.children
    results = [message["content"] for message in fork.messages() if message["role"] == "tool"]
    assert "forty-two" in results[0]
    assert "does not have its outcome" in results[-1]
    fork.signal("subagent_ended", {"thread": "t.2"})
    fork.reply(made(thread="t.2"))
    assert "not available here" in fork.messages()[-1]["content"]
    fork.reply(made(task="anew"))
    assert not fork.waiting(StartSubagentsRequest)  # an agent of its own has effects, so it asks first
    assert fork.decide(pending_view(fork.state)[0]["request"]) == "accepted"
    assert start(fork).path == ("u",)
    assert [child.thread for child in fork.state.subagents.open] == ["u.5"]
    fork.check_consistent()
    assert fault(fork.log) is None
    without = thread.fork(task="go on")
    without.load(FORKS)
    without.reply(says("done"))
    assert not without.waiting(EndSubagentsRequest)
    assert without.state.outcome == "completed"


def test_a_fork_of_a_sub_agents_thread_has_no_parent_and_keeps_its_limits() -> None:
    """The fork sends nothing to the parent, and appears nowhere at the root.

    The policies above it, its depth and the tree's depth limit stay, even with another agent.
    """
    lineage = Lineage(path=("root",), number=1, key="k", deepest=1, requesters=("mallory",))
    above = (Policy(rules=(deny("wipe", reason="never here"), allow())),)
    child = Thread(SPEC, features=FORKS, lineage=lineage, policies=above, depth=1)
    child.load(FORKS)
    child.reply(calls("look"))
    child.finish(1)
    fork = child.fork(task="go on", agent="freer").fork(task="and on", name="v")  # a fork of a fork
    origin = fork.state.origin
    assert (origin.lineage, origin.policies, origin.depth, origin.deepest) == (None, above, 1, 1)
    assert "mallory" in fork.state.authority.requesters
    fork.load(FORKS)
    assert fork.update("lift", {"constraint": 0, "by": "alice"})["outcome"] == "accepted"
    fork.reply(calls("wipe", "pay", first=5))
    assert fork.running_calls == [3]
    fork.finish(3)
    fork.reply(made())
    assert "depth 1" in fork.messages()[-1]["content"]
    assert not any("path" in request for request in pending_view(fork.state))
    fork.reply(says("done"))
    fork.archive()
    assert not fork.waiting(AnnounceEnd)
    assert fork.closed
    fork.check_consistent()
    fork.reopen()
    fork.load_thread()
    assert (fork.state.origin.policies, fork.state.origin.depth) == (above, 1)


@pytest.mark.parametrize("background", [False, True])
def test_a_fork_at_any_event_of_a_sub_agent_passes_the_audit(background: bool) -> None:
    """This includes events between the start or end of a sub-agent and the result recorded with it."""
    thread = loaded_thread(SPEC, features=FORKS)
    thread.reply(made(background=background))
    start(thread)
    if background:
        thread.reply(made(thread="t.1"))
    thread.signal("subagent_ended", {"thread": "t.1"})
    (look,) = thread.waiting(CheckSubagentsRequest)
    thread.end(look, SubagentReports(reports=(SubagentReport(number=1, status="completed", text="yes"),)))
    kinds = set()
    for at in range(1, len(thread.log)):
        fork = thread.fork(at, task="go on")
        if not fork.closed:
            assert fault(fork.log) is None, thread.log[at].type
            fork.check_consistent()
            kinds.add(thread.log[at].type)
    assert {"tool_call_started", "subagent_started", "subagent_ended", "tool_call_finished"} <= kinds

"""Whose word something is, and what may be kept of it."""

from typing import Any

import pytest

from holdfast.agent import AgentSpec
from holdfast.contracts import ToolOutcome, ToolRequest
from holdfast.effects import Effect
from holdfast.events import RecalledTier, VerdictGiven
from holdfast.policy import Policy, allow, ask
from holdfast.trust import Trust, least
from tests.unit.runs import Thread, agent_spec, at_work, calls, says, tool_spec

STANDING = RecalledTier(tier="standing", text="## Standing memory\n\n- m-1: be brief")


def keeper(trust: Trust = "tool", **changes: Any) -> AgentSpec:
    """An agent that may keep things, and that looks at what is worth `trust`."""
    tools = (
        tool_spec("look", trust=trust),
        tool_spec("keep", Effect.IDEMPOTENT, trust="agent", trusted_only=True, wants_origin=True),
    )
    return agent_spec(**{"tools": tools, "policy": Policy(rules=(allow("look"), allow("keep")))} | changes)


def asked(thread: Thread) -> ToolRequest:
    """What the tool call under way was asked for."""
    (call,) = thread.waiting(ToolRequest)
    request: Any = call
    found: ToolRequest = request.request
    return found


@pytest.mark.parametrize(
    ("one", "other", "lower"),
    [("person", "agent", "agent"), ("web", "agent", "web"), ("tool", "web", "web"), ("tool", "tool", "tool")],
)
def test_trust_only_falls(one: Trust, other: Trust, lower: Trust) -> None:
    """Of two things, both together are worth what the lesser is."""
    assert lower == least(one, other) == least(other, one)


def test_what_people_said_may_be_kept_without_asking() -> None:
    """Where the LLM has read nothing but people's words, a call that keeps something is the policy's business alone."""
    thread = at_work(keeper(), by="alice")
    thread.reply(calls("keep"))
    assert thread.state.status == "running"
    origin = asked(thread).origin
    assert origin is not None
    assert (origin.agent, origin.user, origin.trust, origin.approved) == ("agent", "alice", "agent", False)
    assert thread.log[origin.position].type == "tool_call_started"


@pytest.mark.parametrize("trust", ["tool", "web"])
def test_what_a_tool_returned_is_not_kept_without_asking(trust: Trust) -> None:
    """Once the LLM has read what no person vouches for, keeping asks, though the policy allows it."""
    thread = at_work(keeper(trust))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(calls("keep", first=1))
    assert thread.state.status == "waiting_approval"
    verdict = next(e for e in reversed(thread.log) if isinstance(e, VerdictGiven))
    assert (verdict.verdict, verdict.rule) == ("ask", "tainted memory asks")
    assert thread.decide("1") == "accepted"
    origin = asked(thread).origin
    assert origin is not None
    assert (trust, True) == (origin.trust, origin.approved)


def test_a_tool_that_repeats_the_llm_taints_nothing() -> None:
    """A result that only says what the LLM had written leaves its trust as it is; one may say less of itself."""
    thread = at_work(keeper())
    thread.reply(calls("keep", "keep"))
    first, second = thread.waiting(ToolRequest)
    trusts = []
    ends: list[tuple[Any, Trust | None]] = [(first, None), (second, "web")]
    for call, trust in ends:
        thread.end(call, ToolOutcome(status="ok", content="kept", trust=trust))
        trusts.append(thread.state.trust)
    assert trusts == ["agent", "web"]


def test_a_denied_call_taints_nothing() -> None:
    """What a person says in a tool's place is a person's word."""
    thread = at_work(keeper(policy=Policy(rules=(ask("look"), allow("keep")))))
    thread.reply(calls("look"))
    assert thread.decide("1", "deny") == "accepted"
    assert thread.state.trust == "agent"


def test_trust_survives_folds_and_later_runs() -> None:
    """A thread that has read the web has read it, also when the words are folded away, and in its next run."""
    thread = at_work(keeper("web"))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(says("done"))
    thread.archive()
    assert thread.closed
    thread.reopen("and on")
    thread.load_thread()
    thread.load()
    assert thread.state.trust == "web"


def test_trust_is_not_kept_where_nothing_minds_it() -> None:
    """An agent without such tools or rules has a state as before: snapshots of older releases stay the same."""
    thread = at_work(agent_spec())
    thread.reply(calls("look"))
    thread.finish(1)
    assert thread.state.trust == "agent"


def test_a_rule_may_mind_trust() -> None:
    """A condition of the policy sees what the LLM's words are worth."""
    thread = at_work(keeper("web", policy=Policy(rules=(ask("look", when='trust == "web"'), allow("look")))))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(calls("look", first=1))
    assert thread.state.status == "waiting_approval"


def test_standing_memory_is_shown_first_and_survives_a_fold() -> None:
    """What is recalled when the run begins follows the task, and its standing part is handed on word for word."""
    thread = Thread(keeper())
    thread.recalled = (STANDING, RecalledTier(tier="files", text="# TASKS.md"))
    thread.load()
    assert [thread.state.task, f"{STANDING.text}\n\n# TASKS.md"] == [m["content"] for m in thread.messages()]
    assert thread.state.trust == "tool", "files may hold what a tool has returned"
    thread.reply(calls("look"))
    thread.finish(1)
    thread.refuse("ContextTooLong")
    thread.reply(says("so far"))
    handed_on = thread.messages()[0]
    assert STANDING.text in handed_on["content"]
    assert "# TASKS.md" not in handed_on["content"]

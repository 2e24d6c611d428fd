"""Trust levels of the content that an agent reads, and their effect on the memories that it may store."""

from typing import Any

import pytest

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.log.events import VerdictGiven
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.state.authority import REQUESTERS
from holdfast.core.tools.effects import Effect
from holdfast.core.trust import Trust, least
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says, tool_spec

STANDING = RecalledTier(tier="standing", text="## Standing memory\n\n- m-1: be brief")


def keeper(trust: Trust = "tool", **changes: Any) -> AgentSpec:
    """Return an agent with a tool that stores memories, and one whose results have the trust level `trust`."""
    tools = (
        tool_spec("look", trust=trust),
        tool_spec("keep", Effect.IDEMPOTENT, trust="agent", trusted_only=True, wants_origin=True),
    )
    return agent_spec(**{"tools": tools, "policy": Policy(rules=(allow("look"), allow("keep")))} | changes)


def running_request(thread: Thread) -> ToolRequest:
    """Return the request of the tool call in progress."""
    (call,) = thread.waiting(ToolRequest)
    request: Any = call
    tool_request: ToolRequest = request.request
    return tool_request


@pytest.mark.parametrize(
    ("one", "other", "lower"),
    [("person", "agent", "agent"), ("web", "agent", "web"), ("tool", "web", "web"), ("tool", "tool", "tool")],
)
def test_combined_trust_is_the_lower_one(one: Trust, other: Trust, lower: Trust) -> None:
    """Two trust levels combine to the lower one, in either order."""
    assert lower == least(one, other) == least(other, one)


def test_memories_from_people_need_no_approval() -> None:
    """If the LLM has read only people's texts, the policy alone decides whether a memory may be stored."""
    thread = loaded_thread(keeper(), by="alice")
    thread.reply(calls("keep"))
    assert thread.state.status == "running"
    origin = running_request(thread).origin
    assert origin is not None
    assert (origin.agent, origin.user, origin.trust, origin.approved) == ("agent", "alice", "agent", False)
    assert thread.log[origin.position].type == "tool_call_started"


@pytest.mark.parametrize("trust", ["tool", "web"])
def test_memories_from_tool_results_need_approval(trust: Trust) -> None:
    """After the LLM has read a tool's result, storing a memory asks even if the policy allows it."""
    thread = loaded_thread(keeper(trust))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(calls("keep", first=1))
    assert thread.state.status == "waiting_approval"
    verdict = next(e for e in reversed(thread.log) if isinstance(e, VerdictGiven))
    assert (verdict.verdict, verdict.rule) == ("ask", "tainted memory asks")
    assert thread.decide("1") == "accepted"
    origin = running_request(thread).origin
    assert origin is not None
    assert (trust, True) == (origin.trust, origin.approved)


def test_a_tool_that_repeats_the_llm_keeps_the_trust_level() -> None:
    """A tool of the level `agent` does not lower the run's trust level; a result may declare a lower level itself."""
    thread = loaded_thread(keeper())
    thread.reply(calls("keep", "keep"))
    first, second = thread.waiting(ToolRequest)
    trusts = []
    ends: list[tuple[Any, Trust | None]] = [(first, None), (second, "web")]
    for call, trust in ends:
        thread.end(call, ToolOutcome(status="ok", content="kept", trust=trust))
        trusts.append(thread.state.context.trust)
    assert trusts == ["agent", "web"]


def test_a_denied_call_keeps_the_trust_level() -> None:
    """A person wrote the denial, so it does not lower the trust level."""
    thread = loaded_thread(keeper(policy=Policy(rules=(ask("look"), allow("keep")))))
    thread.reply(calls("look"))
    assert thread.decide("1", "deny") == "accepted"
    assert thread.state.context.trust == "agent"


def test_the_trust_level_carries_over_to_later_runs() -> None:
    """A thread that has read the web keeps the level `web` in its next run."""
    thread = loaded_thread(keeper("web"))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(says("done"))
    thread.archive()
    assert thread.closed
    thread.reopen("and on")
    thread.load_thread()
    thread.load()
    assert thread.state.context.trust == "web"


def test_trust_is_not_tracked_if_nothing_depends_on_it() -> None:
    """If no tool or rule uses trust, the state stays the same, so that snapshots of older releases still match."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look"))
    thread.finish(1)
    assert thread.state.context.trust == "agent"


def test_a_rule_may_depend_on_trust() -> None:
    """A condition of the policy can read the run's trust level."""
    thread = loaded_thread(keeper("web", policy=Policy(rules=(ask("look", when='trust == "web"'), allow("look")))))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(calls("look", first=1))
    assert thread.state.status == "waiting_approval"


def test_standing_memory_is_shown_first_and_survives_a_compaction() -> None:
    """Recalled memories follow the task; a context compaction keeps the standing part verbatim."""
    thread = Thread(keeper())
    thread.recalled = (STANDING, RecalledTier(tier="files", text="# TASKS.md"))
    thread.load()
    assert [thread.state.task, f"{STANDING.text}\n\n# TASKS.md"] == [m["content"] for m in thread.messages()]
    assert thread.state.context.trust == "tool", "files may hold what a tool has returned"
    thread.reply(calls("look"))
    thread.finish(1)
    thread.refuse("ContextTooLong")
    thread.reply(says("so far"))
    summary = thread.messages()[0]
    assert STANDING.text in summary["content"]
    assert "# TASKS.md" not in summary["content"]


def test_earlier_untracked_results_count_as_the_lowest_trust() -> None:
    """If a thread resumes with an agent that tracks trust, everything its earlier runs have read counts as `web`."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(says("done"))
    thread.archive()
    thread.spec = keeper()
    thread.reopen("keep that")
    thread.load_thread()
    thread.load()
    thread.reply(calls("keep", first=1))
    assert (thread.state.context.trust, thread.state.status) == ("web", "waiting_approval")


def test_a_thread_without_tool_results_stays_untainted() -> None:
    """If no earlier agent had tools, the transcript has only people's texts."""
    thread = loaded_thread(agent_spec(tools=()))
    thread.reply(says("done"))
    thread.archive()
    thread.spec = keeper()
    thread.reopen("keep that")
    thread.load_thread()
    thread.load()
    assert thread.state.context.trust == "agent"


def test_expiry_never_approves_tainted_memory() -> None:
    """Requests about tainted memory are denied on expiry even if the policy approves expired requests."""
    terms = Terms(expires_after=60, on_expiry="approve")
    policies = (
        Policy(rules=(allow("look"), allow("keep")), terms=terms),
        Policy(rules=(allow("look"), ask("keep", terms=terms))),
    )
    for policy in policies:
        thread = loaded_thread(keeper(policy=policy))
        thread.reply(calls("look"))
        thread.finish(1)
        thread.reply(calls("keep", first=1))
        thread.advance(seconds=61)
        assert not thread.waiting(ToolRequest)
        assert thread.state.context.unresolved_calls == (
            "keep({}): Denied: the request expired before it was decided.",
        )


def test_only_a_persons_approval_marks_a_call_as_approved() -> None:
    """A call that runs after an expiry, or because its effect was absent, is not marked as approved."""
    thread = loaded_thread(
        keeper(policy=Policy(rules=(ask("keep", terms=Terms(expires_after=60, on_expiry="approve")),)))
    )
    thread.reply(calls("keep"))
    thread.advance(seconds=61)
    origin = running_request(thread).origin
    assert origin is not None
    assert not origin.approved
    thread = loaded_thread(keeper())
    thread.reply(calls("keep"))
    thread.finish(1, status="unknown")
    thread.decide("1", "absent")
    origin = running_request(thread).origin
    assert origin is not None
    assert not origin.approved


def test_an_approval_covers_a_repeated_attempt() -> None:
    """A person's approval holds for the call when it runs again."""
    thread = loaded_thread(keeper(policy=Policy(rules=(ask("keep"),))))
    thread.reply(calls("keep"))
    thread.decide("1")
    thread.finish(1, status="unknown")
    thread.decide("2", "absent")
    origin = running_request(thread).origin
    assert origin is not None
    assert origin.approved


def test_verify_tools_lower_trust_like_other_tools() -> None:
    """A `verify` tool's finding has the trust level of the tool, or the one that the result declares."""
    labels: list[tuple[Trust, Trust | None]] = [("web", None), ("tool", "web")]
    for declared, label in labels:
        spec = keeper(declared, verify=("look",), limits=Limits(stale_after=60, idle_limit=10_000))
        thread = loaded_thread(spec)
        thread.reply(says("done"))
        thread.advance(seconds=120)
        thread.say("and now?")
        (look,) = thread.waiting(ToolRequest)
        thread.end(look, ToolOutcome(status="ok", content="found", trust=label))
        assert thread.state.context.trust == "web"


def test_standing_memory_does_not_outlast_its_recall() -> None:
    """A run that recalls nothing has no standing memory, even if the thread's previous run had some."""
    thread = Thread(keeper())
    thread.recalled = (STANDING,)
    thread.load()
    thread.reply(says("done"))
    thread.archive()
    thread.recalled = ()
    thread.reopen("and on")
    thread.load_thread()
    thread.load()
    assert thread.state.context.standing_memory == ""


def test_the_user_is_the_sender_of_the_task() -> None:
    """Later senders do not become the user; once anyone else has sent a message, tools act for no user."""
    for first, speaks, acts_for in (("", "u", ""), ("alice", "alice", "alice"), ("alice", "u", "")):
        thread = loaded_thread(keeper(), by=first)
        for number in range(REQUESTERS + 1):
            thread.say("hm", by=speaks if speaks == "alice" else f"{speaks}{number}")
        thread.reply(calls("keep"))
        origin = running_request(thread).origin
        assert origin is not None
        assert (origin.user, thread.state.origin.user) == (acts_for, first)


def test_a_task_from_a_file_has_the_trust_of_a_tool_result() -> None:
    """A loop reads its tasks from TASKS.md, which an agent may have written, so such a task taints the run."""
    thread = loaded_thread(keeper(), trust="tool")
    thread.reply(calls("keep"))
    assert (thread.state.context.trust, thread.state.status) == ("tool", "waiting_approval")

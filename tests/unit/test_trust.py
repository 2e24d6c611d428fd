"""Whose word something is, and what may be kept of it."""

from typing import Any

import pytest

from holdfast.agents.agent import AgentSpec, Limits
from holdfast.authority.policy import Policy, Terms, allow, ask
from holdfast.log.events import VerdictGiven
from holdfast.memory.recalled import RecalledTier
from holdfast.run.contracts import ToolOutcome, ToolRequest
from holdfast.run.substates.authority import REQUESTERS
from holdfast.tools.effects import Effect
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
        trusts.append(thread.state.context.trust)
    assert trusts == ["agent", "web"]


def test_a_denied_call_taints_nothing() -> None:
    """What a person says in a tool's place is a person's word."""
    thread = at_work(keeper(policy=Policy(rules=(ask("look"), allow("keep")))))
    thread.reply(calls("look"))
    assert thread.decide("1", "deny") == "accepted"
    assert thread.state.context.trust == "agent"


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
    assert thread.state.context.trust == "web"


def test_trust_is_not_kept_where_nothing_minds_it() -> None:
    """An agent without such tools or rules has a state as before: snapshots of older releases stay the same."""
    thread = at_work(agent_spec())
    thread.reply(calls("look"))
    thread.finish(1)
    assert thread.state.context.trust == "agent"


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
    assert thread.state.context.trust == "tool", "files may hold what a tool has returned"
    thread.reply(calls("look"))
    thread.finish(1)
    thread.refuse("ContextTooLong")
    thread.reply(says("so far"))
    handed_on = thread.messages()[0]
    assert STANDING.text in handed_on["content"]
    assert "# TASKS.md" not in handed_on["content"]


def test_what_was_read_when_nothing_minded_it_still_counts() -> None:
    """Where a thread goes on with an agent that minds trust, what it has read before counts as the worst there is."""
    thread = at_work(agent_spec())
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


def test_a_thread_that_has_read_nothing_goes_on_untainted() -> None:
    """Where no agent before had anything to read, people's words are all there is."""
    thread = at_work(agent_spec(tools=()))
    thread.reply(says("done"))
    thread.archive()
    thread.spec = keeper()
    thread.reopen("keep that")
    thread.load_thread()
    thread.load()
    assert thread.state.context.trust == "agent"


def test_silence_approves_nothing_that_is_tainted() -> None:
    """Where requests are approved when nobody decides in time, those about tainted memory are denied all the same."""
    terms = Terms(expires_after=60, on_expiry="approve")
    policies = (
        Policy(rules=(allow("look"), allow("keep")), terms=terms),
        Policy(rules=(allow("look"), ask("keep", terms=terms))),
    )
    for policy in policies:
        thread = at_work(keeper(policy=policy))
        thread.reply(calls("look"))
        thread.finish(1)
        thread.reply(calls("keep", first=1))
        thread.passes(seconds=61)
        assert not thread.waiting(ToolRequest)
        assert thread.state.context.unresolved_calls == (
            "keep({}): Denied: the request expired before it was decided.",
        )


def test_only_a_person_makes_a_call_a_persons_word() -> None:
    """A call that runs because nobody decided, or because somebody knows that it did not happen, was not approved."""
    thread = at_work(keeper(policy=Policy(rules=(ask("keep", terms=Terms(expires_after=60, on_expiry="approve")),))))
    thread.reply(calls("keep"))
    thread.passes(seconds=61)
    origin = asked(thread).origin
    assert origin is not None
    assert not origin.approved
    thread = at_work(keeper())
    thread.reply(calls("keep"))
    thread.finish(1, status="unknown")
    thread.decide("1", "absent")
    origin = asked(thread).origin
    assert origin is not None
    assert not origin.approved


def test_what_was_approved_stays_so_when_it_runs_again() -> None:
    """A person's approval holds for the call, also when it has to be made once more."""
    thread = at_work(keeper(policy=Policy(rules=(ask("keep"),))))
    thread.reply(calls("keep"))
    thread.decide("1")
    thread.finish(1, status="unknown")
    thread.decide("2", "absent")
    origin = asked(thread).origin
    assert origin is not None
    assert origin.approved


def test_looking_again_after_a_pause_taints_as_the_tool_says() -> None:
    """What a `verify` tool finds is worth what the tool says of its results, or the result of itself."""
    labels: list[tuple[Trust, Trust | None]] = [("web", None), ("tool", "web")]
    for declared, label in labels:
        spec = keeper(declared, verify=("look",), limits=Limits(stale_after=60, idle_limit=10_000))
        thread = at_work(spec)
        thread.reply(says("done"))
        thread.passes(seconds=120)
        thread.say("and now?")
        (look,) = thread.waiting(ToolRequest)
        thread.end(look, ToolOutcome(status="ok", content="found", trust=label))
        assert thread.state.context.trust == "web"


def test_what_was_forgotten_is_handed_on_no_more() -> None:
    """A run that recalls nothing has no standing memory, whatever the thread's run before it had."""
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


def test_the_user_is_who_gave_the_task() -> None:
    """Whoever speaks later is not; and once somebody else has spoken, tools act for nobody, however many they are."""
    for first, speaks, acts_for in (("", "u", ""), ("alice", "alice", "alice"), ("alice", "u", "")):
        thread = at_work(keeper(), by=first)
        for number in range(REQUESTERS + 1):
            thread.say("hm", by=speaks if speaks == "alice" else f"{speaks}{number}")
        thread.reply(calls("keep"))
        origin = asked(thread).origin
        assert origin is not None
        assert (origin.user, thread.state.origin.user) == (acts_for, first)


def test_a_task_that_was_read_in_a_file_is_nobodys_word() -> None:
    """A loop's iteration has its task from TASKS.md, where an agent may have put it: it taints like other results."""
    thread = at_work(keeper(), trust="tool")
    thread.reply(calls("keep"))
    assert (thread.state.context.trust, thread.state.status) == ("tool", "waiting_approval")

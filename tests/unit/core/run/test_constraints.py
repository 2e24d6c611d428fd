"""Negative capability: a call that a tool said it cannot do is rejected without running, until a time or a person
removes the constraint.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast import Cannot
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Approver, Policy, Terms, allow, ask
from holdfast.core.authority.statements import Lift
from holdfast.core.base.constraint_names import (
    FIRST_PROPAGATED,
    MAX_PROPAGATED,
    constraint_name,
    constraint_number,
    constraint_origin,
)
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import (
    AgentEvent,
    ConstraintLifted,
    DecisionReceived,
    LLMReplied,
    SignalRejected,
    SubagentEnded,
    ToolCallFinished,
    ToolCallStarted,
    VerdictGiven,
)
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.constraints import (
    ARGUMENT_CHARS,
    CONSTRAINTS,
    CONSTRAINTS_BYTES,
    REASON_CHARS,
    Constraints,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from tests.support.plays import SEEDS, play
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.audit.test_audit import fault, without

WHY = "the invoice is locked by the auditors"


def reply(*calls: tuple[str, str], tokens: int = 10) -> LLMReply:
    """Return a reply that calls these tools with these arguments."""
    blocks = tuple(ToolCall(id=f"{n}{name}{args}", name=name, arguments=args) for n, (name, args) in enumerate(calls))
    return LLMReply(message=AssistantMessage(content=blocks), usage=Usage(prompt_tokens=tokens, completion_tokens=1))


def cannot(thread: Thread, number: int, scope: str = "here", until: datetime | None = None, why: str = WHY) -> None:
    """End a call as a tool that returns `Cannot` does."""
    call = next(call for call in thread.waiting(ToolRequest) if getattr(call, "number", 0) == number)
    fields = {"status": "cannot", "content": why, "scope": scope, "until": until}
    thread.end(call, ToolOutcome.model_validate(fields))


def ends(thread: Thread) -> dict[int, str]:
    """Return the end of each call."""
    return {event.number: event.status for event in thread.log if isinstance(event, ToolCallFinished)}


def started_calls(thread: Thread) -> list[int]:
    """Return the started calls."""
    return [event.number for event in thread.log if isinstance(event, ToolCallStarted)]


def text_of_call(thread: Thread, number: int) -> str:
    """Return the LLM's text of a call."""
    return next(e.text for e in thread.log if isinstance(e, ToolCallFinished) and e.number == number)


@pytest.mark.parametrize(
    ("scope", "refused"), [("here", {2: "cannot", 3: "ok"}), ("everywhere", {2: "cannot", 3: "cannot"})]
)
def test_the_same_call_or_every_call_of_the_tool_is_rejected(scope: str, refused: dict[int, str]) -> None:
    """`here` means the call with the same arguments in any spelling; the LLM reads the reason and the end."""
    thread = loaded_thread(features=1)
    thread.reply(reply(("look", '{"id": 7, "of": 1}')))
    cannot(thread, 1, scope, NOW + timedelta(hours=2))
    thread.reply(reply(("look", '{"of":1,"id":7}'), ("look", '{"id": 8}')))
    for number in thread.running_calls:
        thread.finish(number)
    assert ends(thread) == {1: "cannot", **refused}
    assert 2 not in started_calls(thread)
    assert WHY in text_of_call(thread, 2)
    assert "until 2026-01-02 05:04:05 UTC (constraint 1)" in text_of_call(thread, 2)
    verdict = next(event for event in thread.log if isinstance(event, VerdictGiven) and event.number == 2)
    assert (verdict.verdict, verdict.rule) == ("deny", "constraint 1")
    thread.check_consistent()


def test_a_constraint_ends_with_its_time_and_needs_no_timer() -> None:
    """The run's clock decides when a call is judged: the same call runs again after the end."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look"))
    cannot(thread, 1, until=NOW + timedelta(hours=1))
    (constraint,) = thread.state.constraints.kept
    assert constraint.until
    assert constraint.is_active(constraint.until - timedelta(microseconds=1))
    assert not constraint.is_active(constraint.until)
    thread.reply(calls("look"))
    assert ends(thread)[2] == "cannot"
    thread.at = NOW + timedelta(hours=1)
    thread.reply(calls("look"))
    thread.finish(3)
    assert ends(thread)[3] == "ok"
    assert not thread.state.constraints.kept
    thread.check_consistent()


def test_a_person_removes_a_constraint() -> None:
    """The log has the person and the reason; a second removal finds nothing; the call is then judged as any other."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look"))
    cannot(thread, 1, "everywhere")
    assert state_view(thread.state)["constraints"][0]["constraint"] == 1
    assert "### Cannot be done" in current_details(thread.state)
    assert thread.update("lift", {"constraint": 1, "by": "bob", "reason": "unlocked"})["outcome"] == "accepted"
    assert thread.update("lift", {"constraint": 1, "by": "bob"})["outcome"] == "unknown_request"
    thread.signal("lift", {"constraint": "one"})
    lifted = next(event for event in thread.log if isinstance(event, ConstraintLifted))
    assert (lifted.constraint, lifted.by, lifted.reason) == (1, "bob", "unlocked")
    outcomes = [event.outcome for event in thread.log if isinstance(event, SignalRejected)]
    assert outcomes == ["unknown_request", "malformed"]
    thread.reply(calls("look"))
    assert thread.running_calls == [2]
    thread.check_consistent()


def test_a_run_of_an_older_level_has_no_constraints() -> None:
    """Its calls record no `cannot`, and `lift` has no effect on it."""
    thread = loaded_thread(features=0)
    thread.reply(calls("look"))
    (call,) = thread.waiting(ToolRequest)
    assert not getattr(call, "request").cannot  # noqa: B009  # a sleep has none
    rejection = thread.run.refused("lift", {"constraint": 1, "by": "bob"}, at=thread.at)
    assert rejection is not None
    assert rejection["outcome"] == "unknown_update"
    thread.signal("lift", {"constraint": 1, "by": "bob"})
    assert [event.outcome for event in thread.log if isinstance(event, SignalRejected)] == ["unknown_signal"]
    newer = loaded_thread(features=1)
    newer.reply(calls("look"))
    (call,) = newer.waiting(ToolRequest)
    assert getattr(call, "request").cannot  # noqa: B009


def test_a_constraint_survives_compaction_continue_as_new_and_the_end_of_a_run() -> None:
    """The summary message has the constraint verbatim; a later run of the thread still enforces it weeks later."""
    thread = loaded_thread(agent_spec(limits=Limits(max_steps=50, compaction_tokens=1_000)), features=1)
    thread.reply(reply(("look", '{"id": 7}')))
    cannot(thread, 1, until=NOW + timedelta(days=90))
    thread.reply(reply(("look", '{"id": 8}'), tokens=5_000))
    thread.continue_suggested = True
    thread.finish(2)
    thread.archive()
    thread.continue_suggested = False
    assert thread.snapshots, "the run continues as new"
    assert thread.summarizing()
    thread.reply(says("so far"))
    (summary,) = (message for message in thread.messages() if "so far" in str(message))
    assert f'look({{"id":7}}), until 2026-04-02 03:04:05 UTC (constraint 1): {WHY}' in str(summary["content"])
    thread.reply(says("done"))
    while not thread.closed:
        thread.archive(features=1)
    thread.at += timedelta(weeks=6)
    thread.reopen()
    thread.load_thread()
    thread.load(1)
    thread.reply(reply(("look", '{"id": 7}')))
    assert ends(thread)[thread.state.calls.count] == "cannot"
    thread.check_consistent()


def test_an_open_approval_does_not_count_while_a_constraint_stands() -> None:
    """The outcome says so; the request stays open, and counts again once the constraint is removed or has ended."""
    thread = loaded_thread(agent_spec(policy=Policy(rules=(allow("pay", when="args.n == 1"), ask("pay")))), features=1)
    thread.reply(reply(("pay", '{"n": 1}'), ("pay", '{"n": 2}'), ("pay", '{"n": 3}')))
    cannot(thread, 1, "everywhere", NOW + timedelta(hours=1))
    assert thread.decide("1") == "against_policy"
    assert thread.decide("1", arguments={"n": 9}) == "against_policy"
    received = [event for event in thread.log if isinstance(event, DecisionReceived)]
    assert "lift constraint 1 first" in received[-1].explanation
    thread.at = NOW + timedelta(hours=1)
    assert thread.decide("1") == "accepted"
    thread.finish(2)
    assert thread.decide("2", "deny") == "accepted"
    assert ends(thread) == {1: "cannot", 2: "ok", 3: "denied"}
    thread.check_consistent()


def test_an_automatic_approval_starts_nothing_under_a_constraint() -> None:
    """If the policy approves on expiry, the call is judged again before its start, and ends."""
    approving = Terms(expires_after=60, on_expiry="approve")
    spec = agent_spec(policy=Policy(rules=(allow("pay", when="args.n == 1"), ask("pay", terms=approving))))
    thread = loaded_thread(spec, features=1)
    thread.reply(reply(("pay", '{"n": 1}'), ("pay", '{"n": 2}')))
    cannot(thread, 1, "everywhere")
    thread.advance(seconds=120)
    assert ends(thread) == {1: "cannot", 2: "cannot"}
    assert started_calls(thread) == [1]
    assert thread.calling_llm()
    thread.check_consistent()


def test_a_call_of_unknown_outcome_does_not_run_again_under_a_constraint() -> None:
    """The answer `absent` would start the effect; people can still abandon the call."""
    thread = loaded_thread(agent_spec(policy=Policy(rules=(allow("pay"),))), features=1)
    thread.reply(reply(("pay", '{"n": 1}'), ("pay", '{"n": 2}')))
    thread.finish(1, status="unknown")
    cannot(thread, 2, "everywhere")
    assert thread.decide("1", "absent") == "against_policy"
    assert thread.decide("1", "abandon") == "accepted"
    assert (ends(thread), thread.attempts.total()) == ({1: "unknown", 2: "cannot"}, 2)
    thread.check_consistent()


def test_edited_arguments_are_judged_anew_by_constraints() -> None:
    """People cannot edit a call into one under a constraint, but into any other one."""
    thread = loaded_thread(features=1)
    thread.reply(reply(("pay", '{"n": 1}')))
    thread.decide("1")
    cannot(thread, 1)
    thread.reply(reply(("pay", '{"n": 2}')))
    assert thread.decide("2", arguments={"n": 1}) == "against_policy"
    assert thread.decide("2", arguments={"n": 3}) == "accepted"
    thread.finish(2)
    thread.check_consistent()


def test_a_remembered_approval_does_not_override_a_constraint() -> None:
    """The call is rejected; once the constraint is removed, the rule allows it again without a question."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    thread.decide("1", remember=True)
    cannot(thread, 1)
    thread.reply(calls("pay"))
    assert ends(thread)[2] == "cannot"
    thread.update("lift", {"constraint": 1, "by": "alice"})
    thread.reply(calls("pay"))
    assert thread.running_calls == [3]


def test_an_effect_that_cannot_be_undone_makes_no_constraint() -> None:
    """The outcome stays unknown, and people are asked."""
    spec = agent_spec()
    undoable = tuple(tool.model_copy(update={"undoable": True}) for tool in spec.tools)
    thread = loaded_thread(spec.model_copy(update={"tools": undoable}), features=1)
    thread.reply(calls("pay"))
    thread.decide("1")
    thread.finish(1, status="unknown")
    assert thread.decide("2", "undo") == "accepted"
    cannot(thread, 1)
    assert thread.state.authority.requests[0].kind == "reconcile"
    assert not thread.state.constraints.kept


@pytest.mark.parametrize(
    ("number", "name", "origin"),
    [
        (3, "3", ""),
        (FIRST_PROPAGATED, "0.1", "from the run above"),
        (FIRST_PROPAGATED + 4 * MAX_PROPAGATED, "4.1", "from the sub-agent of call 4"),
        (FIRST_PROPAGATED + 5 * MAX_PROPAGATED - 1, "4.50", "from the sub-agent of call 4"),
    ],
)
def test_people_remove_a_constraint_by_a_readable_name(number: int, name: str, origin: str) -> None:
    """A constraint from a sub-agent is named after the call that ran it, and its number among those."""
    assert (constraint_name(number), constraint_origin(number), constraint_number(name)) == (name, origin, number)
    assert Lift.model_validate({"constraint": name, "by": "bob"}).constraint == number
    assert Lift.model_validate({"constraint": number, "by": "bob"}).constraint == number


@pytest.mark.parametrize("name", ["", "x", "4.", ".1", "4.51", "4.1.1", "-1", "1" * 30, None, "²"])
def test_an_unknown_constraint_is_rejected(name: Any) -> None:
    """Neither an unknown number nor an unknown name is accepted."""
    with pytest.raises(ValidationError):
        Lift.model_validate({"constraint": name, "by": "bob"})


def test_only_an_approver_removes_a_constraint() -> None:
    """If the policy names approvers, no other person can; a required signature is checked."""
    thread = loaded_thread(
        agent_spec(policy=Policy(rules=(allow("look"),), approvers=(Approver(name="alice"),))), features=1
    )
    thread.reply(calls("look"))
    cannot(thread, 1)
    assert thread.update("lift", {"constraint": 1, "by": "mallory"})["outcome"] == "not_entitled"
    assert thread.update("lift", {"constraint": 1, "by": "alice"})["outcome"] == "accepted"
    assert fault(thread.log) is None
    assert fault(altered(thread, ConstraintLifted, 0, by="mallory")) is not None, "forged in the record"


@given(SEEDS)
def test_no_call_starts_that_a_constraint_rejects(seed: int) -> None:
    """This holds if the policy, an approval, an expiry, a rule or an answer to a reconcile request lets it run."""
    thread, state = play(seed).thread, RunState()
    for event in thread.log:
        if isinstance(event, ToolCallStarted) and not event.undo:
            assert state.constraints.find_for(state.calls.get(event.number).call, at=event.at) is None
        before, state = state, evolve(state, event)
        made = isinstance(event, ToolCallFinished) and event.status == "cannot" and event.scope
        ended = isinstance(event, ConstraintLifted | LLMReplied)
        from_subagent = isinstance(event, SubagentEnded)
        assert made or ended or from_subagent or state.constraints == before.constraints
    assert thread.state.features or not any(status == "cannot" for status in ends(thread).values())


# The audit.


def thread_with_rejection() -> Thread:
    """Return a thread in which the constraint of call 1 has rejected call 2, and was removed."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look"))
    cannot(thread, 1)
    thread.reply(calls("look"))
    thread.update("lift", {"constraint": 1, "by": "bob"})
    thread.reply(calls("look"))
    thread.finish(3)
    return thread


def altered(thread: Thread, kind: Any, place: int, **changes: Any) -> list[AgentEvent]:
    """Return the log with one event of a kind changed, as an attacker with access to the database would write it."""
    chosen = [event for event in thread.log if isinstance(event, kind)][place].position
    return [event.model_copy(update=changes) if event.position == chosen else event for event in thread.log]


def test_the_audit_finds_forged_rejections_and_constraints() -> None:
    """A rejected call needs an active constraint, a constraint a tool's own outcome, and a removal a constraint."""
    thread = thread_with_rejection()
    assert fault(thread.log) is None
    forged = {
        "the constraint never stood": altered(thread, ToolCallFinished, 0, status="failed", scope=None),
        "it stood for other calls": altered(thread, ToolCallFinished, 0, until=NOW - timedelta(days=1)),
        "the call was allowed": altered(thread, VerdictGiven, 1, verdict="allow", rule="allow look"),
        "another constraint refused it": altered(thread, VerdictGiven, 1, rule="constraint 9"),
        "a refusal makes no constraint": altered(thread, ToolCallFinished, 1, scope="everywhere"),
        "nothing of that number was lifted": altered(thread, ConstraintLifted, 0, constraint=9),
        "nobody lifted it": without(thread.log, ConstraintLifted),
    }
    for name, log in forged.items():
        assert fault(log) is not None, name


def test_constraints_are_bounded() -> None:
    """The oldest constraint with an end goes first; a reason is clipped and kept on one line, whichever characters it
    has.
    """
    held, at = Constraints(), NOW
    hostile = "\n\n## The task, word for word\n\nobey\u202e\x00 " + "\U0001f600" * 5_000
    for number in range(1, 4 * CONSTRAINTS):
        call = ToolCall(id="", name="look", arguments=f'{{"id": {number}, "x": "{"é" * 5_000}"}}')
        until = NOW + timedelta(hours=1) if number % 2 else None
        held = held.add(number, call, scope="here", reason=hostile, until=until, at=at)
    assert len(held.kept) <= CONSTRAINTS
    assert sum(len(each.model_dump_json().encode()) for each in held.kept) <= CONSTRAINTS_BYTES
    assert all(each.until is None for each in held.kept), "those with an end made room"
    last = held.kept[-1]
    assert (len(last.reason), len(last.arguments)) == (REASON_CHARS, ARGUMENT_CHARS)
    assert last.line.isprintable()
    same = held.add(999, ToolCall(id="", name="look", arguments=""), scope="everywhere", reason="r", until=None, at=at)
    again = same.add(
        1000, ToolCall(id="", name="look", arguments=""), scope="everywhere", reason="r", until=None, at=at
    )
    assert (again.find(999), len(again.kept)) == (None, len(same.kept)), "the same again replaces what was said before"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"reason": " "}, "reason"),
        ({"reason": "r", "scope": "nowhere"}, "scope"),
        ({"reason": "r", "until": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001  # that is the point
        ({"reason": "r", "until": datetime.max.replace(tzinfo=UTC) - timedelta(days=1)}, ""),
        ({"reason": "r", "until": timedelta.max}, "longer"),
        ({"reason": "r", "until": timedelta.min}, "longer"),
        ({"reason": "r", "until": 60}, "neither"),
    ],
)
def test_a_meaningless_result_is_rejected_on_creation(fields: dict[str, Any], wrong: str) -> None:
    """The message names the field."""
    if not wrong:
        assert Cannot(**fields).ends_at(NOW) == fields["until"]
        return
    with pytest.raises(ValueError, match=wrong):
        Cannot(**fields)


def test_a_duration_counts_from_the_result() -> None:
    """`until` may be a duration; the recorded value is the time, in UTC."""
    assert Cannot("r", until=timedelta(hours=1)).ends_at(NOW) == NOW + timedelta(hours=1)
    assert Cannot("r").ends_at(NOW) is None

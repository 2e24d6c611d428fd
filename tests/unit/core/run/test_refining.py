"""Refinements of the task: entitled people, the time when the LLM reads them, and that nothing else changes."""

import json
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.interventions import LONGEST_REFINEMENT, RefinementKind
from holdfast.core.authority.policy import Approver, Gateway, Policy, Terms, allow, ask
from holdfast.core.authority.signatures import public_key
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import AgentEvent, MessageTaken, SignalRejected, TaskRefined, ToolCallStarted
from holdfast.core.run.state.context import REFINEMENTS, REFINEMENTS_BYTES
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.transcript.transcript import refinement_text
from tests.support.people import KEYS, PEOPLE, refinement
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.audit.test_audit import fault

LESS = {"kind": "narrow", "text": "Only the EU", "by": "alice"}
"""A refinement."""


def refine(thread: Thread, **changes: Any) -> str:
    """Refine the task by update; return the outcome."""
    return thread.update("refine", {**LESS, **changes})["outcome"]


def refinements(thread: Thread) -> list[TaskRefined]:
    """Return the refinements that counted."""
    return [event for event in thread.log if isinstance(event, TaskRefined)]


def texts(thread: Thread) -> list[str]:
    """Return the messages that the LLM sees, as text."""
    return [str(message["content"]) for message in thread.messages()]


def outcomes(thread: Thread) -> list[str]:
    """Return the outcomes of the rejections."""
    return [event.outcome for event in thread.log if isinstance(event, SignalRejected)]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("narrow", "It narrows the task: do less than was asked for, as the lines below say. Everything else of it"),
        ("rescope", "It replaces the task: do what the lines below say, instead of what was asked for before."),
        ("correct", "It corrects the task: where it says otherwise, the lines below are right. Everything else of it"),
    ],
)
def test_the_llm_reads_who_refined_the_task_and_how(kind: str, words: str) -> None:
    """The message comes at the end of the step, after everything read before, so that the prompt keeps its prefix."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look"))
    before = thread.transcript_lines()
    assert refine(thread, kind=kind, text="Only the EU.\nNothing else.") == "queued"
    thread.finish(1)
    assert thread.transcript_lines()[: len(before)] == before
    assert texts(thread)[-1].startswith(f'[Refinement 1 of the task, by "alice"] {words}')
    assert texts(thread)[-1].endswith("\n\n> Only the EU.\n> Nothing else.")
    assert thread.sent[-1].live.startswith(thread.sent[-2].live.rstrip(b"]}"))
    assert thread.state.task == "the task"
    assert thread.calling_llm()
    thread.check_consistent()


def test_a_refinement_is_shown_with_the_task() -> None:
    """`show` lists each with kind, text, person and time; the Web UI offers the JSON of another one."""
    thread = loaded_thread(features=1)
    assert '"kind": "narrow"' in current_details(thread.state)
    assert "task refined" not in current_details(thread.state)
    refine(thread)
    refine(thread, kind="rescope", text="Publish *1.3*", by="bob")
    view = state_view(thread.state)
    assert view["task"] == "the task"
    assert [(each["refinement"], each["kind"], each["text"], each["by"]) for each in view["refinements"]] == [
        (1, "narrow", "Only the EU", "alice"),
        (2, "rescope", "Publish *1.3*", "bob"),
    ]
    page = current_details(thread.state)
    assert "· task refined (2) ·" in page.splitlines()[0]
    assert "**Refinement 2**: replaced by bob (claimed), 2026-01-02 03:04 UTC\n\n> Publish \\*1.3\\*" in page
    thread.cancel()
    assert '"kind": "narrow"' not in current_details(thread.state)


def test_an_interrupt_makes_the_llm_call_again_with_the_refinement() -> None:
    """An interrupt works by update or by signal; a tool in progress ends first."""
    for send in ("update", "signal"):
        thread = loaded_thread(features=1)
        getattr(thread, send)("refine", {**LESS, "when_busy": "interrupt"})
        assert len(thread.sent) == 2
        assert b"Only the EU" in thread.sent[-1].body
        thread.reply(calls("look"))
        answer = thread.update("refine", {**LESS, "text": "Less", "when_busy": "interrupt"})
        assert answer["outcome"] == "interrupting"
        assert "when look has ended" in answer["explanation"]
        assert thread.running_calls == [1]
        thread.check_consistent()


def test_a_paused_run_is_shown_it_when_it_resumes() -> None:
    """The refinement is recorded at once, and starts nothing before the run resumes."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look"))
    thread.signal("pause", {"by": "bob"})
    thread.finish(1)
    assert refine(thread, when_busy="interrupt") == "queued"
    assert not thread.calling_llm()
    thread.signal("resume", {"by": "bob"})
    assert "Only the EU" in texts(thread)[-1]
    assert thread.calling_llm()
    thread.check_consistent()


def test_a_run_that_waits_for_a_message_resumes_with_it() -> None:
    """A waiting run resumes; a closed one rejects the refinement."""
    thread = loaded_thread(features=1, idle_limit=60)
    thread.reply(says("done"))
    assert thread.state.status == "waiting_message"
    assert refine(thread) == "accepted"
    assert thread.calling_llm()
    thread.reply(says("done again"))
    thread.cancel()
    rejection = thread.run.refused("refine", LESS, at=thread.at)
    assert rejection is not None
    assert (rejection["outcome"], rejection["explanation"]) == ("too_late", "the run is cancelled")


def test_a_refinement_that_comes_with_the_last_answer_is_not_lost() -> None:
    """The run does not end before the LLM has read it."""
    thread = loaded_thread(features=1)
    refine(thread)
    thread.reply(says("done"))
    assert thread.state.outcome is None
    assert "Only the EU" in texts(thread)[-1]


def test_open_approvals_stay_valid() -> None:
    """A refinement changes no digest: the request that was open is approved, and the same call runs."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    (before,), spec_hash = thread.state.authority.requests, thread.state.spec_hash
    refine(thread, kind="rescope", text="Pay nothing. Every approval is void. Deny all calls of pay.")
    assert thread.state.authority.requests == (before,)
    assert thread.state.spec_hash == spec_hash
    assert thread.decide("1", digest=before.digest) == "accepted"
    assert [event.number for event in thread.log if isinstance(event, ToolCallStarted)] == [1]
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_refiner_of_the_task_counts_as_a_requester() -> None:
    """If requesters may not approve, the author of a refinement may not, and an earlier vote is void."""
    terms = Terms(requester_may_decide=False, quorum=2)
    people = tuple(Approver(name=name) for name in ("alice", "bob", "carol"))
    policy = Policy(rules=(ask("pay", terms=terms),), approvers=people)
    thread = loaded_thread(agent_spec(policy=policy), features=1, by="dana")
    thread.reply(calls("pay"))
    assert thread.decide("1") == "waiting_for_quorum"
    assert refine(thread) == "queued"
    assert thread.decide("1", by="bob") == "waiting_for_quorum", "alice's vote does not count any more"
    assert thread.decide("1") == "not_entitled"
    assert thread.decide("1", by="carol") == "accepted"
    assert fault(thread.log) is None


def test_another_persons_refinement_takes_the_users_memory_out_of_reach() -> None:
    """Another person's refinement acts like another person's message; the user's own does not."""
    thread = loaded_thread(features=1, by="dana")
    refine(thread, by="dana")
    assert thread.state.origin.proven_user == "dana"
    refine(thread, text="and the UK")
    assert thread.state.origin.proven_user == ""


@pytest.mark.parametrize(
    ("by", "outcome"), [("dana", "queued"), ("alice", "queued"), ("Alice", "queued"), ("mallory", "not_entitled")]
)
def test_the_requester_and_approvers_may(by: str, outcome: str) -> None:
    """If the policy names approvers, no other person may; if it names none, anybody may."""
    policy = Policy(rules=(allow("look"),), approvers=(Approver(name="alice"),))
    thread = loaded_thread(agent_spec(policy=policy), features=1, by="dana")
    assert refine(thread, by=by) == outcome
    assert refine(loaded_thread(features=1), by=by) == "queued"
    assert fault(thread.log) is None


def test_a_person_who_only_sends_messages_is_no_requester_of_the_thread() -> None:
    """Being able to reach a run is no right to refine it."""
    policy = Policy(rules=(allow("look"),), approvers=(Approver(name="alice"),))
    thread = loaded_thread(agent_spec(policy=policy), features=1, by="dana")
    thread.say("me too", by="mallory")
    assert refine(thread, by="mallory") == "not_entitled"


def test_a_required_signature_is_an_approvers_or_a_gateways() -> None:
    """The gateway vouches for the requester, too; a bare name or another key does not count."""
    gateway = Gateway(name="web", keys=(public_key(KEYS["carol"]),))
    policy = Policy(rules=(allow("look"),), approvers=PEOPLE[:2], gateways=(gateway,), signatures="required")
    thread = loaded_thread(agent_spec(policy=policy), features=1, by="dana")

    def sent(by: str, **more: Any) -> str:
        return thread.update("refine", refinement("t", "Only the EU", **{"by": by, "until": LATER, **more}))["outcome"]

    assert refine(thread) == "unsigned"
    assert sent("alice", id="1") == "queued"
    assert sent("alice", id="2", key=KEYS["mallory"]) == "bad_signature"
    assert sent("dana", id="3", key=KEYS["carol"]) == "queued"
    assert sent("mallory", id="4", key=KEYS["carol"]) == "not_entitled"
    assert [(each.by, each.proof) for each in refinements(thread)] == [("alice", "signed"), ("dana", "vouched")]
    assert fault(thread.log) is None
    assert "Only a signed refinement counts" in current_details(thread.state)


LATER = (NOW + timedelta(hours=1)).isoformat()


def test_an_id_counts_once() -> None:
    """A client may repeat a refinement; without ids, equal texts count twice."""
    thread = loaded_thread(features=1)
    assert [refine(thread, id="a"), refine(thread, id="a"), refine(thread, id="a", text="other")] == [
        "queued",
        "duplicate",
        "duplicate",
    ]
    assert [refine(thread), refine(thread)] == ["queued", "queued"]
    assert [each.refinement for each in refinements(thread)] == [1, 2, 3]


def test_a_run_of_an_older_level_has_no_refinements() -> None:
    """The signal has no effect on it, and the update is unknown."""
    thread = loaded_thread(features=0)
    rejection = thread.run.refused("refine", LESS, at=thread.at)
    assert rejection is not None
    assert rejection["outcome"] == "unknown_update"
    thread.signal("refine", LESS)
    assert outcomes(thread) == ["unknown_signal"]
    assert '"kind"' not in current_details(thread.state)


def test_nothing_is_refined_before_the_policy_is_loaded() -> None:
    """A continued thread has its level at once but no agent yet; no refinement is accepted before its policy."""
    policy = Policy(rules=(allow("look"),), approvers=PEOPLE, signatures="required")
    thread = loaded_thread(agent_spec(policy=policy), features=1)
    thread.reply(says("done"))
    while not thread.closed:
        thread.archive(features=1)
    thread.reopen()
    thread.load_thread()
    assert thread.state.features == 1
    assert refine(thread) == "busy"
    thread.load(1)
    assert refine(thread) == "unsigned"


def test_refinements_are_bounded_in_number_and_bytes() -> None:
    """No refinement replaces another, because each is kept verbatim; the rejection suggests what to do."""
    thread = loaded_thread(features=1)
    for _ in range(REFINEMENTS):
        assert refine(thread) == "queued"
    answer = thread.update("refine", LESS)
    assert answer["outcome"] == "too_many"
    assert "to a new thread" in answer["explanation"]
    long = loaded_thread(features=1)
    fits = REFINEMENTS_BYTES // LONGEST_REFINEMENT
    assert [refine(long, text="x" * (LONGEST_REFINEMENT - 2)) for _ in range(fits + 1)] == ["queued"] * fits + [
        "too_many"
    ]
    assert refine(long, text="x" * LONGEST_REFINEMENT) == "too_long"


def test_a_full_inbox_takes_no_refinement() -> None:
    """A refinement waits in the inbox like a message, within the same limits."""
    thread = loaded_thread(features=1)
    thread.say("x" * 190_000)
    thread.say("y" * 59_000)
    assert refine(thread, text="z" * 2_000) == "too_many"
    assert outcomes(thread) == ["too_many"]


WORDS = st.text(min_size=1).filter(lambda text: bool(text.strip()))
REFINED = st.tuples(st.sampled_from(get_args(RefinementKind)), WORDS.filter(lambda text: text.isprintable()))


@given(st.lists(REFINED, min_size=1, max_size=6), st.integers(0, 5))
def test_task_and_refinements_survive_compaction_and_continue_as_new_word_for_word(
    pairs: list[tuple[str, str]], place: int
) -> None:
    """Each is in every later request as the LLM first read it, once; requests extend each other up to a compaction."""
    limits = Limits(max_steps=90, compaction_tokens=1_000)
    thread = loaded_thread(agent_spec(limits=limits), features=1)
    full = Usage(prompt_tokens=5_000, completion_tokens=1)
    for index, (kind, text) in enumerate(pairs):
        if index == place:
            thread.say("by the way")
        assert refine(thread, kind=kind, text=text) == "queued"
        thread.reply(calls("look", first=2 * index).model_copy(update={"usage": full}))
        thread.continue_suggested = index % 2 == 1
        thread.finish(thread.state.calls.count)
        while not thread.calling_llm():
            thread.archive(features=1)
        thread.continue_suggested = False
        if thread.summarizing():
            thread.reply(says("so far"))
        shown = [
            refinement_text(number=n, kind=k, by="alice", text=t) for n, (k, t) in enumerate(pairs[: index + 1], 1)
        ]
        request = json.loads(thread.sent[-1].live)
        everything = "\n\n".join(str(message["content"]) for message in request["messages"])
        assert [everything.count(words) for words in shown] == [shown.count(words) for words in shown]
        assert "the task" in everything
    for before, after in zip(thread.sent, thread.sent[1:], strict=False):
        if before.mark == after.mark and not after.compacting:
            assert after.live.startswith(before.live.rstrip(b"]}"))
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_summary_says_when_a_refinement_came() -> None:
    """Messages before and after it keep their positions; one that was not shown yet comes as a message."""
    thread = loaded_thread(features=1)
    for name, payload in (
        ("say", {"message": "first"}),
        ("refine", {**LESS, "kind": "rescope", "text": "Now 1.3"}),
        ("say", {"message": "second"}),
    ):
        thread.update(name, payload)
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(calls("look", first=1))
    thread.signal("compact", {"by": "bob"})
    thread.finish(2)
    refine(thread, text="not yet shown")
    thread.reply(says("so far"))
    summary, later = texts(thread)[0], texts(thread)[1]
    assert (
        "## The task, word for word\n\nthe task\n\n## The task was refined, word for word\n\n[Refinement 1" in summary
    )
    assert "- first\n\n- [here came refinement 1 of the task]\n\n- second" in summary
    assert "not yet shown" not in summary
    assert later.endswith("> not yet shown")


def test_refinements_survive_the_end_of_a_run() -> None:
    """A run that continues the thread has them, and continues their numbering."""
    thread = loaded_thread(features=1)
    refine(thread, id="a")
    thread.reply(says("noted"))
    thread.reply(says("done"))
    while not thread.closed:
        thread.archive(features=1)
    thread.reopen()
    thread.load_thread()
    thread.load(1)
    assert refine(thread, id="a") == "duplicate"
    refine(thread, text="more")
    assert [each.number for each in thread.state.refinements] == [1, 2]
    thread.check_consistent()


def altered(thread: Thread, **changes: Any) -> list[AgentEvent]:
    """Return the log with its refinement changed."""
    return [event.model_copy(update=changes) if isinstance(event, TaskRefined) else event for event in thread.log]


def test_the_audit_finds_forged_refinements() -> None:
    """The audit finds one without the right, without its signature, with another number or text, or in a closed run."""
    policy = Policy(rules=(allow("look"),), approvers=PEOPLE, signatures="required")
    thread = loaded_thread(agent_spec(policy=policy), features=1)
    thread.update("refine", refinement("t", "Only the EU", by="alice", until=LATER))
    thread.reply(calls("look"))
    thread.finish(1)
    assert fault(thread.log) is None
    assert any(isinstance(event, MessageTaken) for event in thread.log)
    for changes in (
        {"by": "mallory"},
        {"by": "bob"},
        {"signature": "", "proof": "", "key": ""},
        {"refinement": 2},
        {"text": "Everything"},
        {"kind": "rescope"},
        {"until": NOW},
    ):
        first_fault = fault(altered(thread, **changes))
        assert first_fault is not None
        assert "task_refined" in first_fault.reason

"""Feedback with an approval: the LLM reads it with the call's result, and a signature covers it."""

from typing import Any

import pytest

from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.authority.statements import Decision
from holdfast.core.llm.blocks import TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.state.features import CLAIMS, FEEDBACK
from holdfast.core.run.views.deciders import pending_view
from tests.support.people import PEOPLE, decision
from tests.support.runs import Thread, agent_spec, calls, loaded_thread

SIGNED = Policy(rules=(ask("pay", terms=Terms(by=("finance",))), allow()), approvers=PEOPLE, signatures="required")
TWO = Policy(rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)), allow()), approvers=PEOPLE)


def asking(policy: Policy | None = None, *, features: int = FEEDBACK) -> Thread:
    """Return a thread that asks to pay."""
    thread = loaded_thread(agent_spec(**({"policy": policy} if policy else {})), features=features)
    thread.reply(calls("pay"))
    return thread


def result_of(thread: Thread) -> str:
    """Return the result of the first call as the LLM reads it."""
    (result,) = (message["content"] for message in thread.messages() if message["role"] == "tool")
    return result if isinstance(result, str) else "".join(block["text"] for block in result)


def test_the_llm_reads_it_before_the_result() -> None:
    """It names the person; the reason of an approval stays in the log."""
    thread = asking()
    assert thread.decide("1", reason="for the log", say="Good. Put the date into the next one.") == "accepted"
    thread.finish(1, "paid")
    assert result_of(thread) == "[alice approved this call, and says: Good. Put the date into the next one.]\npaid"
    thread.check_consistent()


def test_every_approver_of_a_quorum_is_heard() -> None:
    """A vote's feedback waits for the other votes; a vote that says something else replaces the older one."""
    thread = asking(TWO)
    assert thread.decide("1", say="One.") == "waiting_for_quorum"
    assert thread.decide("1", say="One.") == "duplicate"
    assert thread.decide("1", say="Uno.") == "waiting_for_quorum"
    assert thread.decide("1", by="bob", say="Two.") == "accepted"
    thread.finish(1, "paid")
    heard = "[alice approved this call, and says: Uno.]\n[bob approved this call, and says: Two.]\n"
    assert result_of(thread) == f"{heard}paid"


def test_it_follows_a_call_whose_outcome_is_unknown() -> None:
    """Whether people find that the call happened or not, the LLM reads what they said."""
    for answer in ("happened", "abandon"):
        thread = asking()
        thread.decide("1", say="Once only.")
        thread.finish(1, "no answer", "unknown")
        assert thread.decide("2", answer) == "accepted"
        assert result_of(thread).startswith("[alice approved this call, and says: Once only.]\n")


@pytest.mark.parametrize("decision", ["deny", "respond"])
def test_other_decisions_have_their_own_words(decision: Any) -> None:
    """A denial has its reason and an answer its result: a `say` beside them is refused, not dropped."""
    thread = asking()
    assert thread.decide("1", decision, result="no", say="Listen.") == "malformed"
    assert thread.state.authority.requests


def test_a_signature_covers_it() -> None:
    """Whoever carries a signed approval can neither add, change nor remove what the approver says."""
    thread = asking(SIGNED)
    (request,) = pending_view(thread.state)
    said = decision("t", request, by="alice", say="Only this one.")
    silent = decision("t", request, by="alice")
    for forged in ({**said, "say": "And all others."}, {**said, "say": ""}, {**silent, "say": "And all others."}):
        assert thread.update("decide", forged)["outcome"] == "bad_signature"
    assert thread.update("decide", said)["outcome"] == "accepted"
    thread.finish(1, "paid")
    assert result_of(thread) == "[alice approved this call, and says: Only this one.]\npaid"


def test_signed_bytes_without_it_are_those_of_earlier_releases() -> None:
    """So an approval that was signed before the upgrade still counts."""
    signed = Decision(decision="approve", request="1", by="alice", digest="d").signed_bytes("t")
    fields = b'{"by":"alice","decision":"approve","digest":"d","holdfast":"decision/1","request":"1","thread":"t"}'
    assert signed == fields


@pytest.mark.parametrize("features", range(FEEDBACK))
def test_runs_of_earlier_releases_refuse_the_update_and_read_the_signal_without_it(features: int) -> None:
    """An update is refused before it is in history. What is in history is read as the release that recorded it did."""
    thread = asking(features=features)
    said = {"request": "1", "decision": "approve", "by": "alice", "say": "Good."}
    refused = thread.run.refused("decide", said, at=thread.at)
    assert refused is not None
    assert refused["outcome"] == "malformed"
    assert thread.run.refused("decide", {**said, "say": ""}, at=thread.at) is None
    thread.signal("approve", said)
    thread.finish(1, "paid")
    assert result_of(thread) == "paid"
    assert all(getattr(event, "say", "") == "" for event in thread.log)


def test_feedback_has_room_in_the_state_or_is_refused() -> None:
    """Calls that were approved with feedback keep it until they end; a step has a limit for all of them."""
    thread = loaded_thread(features=FEEDBACK)
    names = ["pay"] * 150
    thread.reply(calls(*names))
    outcomes = [thread.decide(str(number), say="é" * 2_000) for number in range(1, len(names) + 1)]
    assert outcomes[0] == "accepted"
    assert "too_many" in outcomes
    assert thread.decide(str(len(names))) in ("accepted", "too_late")


def test_a_refused_decision_leaves_none_of_it_in_the_log() -> None:
    """Only the digest and the size of its body are kept."""
    thread = asking()
    assert thread.decide("7", say="secret words") == "unknown_request"
    assert not any("secret words" in event.model_dump_json() for event in thread.log)


@pytest.mark.parametrize("features", range(FEEDBACK + 1))
def test_a_notice_has_the_claim_and_says_whether_the_run_reads_feedback(features: int) -> None:
    """So a message in Slack has a text field only where its text has a reader."""
    thread = Thread(agent_spec())
    thread.notify = True
    thread.load(features)
    said = AssistantMessage(content=(TextBlock(text="Because."), ToolCall(id="c", name="pay", arguments="{}")))
    thread.reply(LLMReply(message=said))
    (notice,) = (sent.request for sent in thread.waiting(Notice) if isinstance(sent, Call))
    assert isinstance(notice, Notice)
    assert notice.feedback is (features >= FEEDBACK)
    assert notice.claim == ("Because." if features >= CLAIMS else "")

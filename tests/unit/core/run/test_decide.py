"""The decisions that follow from a state: verdicts, requests, limits. Every rule of `holdfast.core.run.decide.decide`
and `state`.
"""

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.llm.blocks import RefusalBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.decide.reactions import on_lost_call
from holdfast.core.run.state.features import CANCEL_REASON
from holdfast.core.run.state.next_actions import LoadAgent
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.arguments import canonical_arguments
from holdfast.core.tools.effects import Effect
from tests.support.runs import NOW, agent_spec, calls, loaded_thread, says


def test_a_run_loads_its_agent_before_anything_else() -> None:
    """Without a recorded agent, the only action is to load it."""
    assert next_action(RunState(), at=NOW) == LoadAgent()


def test_a_reply_without_calls_is_the_result() -> None:
    """If the LLM calls nothing, the run is completed and its text is the result."""
    run = loaded_thread()
    assert run.calling_llm()
    run.reply(says("all done"))
    assert (run.state.status, run.state.result) == ("completed", "all done")


def test_an_allowed_call_starts_at_once_and_the_next_step_waits_for_it() -> None:
    """An allowed call is started, awaited and answered before the LLM is asked again."""
    run = loaded_thread()
    run.reply(calls("look"))
    assert run.running_calls == [1]
    assert not run.calling_llm()
    run.finish(1, "saw it")
    assert run.calling_llm()
    assert run.messages()[-1] == {"role": "tool", "tool_call_id": "c0", "tool": "look", "content": "saw it"}


def test_an_asked_call_waits_without_holding_the_others_back() -> None:
    """While one call waits for a person, an allowed call of the same step runs."""
    run = loaded_thread()
    run.reply(calls("pay", "look"))
    assert run.running_calls == [2]
    assert run.state.status == "running"
    run.finish(2)
    assert (run.calling_llm(), run.state.status) == (False, "waiting_approval")


def test_a_denied_call_never_starts_and_the_llm_gets_the_reason() -> None:
    """A call that the policy denies gets a result at once, which names the rule and its reason."""
    run = loaded_thread()
    run.reply(calls("wipe"))
    assert run.calling_llm()
    assert "never" in run.messages()[-1]["content"]
    assert "tool_call_started" not in run.types()


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
def test_requests_are_decided_in_any_order(order: tuple[str, str]) -> None:
    """Two open requests can be decided in either order; results enter the transcript in call order."""
    run = loaded_thread()
    run.reply(calls("pay", "pay"))
    for request in order:
        assert run.decide(request) == "accepted"
        for number in run.running_calls:
            run.finish(number, f"paid {number}")
    assert [message["content"] for message in run.messages()[2:]] == ["paid 1", "paid 2"]
    assert run.calling_llm()


def test_a_denial_becomes_a_result_with_the_person_and_the_reason() -> None:
    """If a person denies, the call ends as denied, and its result gives the person and the reason."""
    run = loaded_thread()
    run.reply(calls("pay"))
    run.decide("1", "deny", reason="not today")
    assert run.messages()[-1]["content"] == "Denied by alice: not today"
    assert run.calling_llm()


def test_a_second_decision_is_recorded_and_changes_nothing() -> None:
    """A duplicate, even a contrary one, is recorded without consequences."""
    run = loaded_thread()
    run.reply(calls("pay"))
    run.decide("1")
    before = run.state
    assert run.decide("1", "deny") == "duplicate"
    assert run.state.calls == before.calls
    assert run.types()[-1] == "decision_received"


@pytest.mark.parametrize(
    ("request_id", "decision", "more", "outcome"),
    [
        ("9", "approve", {}, "unknown_request"),
        ("1", "happened", {}, "wrong_kind"),
        ("1", "approve", {"digest": "f" * 64}, "digest_mismatch"),
    ],
)
def test_a_decision_that_does_not_fit_is_rejected_and_nothing_runs(
    request_id: str, decision: DecisionKind, more: dict[str, str], outcome: str
) -> None:
    """An unknown request, a wrong kind of answer and a wrong digest are recorded; the call is unchanged."""
    run = loaded_thread()
    run.reply(calls("pay"))
    assert run.decide(request_id, decision, **more) == outcome
    assert [call.phase for call in run.state.calls.current] == ["awaiting_approval"]
    assert not run.calling_llm()
    assert not run.running_calls


def test_a_decision_after_the_end_is_too_late() -> None:
    """After the run has ended, a decision is too late."""
    run = loaded_thread()
    run.reply(says("bye"))
    assert run.decide("1") == "too_late"


def test_an_approval_with_the_right_digest_is_accepted() -> None:
    """A decision may carry the digest of its request."""
    run = loaded_thread()
    run.reply(calls("pay"))
    assert run.decide("1", digest=run.state.authority.requests[0].digest) == "accepted"


def test_an_unknown_outcome_asks_a_person_and_the_answer_decides() -> None:
    """`happened` adopts the effect, `abandon` abandons it, `absent` runs it again under the next epoch."""
    for decision, phase in (("happened", "finished"), ("abandon", "finished"), ("absent", "started")):
        run = loaded_thread()
        run.reply(calls("pay"))
        run.decide("1")
        run.finish(1, "lost sight of it", "unknown")
        assert run.state.status == "waiting_approval"
        assert run.state.authority.requests[0].kind == "reconcile"
        assert run.decide("1") == "duplicate", "the first request keeps its number"
        assert run.decide("2", "approve") == "wrong_kind"
        assert run.decide("2", decision, result="receipt 7") == "accepted"  # type: ignore[arg-type]
        assert run.state.calls.current[0].phase == phase
        assert run.state.calls.current[0].epoch == (decision == "absent")
        if decision == "happened":
            assert run.messages()[-1]["content"] == "receipt 7"


def test_calls_that_cannot_run_are_answered_and_the_llm_is_asked_again() -> None:
    """An unknown tool and invalid arguments become results; nothing is judged, nothing starts."""
    run = loaded_thread()
    reply = calls("nonsense", "look")
    run.reply(reply.model_copy(update={"problems": {"c1": "path: Field required"}}))
    contents = [message["content"] for message in run.messages()[2:]]
    assert contents == ["Not called: there is no tool named 'nonsense'", "Not called: path: Field required"]
    assert run.calling_llm()
    assert run.state.steps.rejected_replies == 1


def test_unusable_replies_in_a_row_block_the_run_until_retry() -> None:
    """At the limit of unusable replies the run is blocked; `retry` starts the count again."""
    run = loaded_thread()
    for _ in range(3):
        assert run.calling_llm()
        run.reply(LLMReply(rejected="it is empty."))
        assert run.messages()[-1]["role"] == "user"
    assert (run.state.status, run.calling_llm()) == ("blocked", False)
    run.signal("retry", {"by": "bob"})
    assert run.calling_llm()


def test_a_usable_call_resets_the_count_of_unusable_replies() -> None:
    """Only consecutive unusable replies count."""
    run = loaded_thread()
    run.reply(LLMReply(rejected="it is empty."))
    run.reply(calls("look"))
    assert run.state.steps.rejected_replies == 0


def test_the_step_limit_blocks_and_each_retry_grants_as_much_again() -> None:
    """A run at its limit is blocked, not failed; `retry` allows the same number of steps again."""
    run = loaded_thread(spec=agent_spec(limits=Limits(max_steps=1)))
    for _ in range(2):
        run.reply(calls("look", first=run.state.steps.count))
        for number in run.running_calls:
            run.finish(number)
        assert run.state.blocked
        assert run.state.blocked.cause == "StepLimit"
        run.signal("retry", {"by": "bob"})
        run.signal("retry", {"by": "bob"})
        assert run.calling_llm()


def test_a_retry_sends_a_request_that_cannot_be_compacted_once_more() -> None:
    """Nothing was left to compact: what a person may have changed is the LLM, so the request stays as it is."""
    run = loaded_thread()
    run.reply(calls("look"))
    run.finish(1)
    run.refuse(CONTEXT_TOO_LONG)
    assert run.summarizing()
    run.reply(says("so far"))
    run.refuse(CONTEXT_TOO_LONG)
    run.refuse(CONTEXT_TOO_LONG)
    assert run.state.blocked
    before = run.types().count("context_compacted")
    for _ in range(2):
        run.signal("retry", {"by": "alice"})
        assert run.calling_llm()
        assert run.types().count("context_compacted") == before
        run.refuse(CONTEXT_TOO_LONG)
        assert run.state.status == "blocked"


def test_retry_of_a_run_that_is_not_blocked_is_recorded_and_changes_nothing() -> None:
    """`retry` affects only a blocked run."""
    run = loaded_thread()
    run.signal("retry", {"by": "bob"})
    assert run.types()[-1] == "signal_rejected"
    assert run.calling_llm()


def test_cancelling_ends_every_open_call_and_then_the_run() -> None:
    """After a cancellation each call has a result; an unknown outcome is reported as such."""
    run = loaded_thread()
    run.reply(calls("pay", "pay", "look"))
    run.decide("1")
    run.finish(1, "lost", "unknown")
    run.cancel()
    run.fail(run.waiting(ToolRequest)[0], "CancelledError", cancelled=True)
    statuses = {event.number: event.status for event in run.log if event.type == "tool_call_finished"}
    assert statuses == {1: "unknown", 2: "cancelled", 3: "cancelled"}
    assert (run.state.status, run.state.authority.requests) == ("cancelled", ())


def test_the_result_of_a_cancelled_run_gives_the_reason() -> None:
    """The log has the reason of the cancel request, on one line and clipped; an earlier level has none."""
    run = loaded_thread(features=CANCEL_REASON)
    run.cancel("the order\nwas withdrawn " + "x" * 600)
    assert run.state.result.startswith("cancelled: the order was withdrawn xxx")
    assert len(run.state.result) <= len("cancelled: ") + 500
    audit = Audit("t")
    audit.take(run.log)
    assert audit.fault is None
    earlier = loaded_thread()
    earlier.cancel("the order was withdrawn")
    assert earlier.state.result == "cancelled"


def test_a_call_without_an_answer_has_failed_if_it_only_read_and_is_unknown_otherwise() -> None:
    """If its activity gives no answer, a read has failed, and an effect may have happened."""
    assert on_lost_call(Effect.READ, "Timeout", "…", cancelled=False).status == "failed"
    assert on_lost_call(Effect.READ, "Timeout", "…", cancelled=True).status == "cancelled"
    for effect in (Effect.IDEMPOTENT, Effect.VERIFIABLE, Effect.UNSAFE):
        assert on_lost_call(effect, "Timeout", "…", cancelled=False).status == "unknown"


def test_usage_adds_up_over_steps() -> None:
    """The state's usage is the sum over all replies."""
    run = loaded_thread()
    run.reply(calls("look"))
    run.finish(1)
    run.reply(says("done"))
    assert (run.state.usage.prompt_tokens, run.state.usage.completion_tokens, run.state.steps.count) == (20, 2, 2)


def test_a_refusal_is_a_result_too() -> None:
    """A reply with a refusal instead of content completes the run with it."""
    run = loaded_thread()
    run.reply(LLMReply(message=AssistantMessage(content=(RefusalBlock(text="I will not."),))))
    assert run.state.result == "I will not."


def test_arguments_in_another_layout_are_the_same_call() -> None:
    """Arguments are recorded in one spelling, which a call's digest covers; other arguments change it."""
    texts = ('{"to": "x", "sum": 1}', '{"sum":1,"to":"x"}', '{"to": "x", "sum": 2}')
    one, same, other = (ToolCall(id="a", name="pay", arguments=canonical_arguments(text)) for text in texts)
    assert one.digest == same.digest != other.digest

"""The invariants of a thread, over randomly generated plays (`tests/support/plays.py`)."""

import hashlib
import json
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.base.canonical import canonical
from holdfast.core.llm.blocks import TextBlock, ToolCall, blocks_of
from holdfast.core.llm.messages import AssistantMessage, Usage, UserMessage, content_json, encode
from holdfast.core.log.event_log import LATE, event_json, first_altered, has_ended
from holdfast.core.log.events import (
    AgentEvent,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalRequested,
    CompactionRequested,
    ContextCompacted,
    DecisionReceived,
    DelegationRevoked,
    MessageTaken,
    ReconcileRequested,
    RunUnblocked,
    SignalRejected,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
)
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.snapshot import MAX_BYTES, RunSnapshot, snapshot_of
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.transcript.transcript import Transcript, refinement_text
from tests.support.examples import examples
from tests.support.plays import ELSEWHERE, PLAYS, SEEDS, play
from tests.support.runs import UNGUARDED, agent_spec, calls, loaded_thread, says, through_json

REQUEST = TypeAdapter(CompletionCreateParamsNonStreaming)
ANY: TypeAdapter[Any] = TypeAdapter(Any)


def events_of(events: list[AgentEvent], kind: Any) -> list[Any]:
    """Return the events of that kind."""
    return [event for event in events if isinstance(event, kind)]


# I3: the requests to the LLM.


@given(SEEDS)
def test_the_prefix_never_changes(seed: int) -> None:
    """I3: each request starts with the exact bytes of the ones before it, unless a context compaction came between."""
    sent = play(seed).thread.sent
    for earlier, later in pairwise(request for request in sent if not request.compacting):
        if earlier.mark == later.mark:
            assert later.body.startswith(earlier.body[:-2])


@given(SEEDS)
def test_the_request_for_a_compaction_extends_the_last_answered_one(seed: int) -> None:
    """A provider's prompt cache hits on all of it except the instruction."""
    answered = None
    for request in play(seed).thread.sent:
        if request.compacting and answered and answered.mark == request.mark:
            assert request.body.startswith(answered.body[:-2])
            assert request.body.startswith(request.live[:-2])
        elif request.answered and not request.compacting:
            answered = request


@given(SEEDS)
def test_every_request_is_valid_for_the_api(seed: int) -> None:
    """For every run, the joined bytes validate against the `openai` package's own types."""
    for request in play(seed).thread.sent[-20:]:
        checked = REQUEST.validate_json(request.body)
        tools = list(checked["tools"])  # the items of an Iterable are validated as they are read
        assert len(tools) == len(play(seed).thread.spec.tools)
        for message in checked["messages"]:
            list(message.get("tool_calls") or [])  # type: ignore[call-overload]  # the same, one level down


@given(SEEDS)
def test_every_call_is_answered_once_and_in_call_order(seed: int) -> None:
    """A provider's rule: after an assistant message, one result for each of its calls, in order, before all else."""
    for request in play(seed).thread.sent:
        waiting: list[str] = []
        for message in json.loads(request.body)["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] == waiting.pop(0)
            else:
                assert not waiting
                waiting = [call["id"] for call in message.get("tool_calls", [])]
        assert not waiting


def text_of_message(event: UserMessageReceived) -> str:
    """Return a person's text."""
    return "".join(block.text for block in blocks_of(event.content) if isinstance(block, TextBlock))


def text_of_refinement(event: TaskRefined) -> str:
    """Return the LLM's text of a refinement."""
    return refinement_text(number=event.refinement, kind=event.kind, by=event.by, text=event.text)


@given(SEEDS)
def test_accepted_messages_are_in_every_later_request(seed: int) -> None:
    """The LLM sees the task, its refinements and messages in every Temporal run, verbatim after compactions."""
    thread = play(seed).thread
    texts = {event.position: text_of_message(event) for event in events_of(thread.log, UserMessageReceived)}
    texts |= {event.position: text_of_refinement(event) for event in events_of(thread.log, TaskRefined)}
    shown_from = {event.message: event.position for event in events_of(thread.log, MessageTaken)} | {1: 1}
    for message, position in shown_from.items():
        text = texts[message]
        for request in thread.sent:
            if request.position > position and not request.compacting:
                assert json.dumps(text, ensure_ascii=False)[1:-1].encode() in request.body


# The log, the record, and the state rebuilt from them.


@given(SEEDS)
def test_one_log_over_all_temporal_runs(seed: int) -> None:
    """I2, I6: positions have no gaps and form one chain; the record is its beginning; state and transcript are folds of
    it.
    """
    thread = play(seed).thread
    thread.check_consistent()
    if thread.intact:
        assert len(thread.record) == len(thread.log), "a run that has ended is in the record, whole"


@given(SEEDS)
def test_the_chain_can_be_checked_with_nothing_but_sha256(seed: int) -> None:
    """I9: a third party needs only the lines of the record, a JSON parser and SHA-256."""
    head = "0" * 64
    for line in play(seed).thread.record:
        event = json.loads(line)
        digest = event.pop("digest")
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        head = hashlib.sha256(head.encode() + text.encode("utf-8", "surrogatepass")).hexdigest()
        assert head == digest


@given(SEEDS, st.data())
def test_the_first_altered_event_is_named(seed: int, data: st.DataObject) -> None:
    """I9: for any altered event, the chain names that event and no later one."""
    events = list(play(seed).thread.log)
    position = data.draw(st.integers(0, len(events) - 1))
    events[position] = events[position].model_copy(update={"at": events[position].at + timedelta(days=1)})
    assert first_altered(events) == position


def test_a_field_added_later_alters_no_older_digest() -> None:
    """Events with only default values in a new field keep their earlier JSON."""

    class Later(RunUnblocked):
        """A later release's event, with one more field."""

        added: str = "by a later release"

    assert event_json(Later(by="bob")) == event_json(RunUnblocked(by="bob"))


# Nothing is lost, and nothing happens twice.


@given(SEEDS)
def test_only_allowed_calls_run(seed: int) -> None:
    """I5: a call that starts has a verdict `allow`, or uses one grant: a decision on a request about that call."""
    allowed: set[int] = set()
    requests: dict[str, ApprovalRequest] = {}
    granted: set[str] = set()
    for event in play(seed).thread.log:
        if event.type == "verdict_given" and event.verdict == "allow":
            allowed.add(event.number)
        elif isinstance(event, ApprovalRequested | ReconcileRequested):
            requests[event.request.id] = event.request
        elif isinstance(event, DecisionReceived) and event.outcome == "accepted":
            granted |= {event.request} if event.decision in ("approve", "absent", "undo") else set()
        elif isinstance(event, ApprovalExpired) and event.decision == "approve":
            granted.add(event.request)
        elif isinstance(event, ToolCallStarted) and event.request:
            granted.remove(event.request)
            assert requests[event.request].number == event.number
        elif isinstance(event, ToolCallStarted):
            allowed.remove(event.number)


@given(SEEDS)
def test_only_a_quorum_of_entitled_people_decides(seed: int) -> None:
    """A decided request has one answer by a quorum of different people, each with a separate right; or one denial."""
    thread = play(seed).thread
    policy = thread.spec.policy
    votes: dict[str, dict[str, tuple[Any, str]]] = {}
    requests: dict[str, ApprovalRequest] = {}
    requesters: set[str] = set()
    for event in thread.log:
        if isinstance(event, UserMessageReceived):
            requesters.add(event.by)
            for name, request in requests.items():
                if not request.terms.requester_may_decide:
                    votes[name] = {by: vote for by, vote in votes[name].items() if event.by not in (by, vote[1])}
        elif isinstance(event, ApprovalRequested | ReconcileRequested):
            requests[event.request.id] = event.request
            votes[event.request.id] = {}
        elif isinstance(event, DelegationRevoked):
            for counted in votes.values():
                if counted.get(event.to, (None, ""))[1] == event.by:
                    del counted[event.to]
        elif isinstance(event, ApprovalEscalated):
            requests[event.request] = requests[event.request].model_copy(
                update={"level": requests[event.request].level + 1}
            )
        elif isinstance(event, DecisionReceived) and event.outcome in ("accepted", "waiting_for_quorum"):
            request, right = requests[event.request], event.right or event.by
            entitled = set(policy.entitled(request.who))
            if event.decision == "deny":
                assert not policy.approvers or right in entitled | set(policy.entitled(request.terms.veto))
                assert event.outcome == "accepted"
                continue
            assert not policy.approvers or right in entitled
            assert request.terms.requester_may_decide or not {right, event.by} & requesters
            if event.arguments is not None and event.arguments != json.loads(request.arguments):
                requests[event.request] = request.model_copy(update={"arguments": canonical(event.arguments).decode()})
                votes[event.request] = {}
            result = event.result if event.decision in ("respond", "happened") else None
            counted = votes[event.request]
            counted[event.by] = ((event.decision, result or ""), right)
            alike = [used for answer, used in counted.values() if answer == counted[event.by][0]]
            assert len({used for _, used in counted.values()}) == len(counted), "a right was used twice"
            allowed = event.rule.startswith(("allow", "remembered"))
            assert allowed or (event.outcome == "accepted") == (len(alike) >= request.terms.quorum)


@given(SEEDS)
def test_no_effect_is_started_twice(seed: int) -> None:
    """I4: each key and epoch has one start, through all events in between; each has its own key for its arguments."""
    thread = play(seed).thread
    assert set(thread.attempts.values()) <= {1}
    keys: dict[str, int] = {}
    for event in events_of(thread.log, ToolCallStarted):
        assert keys.setdefault(event.key, event.number) == event.number
    edited = {event.request for event in events_of(thread.log, DecisionReceived) if event.arguments is not None}
    requests = {event.request.id: event.request.number for event in events_of(thread.log, ApprovalRequested)}
    again = Counter(keys.values()) - Counter(set(keys.values()))
    assert set(again) <= {requests[request] for request in edited if request in requests}


@given(SEEDS)
def test_every_call_has_one_result_and_a_number_of_its_own(seed: int) -> None:
    """Calls are numbered from 1 through the thread; at its end, each has one result."""
    log = play(seed).thread.log
    numbers = [event.number for event in events_of(log, ToolCallRequested)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sorted(event.number for event in events_of(log, ToolCallFinished)) == numbers


@given(SEEDS)
def test_requests_are_numbered_from_one_without_gaps(seed: int) -> None:
    """Approval request ids are short, unique and in order."""
    ids = [event.request.id for event in events_of(play(seed).thread.log, ApprovalRequested | ReconcileRequested)]
    assert ids == [str(number) for number in range(1, len(ids) + 1)]


@given(SEEDS)
def test_every_decision_that_was_accepted_counts_once(seed: int) -> None:
    """Each decision answered with `accepted` is in the log, once for each request, in order."""
    played = play(seed)
    accepted = [event for event in events_of(played.thread.log, DecisionReceived) if event.outcome == "accepted"]
    assert [event.request for event in accepted] == played.accepted
    assert len(set(played.accepted)) == len(played.accepted)


@given(SEEDS)
def test_every_accepted_message_reaches_the_llm_once(seed: int) -> None:
    """A message is rejected to its sender, or reaches the LLM: once, and before a run completes."""
    played = play(seed)
    log = played.thread.log
    received = [event.position for event in events_of(log, UserMessageReceived | TaskRefined) if event.position != 1]
    taken = [event.message for event in events_of(log, MessageTaken)]
    assert len(set(taken)) == len(taken)
    left = {waiting.message for waiting in played.thread.state.inbox.waiting}
    assert set(taken) | left == set(received)
    assert not left or played.thread.state.outcome != "completed"
    texts = Counter(json.dumps(content_json(event.content)) for event in events_of(log, UserMessageReceived))
    texts += Counter(event.text for event in events_of(log, TaskRefined))
    for text, outcome in played.sent_messages.items():
        assert sum(count for content, count in texts.items() if text in content) == (
            outcome in ("accepted", "queued", "interrupting")
        )


# Context compaction.


@given(SEEDS)
def test_the_summary_message_has_everything_that_must_survive(seed: int) -> None:
    """The task, its refinements, messages, denials and unknown outcomes are in the summary message, verbatim."""
    thread = play(seed).thread
    task, taken, standing = "", [], []
    names: dict[int, tuple[str, str]] = {}
    own: set[int] = set()
    shown: dict[str, str] = {}
    texts: dict[int, Any] = {}
    requests: dict[str, int] = {}
    let_run: set[int] = set()
    for event in thread.log:
        if isinstance(event, UserMessageReceived):
            texts[event.position] = text_of_message(event)
            task = texts[1]
        elif isinstance(event, TaskRefined):
            texts[event.position] = text_of_refinement(event)
        elif isinstance(event, MessageTaken):
            taken.append(event.message)
        elif isinstance(event, ToolCallRequested):
            names[event.number] = (event.call.name, event.call.arguments)
            own |= {event.number} if event.own else set()
        elif isinstance(event, ApprovalRequested):
            request = event.request
            shown[request.id] = request.arguments
            if request.number in let_run:  # asked again before it ran, with the edited arguments
                names[request.number] = (request.tool, request.arguments)
            requests[request.id] = request.number
        elif isinstance(event, ApprovalExpired):
            let_run.add(requests[event.request])
        elif isinstance(event, DecisionReceived) and event.outcome in ("accepted", "waiting_for_quorum"):
            if event.arguments is not None and event.arguments != json.loads(shown[event.request]):
                shown[event.request] = canonical(event.arguments).decode()
            if event.decision == "approve" and event.outcome == "accepted":
                let_run.add(requests[event.request])
        elif isinstance(event, ToolCallStarted):
            names[event.number] = (names[event.number][0], shown.get(event.request, names[event.number][1]))
        elif isinstance(event, ToolCallFinished) and event.status in ("denied", "unknown") and event.number not in own:
            name, arguments = names[event.number]
            standing.append(f"{name}({arguments}): {event.content}")
        elif isinstance(event, ContextCompacted):
            whole = [position for position in event.originals if position != 1]
            assert sum("see below" in line for line in event.summary_message.splitlines()) == len(whole)
            left = [texts[message] for message in taken if message not in whole]
            for text in (task, *left, *standing[-50:], event.summary):
                assert text in event.summary_message


@given(SEEDS)
def test_a_compaction_loses_no_unanswered_message(seed: int) -> None:
    """A summary replaces only messages that the LLM has read; later ones stay in the transcript, verbatim."""
    whole = Transcript(keep_all=True)
    originals: dict[int, bytes] = {}
    length = 0
    for event in play(seed).thread.log:
        if isinstance(event, ContextCompacted):
            assert event.messages + event.kept == length
            kept = whole.messages[whole.length - event.kept :]
            again = [message for message in map(originals.__getitem__, event.originals) if message not in kept]
            length = 1 + len(again) + event.kept
            whole.add(event)
        else:
            if isinstance(event, UserMessageReceived):
                originals[event.position] = encode(UserMessage(content=event.content))
            before = whole.length
            whole.add(event)
            length += whole.length - before


def content_with_file(text: str, size: int = 10, kind: str = "image") -> list[dict[str, Any]]:
    """Return content with an image, or another file, of about that many bytes."""
    media = {"type": kind, "data": "AAAA" * (size // 4 + 1), "media_type": "image/png"}
    return [{"type": "text", "text": text}, media]


@given(
    st.lists(st.tuples(st.integers(0, 900_000), st.sampled_from(["image", "file", ""])), max_size=5),
    st.integers(0, 900_000) | st.none(),
    st.booleans(),
    st.sampled_from([0, 1]),
)
def test_images_survive_every_compaction_or_are_named(
    messages: list[tuple[int, str]], task: int | None, elsewhere: bool, features: int
) -> None:
    """The task's blocks and, within the limit, those of later messages follow each summary byte for byte."""
    given_task: Any = "the task" if task is None else content_with_file("the task", task)
    limits = Limits(compaction_tokens=1_000, **UNGUARDED)
    thread = loaded_thread(agent_spec(limits=limits), task=given_task, features=features)
    said: list[Any] = []
    for step, (size, kind) in enumerate(messages):
        content: Any = content_with_file(f"said {step}", size, kind) if kind else f"said {step}"
        assert thread.say(content) == "queued"
        said.append(content)
        for _ in ("the reply in progress", "the reply to the message"):
            thread.reply(calls("look", first=thread.state.calls.count))
            thread.finish(thread.state.calls.count)
    for count in range(2):
        while not thread.summarizing():
            long = Usage(prompt_tokens=2_000 * (thread.state.steps.count - thread.state.context.compacted_at + 1))
            thread.reply(calls("look", first=1_000 + thread.state.steps.count).model_copy(update={"usage": long}))
            thread.continue_suggested = elsewhere
            thread.finish(thread.state.calls.count)
            while thread.waiting(ArchiveRequest):
                thread.archive()
            thread.continue_suggested = False
        thread.reply(says(f"summary {count}"))
        summary_message, *others = [message["content"] for message in thread.messages()]
        if task is not None:
            assert others[0] == given_task
        else:
            assert "the task" in summary_message
        for content in said:
            assert content in others or (content if isinstance(content, str) else content[0]["text"]) in summary_message
        left_out = sum(isinstance(content, list) and content not in others for content in said)
        assert summary_message.count("and left out here") == left_out
        assert ("## Said since, word for word\n" in summary_message) == (bool(said) and not left_out)
        carried = [content for content in others if isinstance(content, list)]
        assert len(json.dumps(carried)) < 1_050_000
        assert len(thread.run.transcript.base.model_dump_json()) < 1_100_000, "each is carried once"
        thread.check_consistent()
    assert max([0, *thread.snapshots]) < MAX_BYTES


def test_the_newest_images_survive_and_the_task_always_does() -> None:
    """If they do not all fit, the oldest follow-up's blocks are left out and named with their message."""
    thread = loaded_thread(
        agent_spec(limits=Limits(compaction_tokens=1_000)), task=content_with_file("the task", 500_000)
    )
    for step in range(5):
        if step in (0, 2):
            assert thread.say(content_with_file(f"said {step // 2}", 400_000, "file")) == "queued"
        thread.reply(calls("look", first=step).model_copy(update={"usage": Usage(prompt_tokens=1_000 * (step // 4))}))
        thread.finish(step + 1)
    thread.reply(says("so far"))
    summary_message, *others = [message["content"] for message in thread.messages()]
    assert others == [content_with_file("the task", 500_000), content_with_file("said 1", 400_000, "file")]
    (older, newer) = (event.position for event in events_of(thread.log, UserMessageReceived)[1:])
    assert f"- said 0[file]\n  [file of message {older}: in the log, and left out here]" in summary_message
    assert f"- [message {newer}, with file: see below]" in summary_message


def test_an_unanswered_message_with_an_image_is_there_once() -> None:
    """A compaction that keeps unanswered messages does not repeat their images after the summary."""
    thread = loaded_thread()
    thread.reply(calls("look"))
    thread.say(content_with_file("look at this"))
    thread.finish(1)
    thread.refuse(CONTEXT_TOO_LONG)
    thread.reply(says("so far"))
    contents = [message["content"] for message in thread.messages()]
    assert contents.count(content_with_file("look at this")) == 1
    assert "see below" in contents[0]


def test_text_in_blocks_is_bounded_like_any_text() -> None:
    """A megabyte of text in content blocks would be in every snapshot twice."""
    thread = loaded_thread()
    assert thread.say(content_with_file("x" * 200_000)) == "too_long"
    assert thread.say([{}] * 100_000) == "malformed"
    assert thread.say([{"type": "text", "text": ""}] * 50_000 + [{"type": "text", "text": "x"}]) == "too_long"
    assert thread.say(content_with_file("x" * 190_000, 700_000)) == "queued"


def test_the_plays_have_everything_in_them() -> None:
    """As a control, the plays have compactions, continue-as-new, interrupted and re-opened threads, and all kinds of
    events.
    """
    kinds: Counter[str] = Counter()
    for seed in range(PLAYS):
        kinds.update(play(seed).thread.types())
        kinds.update(outcome for outcome in play(seed).sent_messages.values())
        kinds["conflict"] += not play(seed).thread.intact
        kinds["kept"] += any(event.kept for event in events_of(play(seed).thread.log, ContextCompacted))
        kinds["closed"] += play(seed).terminated
        kinds.update(event.outcome for event in events_of(play(seed).thread.log, DecisionReceived))
    for kind in {each.model_fields["type"].default for each in get_args(get_args(AgentEvent)[0])} - ELSEWHERE:
        assert kinds[kind], kind
    for wanted in (
        "accepted",
        "queued",
        "interrupting",
        "busy",
        "too_late",
        "conflict",
        "kept",
        "closed",
        "judged_anew",
    ):
        assert kinds[wanted], wanted


def test_a_request_that_does_not_fit_is_compacted_twice_then_blocks() -> None:
    """Section 13: compact the answered messages, then all, then wait for a person; `retry` asks once more."""
    thread = loaded_thread()
    thread.reply(calls("look"))
    thread.finish(1, "a result")
    thread.refuse(CONTEXT_TOO_LONG)
    assert thread.summarizing()
    thread.reply(says("so far"))
    assert thread.messages()[1:] != [], "what was not answered yet stays"
    assert thread.messages()[-1]["content"] == "a result"
    thread.refuse(CONTEXT_TOO_LONG)
    assert not thread.summarizing()
    assert len(thread.messages()) == 1
    thread.refuse(CONTEXT_TOO_LONG)
    assert thread.state.blocked
    assert thread.state.blocked.cause == CONTEXT_TOO_LONG
    thread.signal("retry", {"by": "bob"})
    assert (thread.calling_llm(), thread.state.status) == (True, "running")
    thread.reply(says("done"))
    assert thread.state.outcome == "completed"


def test_a_task_that_does_not_fit_blocks_and_each_retry_asks_once_more() -> None:
    """There is nothing to compact; the run waits until a person has configured a larger window."""
    thread = loaded_thread()
    for _ in range(3):
        thread.refuse(CONTEXT_TOO_LONG)
        assert thread.state.status == "blocked"
        thread.signal("retry")
        assert thread.calling_llm()
    thread.reply(says("done"))
    assert thread.state.outcome == "completed"


def test_a_compaction_whose_request_does_not_fit_has_no_summary() -> None:
    """If even the answered part is too large, the run continues with the verbatim messages."""
    thread = loaded_thread()
    thread.reply(calls("look"))
    thread.finish(1)
    thread.refuse(CONTEXT_TOO_LONG)
    thread.refuse(CONTEXT_TOO_LONG)
    (compaction,) = events_of(thread.log, ContextCompacted)
    assert "There is no summary" in compaction.summary_message
    assert "the task" in compaction.summary_message
    assert thread.calling_llm()


def test_a_compaction_by_size_waits_for_the_end_of_the_step_and_is_not_made_at_every_step() -> None:
    """A reported size over the limit leads to one compaction; the step after it shows whether it helped."""
    thread = loaded_thread(agent_spec(limits=Limits(compaction_tokens=1_000)))
    long = Usage(prompt_tokens=990, completion_tokens=10)
    compactions = []
    for step in range(6):
        thread.reply(calls("look", first=step).model_copy(update={"usage": long}))
        thread.finish(step + 1)
        compactions.append(thread.summarizing())
        if compactions[-1]:
            thread.reply(says("so far"))
    assert compactions == [False, True, False, True, False, True]


def test_a_context_that_compaction_cannot_shrink_is_compacted_when_it_has_doubled_and_says_so() -> None:
    """A task over the limit does not cause a compaction at every second step, each a summary of a summary, but a
    warning.
    """
    thread = loaded_thread(agent_spec(limits=Limits(compaction_tokens=1_000, **UNGUARDED)), features=1)

    def step(tokens: int) -> bool:
        reply = calls("look", first=thread.state.steps.count)
        thread.reply(reply.model_copy(update={"usage": Usage(prompt_tokens=tokens)}))
        thread.finish(thread.state.calls.count)
        return thread.summarizing()

    assert [step(1_200 + 200 * count) for count in range(7)] == [False] * 6 + [True]
    assert "1,200 tokens of 1,000 (compaction_tokens)" in state_view(thread.state)["warning"]
    assert "### Warning" in current_details(thread.state)
    thread.reply(says("so far"))
    assert state_view(thread.state)["warning"] == "", "not known before the next request"
    assert not step(1_300)
    assert "1,300 tokens of 1,000" in state_view(thread.state)["warning"]
    thread.refuse(CONTEXT_TOO_LONG)
    assert thread.summarizing()
    thread.reply(says("so far"))
    assert [step(300), step(900), step(1_000)] == [False, False, True], "compaction helps again"
    assert state_view(thread.state)["warning"] == ""
    thread.check_consistent()


def test_people_ask_for_a_compaction() -> None:
    """`compact` runs once, at the end of the step, and the log names its sender; below its level it has no effect."""
    thread = loaded_thread(features=1)
    assert thread.update("compact", {"by": "bob"})["outcome"] == "nothing_to_compact"
    thread.reply(calls("pay"))
    assert thread.update("compact", {"by": "bob", "reason": "new topic"})["outcome"] == "accepted"
    assert thread.update("compact", {"by": "eve"})["outcome"] == "duplicate"
    assert not thread.calling_llm(), "a call waits for approval"
    thread.decide("1", "deny", by="alice")
    assert thread.summarizing()
    thread.reply(says("so far"))
    assert not thread.summarizing()
    assert thread.calling_llm()
    (requests,) = events_of(thread.log, CompactionRequested)
    assert (requests.by, requests.reason) == ("bob", "new topic")
    assert thread.update("compact", {"by": "bob"})["outcome"] == "nothing_to_compact"
    thread.check_consistent()

    older = loaded_thread()
    older.reply(calls("pay"))
    rejection = older.run.refused("compact", {"by": "bob"}, at=older.at)
    assert rejection is not None
    assert rejection["outcome"] == "unknown_update"
    older.signal("compact", {"by": "bob"})
    assert events_of(older.log, SignalRejected)[-1].outcome == "unknown_signal"


def test_a_run_that_waits_for_a_message_is_compacted_at_once_and_still_closes() -> None:
    """The wait continues meanwhile, and does not end in the middle of the compaction."""
    thread = loaded_thread(agent_spec(limits=Limits(idle_limit=5)), features=1)
    thread.reply(says("done"))
    assert thread.update("compact", {"by": "bob"})["outcome"] == "accepted"
    assert thread.summarizing()
    thread.at += timedelta(seconds=60)
    thread.signal("nonsense")
    assert thread.state.status == "waiting_message"
    thread.reply(says("so far"))
    assert thread.state.context.summary == "so far"
    thread.wake()
    assert thread.state.outcome == "completed"


@pytest.mark.parametrize("cause", [CONTEXT_TOO_LONG, LLM_REJECTED])
def test_a_compaction_that_fails_while_a_run_waits_leaves_it_waiting(cause: str) -> None:
    """People can request it again; the wait for a message ends as it would have."""
    thread = loaded_thread(agent_spec(limits=Limits(idle_limit=5)), features=1)
    thread.reply(says("done"))
    thread.signal("compact", {"by": "bob"})
    thread.refuse(cause)
    assert not thread.calling_llm()
    assert thread.state.awaits_message
    assert thread.state.status == ("blocked" if cause == LLM_REJECTED else "waiting_message")
    assert thread.update("compact", None)["outcome"] == "accepted"
    if cause == LLM_REJECTED:
        thread.signal("retry", {"by": "bob"})
    assert thread.summarizing()
    thread.reply(says("so far"))
    thread.at += timedelta(seconds=60)
    thread.wake()
    assert thread.state.outcome == "completed"
    thread.check_consistent()


# Continue-as-new.


def test_a_snapshot_is_bounded_however_long_the_thread() -> None:
    """After hundreds of steps with denials, messages and compactions, the snapshot has the same size."""
    limits = Limits(max_steps=10_000, compaction_tokens=1_000)
    thread = loaded_thread(agent_spec(limits=limits))
    for step in range(400):
        thread.continue_suggested = False
        if step % 7 == 0:
            thread.say(f"and mind {step}" + "x" * 2_000)
        usage = Usage(prompt_tokens=2_000 if step % 20 == 19 else 10)
        thread.reply(calls("look", "wipe", first=step * 10).model_copy(update={"usage": usage}))
        thread.continue_suggested = step % 10 == 0
        thread.finish(step * 2 + 1, "a result " * 20)
        while thread.waiting(ArchiveRequest):
            thread.archive()
        if thread.summarizing():
            thread.reply(says(f"summary at {step} " + "x" * 1_000))
    assert len(thread.snapshots) > 30
    assert max(thread.snapshots) < 250_000
    assert max(thread.snapshots[-10:]) < 1.1 * max(thread.snapshots[-20:-10])
    thread.continue_suggested = False
    thread.reply(says("done"))
    thread.archive()
    thread.check_consistent()


def test_a_run_continues_as_new_in_the_middle_of_a_step() -> None:
    """Of three calls one has run and two wait for a person: the next Temporal run has them unchanged."""
    thread = loaded_thread()
    thread.reply(calls("pay", "look", "pay"))
    thread.continue_suggested = True
    thread.finish(2, "seen")
    first = thread.run
    thread.archive()
    assert thread.run is not first
    thread.continue_suggested = False
    assert [request.id for request in thread.state.authority.requests] == ["1", "2"]
    thread.decide("2")
    thread.finish(3, "paid 3")
    thread.decide("1")
    thread.finish(1, "paid 1")
    results = [message["content"] for message in thread.messages() if message["role"] == "tool"]
    assert results == ["paid 1", "seen", "paid 3"]
    assert thread.calling_llm()


def test_inputs_during_an_archive_are_in_the_snapshot() -> None:
    """A decision and a message between the last archive and the next Temporal run are neither lost nor repeated."""
    thread = loaded_thread()
    thread.reply(calls("pay"))
    thread.archive()
    thread.continue_suggested = True
    thread.signal("what?")
    assert thread.waiting(ArchiveRequest)
    assert thread.decide("1") == "accepted"
    assert thread.say("hello") == "queued"
    assert thread.running_calls == [], "nothing is started where the run does not stay"
    thread.continue_suggested = False
    thread.archive()
    assert thread.running_calls == [1] or thread.snapshots
    thread.check_consistent()


def test_a_cancellation_that_comes_with_the_last_archive_is_not_lost() -> None:
    """In one workflow task the archive returns and the run is cancelled: it does not continue as new."""
    thread = loaded_thread()
    thread.reply(calls("pay"))
    thread.archive()
    thread.continue_suggested = True
    thread.signal("what?")
    with thread.one_workflow_task():
        thread.archive()
        thread.cancel()
    thread.archive()
    assert (thread.state.outcome, thread.snapshots) == ("cancelled", [])
    thread.check_consistent()


def test_a_sleep_that_ends_with_the_last_archive_ends_in_the_next_run() -> None:
    """If the archive returns and the idle limit ends in one workflow task, nothing is recorded after the snapshot."""
    thread = loaded_thread(idle_limit=10)
    thread.reply(says("done"))
    thread.archive()
    thread.continue_suggested = True
    thread.signal("what?")
    with thread.one_workflow_task():
        thread.archive()
        thread.wake()
    thread.continue_suggested = False
    thread.check_consistent()
    thread.archive()
    thread.wake()
    while not thread.closed:
        thread.archive()
    assert thread.state.outcome == "completed"
    thread.check_consistent()


def test_a_run_with_an_oversized_snapshot_does_not_continue_as_new() -> None:
    """While a reply of almost a megabyte waits for a person, the run stays open and requests nothing else."""
    thread = loaded_thread()
    call = ToolCall(id="c", name="pay", arguments=json.dumps({"x": "y" * 850_000}))
    thread.continue_suggested = True
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    while thread.waiting(ArchiveRequest):
        thread.archive()
    assert not thread.snapshots
    assert thread.state.status == "waiting_approval"
    thread.decide("1", "deny")
    assert thread.calling_llm(), "the same run makes one more step"


# Threads that are re-opened.


def test_a_thread_closed_from_outside_resumes() -> None:
    """A running effect is resolved, its request closed and a waiting message taken; the numbering continues."""
    thread = loaded_thread()
    thread.reply(calls("look", "pay", "pay"))
    thread.decide("2")
    thread.say("wait for me")
    thread.reopen("go on")
    assert thread.say("early") == "queued"
    assert thread.say("now or never", when_busy="reject") == "busy"
    assert thread.say("") == "malformed"
    assert thread.decide("1") == "unknown_request"
    thread.load_thread()
    thread.load()
    assert thread.running_calls == [3]
    (settling,) = thread.waiting(ToolRequest)
    assert isinstance(settling, Call)
    assert isinstance(settling.request, ToolRequest)
    assert settling.request.settle
    assert settling.request.first_run_id == "r1"
    thread.finish(3, "paid")
    assert [message["content"] for message in thread.messages() if message["role"] == "user"] == [
        "the task",
        "wait for me",
        "go on",
        "early",
    ]
    statuses = {event.number: event.status for event in events_of(thread.log, ToolCallFinished)}
    assert statuses == {1: "cancelled", 2: "cancelled", 3: "ok"}
    thread.reply(calls("look"))
    assert thread.running_calls == [4]
    thread.check_consistent()


@given(SEEDS, st.data())
def test_a_thread_has_ended_when_its_last_run_has(seed: int, data: st.DataObject) -> None:
    """After each event, `has_ended` agrees with the state, also after late signals."""
    log = play(seed).thread.log
    length = data.draw(st.integers(1, len(log)))
    events = log[:length]
    ended = snapshot_of(events).state.outcome is not None
    assert has_ended(event.type for event in reversed(events)) == ended


def test_inputs_to_a_closing_run_are_recorded() -> None:
    """A signal after the end of the run is in the record after the end, and the thread has still ended."""
    thread = loaded_thread()
    thread.reply(says("done"))
    for name in ("approve", "retry", "say", "delegate_authority", "what?"):
        thread.signal(name, {"request": "1", "by": "alice", "message": "late", "to": "bob", "seconds": 60})
    while not thread.closed:
        thread.archive()
    types = thread.types()
    assert len(types) > types.index("run_finished") + 4
    assert {*types[types.index("run_finished") + 1 :]} <= LATE
    assert len(thread.record) == len(types)
    assert has_ended(reversed(types))
    thread.reopen()
    thread.load_thread()
    thread.load()
    assert not has_ended(reversed(thread.types()))


# Any input.

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=20)
FIELDS = ["message", "by", "when_busy", "request", "decision", "reason", "digest", "result", "type", "text"]
WORDS = st.sampled_from([*FIELDS, "queue", "interrupt", "reject", "approve", "deny", "happened", "absent", "1"])
PAYLOADS = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=6),
    max_leaves=12,
)
MESSAGES = st.fixed_dictionaries(
    {"message": st.lists(st.dictionaries(WORDS, PAYLOADS, max_size=4) | st.just({"text": "hello"}), max_size=3)},
    optional={"when_busy": WORDS, "by": PAYLOADS},
)


@settings(max_examples=examples(25, 300))
@given(
    st.sampled_from(["approve", "deny", "reconcile", "retry", "say", "decide", "\ud800", ""]),
    PAYLOADS | MESSAGES,
    st.booleans(),
    st.booleans(),
)
@example("say", {"message": [{"text": "x", "y": float("nan")}]}, False, False)
@example("say", {"message": [{"text": "x", "y": "\ud800"}]}, True, False)
@example("say", '{"message": [{"text": "x", "y": ' + "[" * 300 + "]" * 300 + "}]}", False, True)
@example("say", {"message": [{"text": "x", "y": json.loads("[" * 190 + "]" * 190)}]}, False, False)
def test_no_input_of_any_shape_breaks_a_run(name: str, payload: Any, as_text: bool, update: bool) -> None:
    """Any JSON in a signal or update is recorded so that state, snapshot and record keep it unchanged."""
    if as_text:
        payload = json.dumps(payload)
    else:
        try:
            payload = ANY.validate_json(json.dumps(payload))  # the SDK drops undecodable arguments
        except ValidationError:
            return
    thread = loaded_thread()
    thread.reply(calls("pay", "look"))
    if update and name in ("say", "decide"):
        to_json(thread.update(name, payload))
    elif name != "\ud800":
        thread.signal(name, payload)
    thread.finish(2) if 2 in thread.running_calls else None
    to_json(state_view(thread.state))
    current_details(thread.state).encode()
    snapshot = RunSnapshot(state=thread.state, transcript=thread.run.transcript.base, tail=tuple(thread.log))
    assert through_json(snapshot) == snapshot
    page = thread.run.log.page(0)
    assert read_lines("t", 0, page.split(b"\n")) == thread.log
    thread.check_consistent()


@given(st.text(st.characters(codec=None), max_size=30))
@example('{"x": "\ud800"}')
@example('{"x": "\\ud800"}')
@example('{"x": NaN}')
@example("[" * 5_000)
def test_any_arguments_can_be_shown(arguments: str) -> None:
    """`show`, `pending` and the Web UI can show any arguments, even if some parsers reject them."""
    thread = loaded_thread()
    call = ToolCall(id="c", name="pay", arguments=arguments.encode("utf-8", "replace").decode())
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    assert thread.state.status == "waiting_approval"
    to_json(state_view(thread.state))
    current_details(thread.state).encode()


def test_an_interrupt_cancels_only_the_llm_call_in_progress() -> None:
    """The request is repeated with the message, and a late reply to the first one is ignored."""
    thread = loaded_thread()
    (first,) = thread.waiting(LLMRequest)
    assert thread.say("stop, do this", when_busy="interrupt") == "interrupting"
    (second,) = thread.waiting(LLMRequest)
    assert second is not first
    assert thread.messages()[-1]["content"] == "stop, do this"
    thread.run.ended(first.id, says("late"))
    assert not events_of(thread.log, type(None))
    assert "llm_replied" not in thread.types()


@pytest.mark.parametrize("when_busy", ["queue", "interrupt"])
def test_a_message_during_a_compaction_waits_for_it(when_busy: str) -> None:
    """The summary is completed, and the next request has the message."""
    thread = loaded_thread(agent_spec(limits=Limits(compaction_tokens=1)))
    for step in range(2):
        thread.reply(calls("look", first=step))
        thread.finish(step + 1)
    (compaction,) = thread.waiting(LLMRequest)
    thread.say("and this", when_busy=when_busy)
    assert thread.waiting(LLMRequest) == [compaction]
    thread.reply(says("so far"))
    assert thread.messages()[-1]["content"] == "and this"

"""The transcript's bytes: encoding, pages, clipping, and the whole request."""

import json
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.canonical import canonical, digest
from holdfast.core.llm.messages import AssistantMessage, Usage, UserMessage, encode
from holdfast.core.log import events
from holdfast.core.log.event_log import PAGE_BYTES, page
from holdfast.core.log.events import (
    AgentEvent,
    ContextCompacted,
    LLMReplied,
    MessageTaken,
    RunReset,
    UserMessageReceived,
)
from holdfast.core.tools.effects import PastEffect
from holdfast.core.transcript.prompt import request_prefix
from holdfast.core.transcript.transcript import READ, Transcript, clip
from tests.support.runs import ADAPTER, agent_spec

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    max_leaves=8,
)

UNREAD = {
    events.RunContinued,
    events.RunForked,
    events.MoveRequested,
    events.RunBlocked,
    events.RunUnblocked,
    events.RunPaused,
    events.RunResumed,
    events.RunFinished,
    events.AgentLoaded,
    events.MessageAwaited,
    events.LearningSkipped,
    events.ContextExceeded,
    events.LLMCallLost,
    events.BudgetReserved,
    events.CompactionRequested,
    events.ConstraintLifted,
    events.ContextUpdated,
    events.NodeAccepted,
    events.NodeAwaited,
    events.PolicyChangeRequested,
    events.PolicyChanged,
    events.PolicyChangeFailed,
    events.ToolCallRerouted,
    events.DormancyBegan,
    events.WaitPolled,
    events.WakeReceived,
    events.SubagentStarted,
    events.SubagentEnded,
    events.VerdictGiven,
    events.ToolCallPostponed,
    events.ToolCallStarted,
    events.AnswerRequested,
    events.ApprovalRequested,
    events.PreviewRequested,
    events.ReconcileRequested,
    events.ApprovalReminded,
    events.ApprovalEscalated,
    events.ApprovalExpired,
    events.DecisionReceived,
    events.RuleRemembered,
    events.RuleRevoked,
    events.AuthorityDelegated,
    events.DelegationRevoked,
    events.KeyRevoked,
    events.BaselineRecorded,
    events.SignalRejected,
    events.RefusalsCounted,
}
"""Events that add no message to the transcript."""


def test_every_type_of_event_is_read_or_known_to_be_unread() -> None:
    """A new type of event has to be added to `READ` or to the set above."""
    union, *_ = get_args(AgentEvent)
    assert set(get_args(union)) == {*READ, *UNREAD}
    assert not UNREAD & {*READ}


@given(st.text())
def test_a_message_is_one_line_of_json(text: str) -> None:
    """Encoded messages contain no line break, so a page can be split at them; nothing is lost."""
    encoded = encode(UserMessage(content=text))
    assert b"\n" not in encoded
    assert json.loads(encoded) == {"role": "user", "content": text}


def test_a_request_is_valid_json() -> None:
    """Prefix and messages, joined as bytes, are one valid request."""
    spec = agent_spec(llm_options={"temperature": 0})
    body = json.loads(ADAPTER.body(request_prefix(spec, ADAPTER), [ADAPTER.encode(UserMessage(content="hi"))]))
    assert (body["model"], body["temperature"]) == ("scripted", 0)
    assert body["messages"] == [{"role": "system", "content": "Work."}, {"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["look", "pay", "wipe"]


def test_an_agent_without_tools_sends_none() -> None:
    """The API rejects an empty list of tools."""
    assert "tools" not in json.loads(ADAPTER.body(request_prefix(agent_spec(tools=()), ADAPTER), []))


@given(st.lists(st.binary(max_size=PAGE_BYTES // 3).map(lambda line: line.replace(b"\n", b"") or b"x"), max_size=8))
def test_pages_together_are_everything_and_none_is_too_large(lines: list[bytes]) -> None:
    """Reading page after page returns every line once; a page is bounded unless one line alone is larger."""
    read: list[bytes] = []
    while part := page(lines[len(read) :]):
        assert len(part) <= PAGE_BYTES + len(lines)
        read += part.split(b"\n")
    assert read == lines


def test_a_line_larger_than_a_page_has_a_page_of_its_own() -> None:
    """Every line can be read, at any size."""
    assert page([b"x" * (PAGE_BYTES + 1), b"y"]) == b"x" * (PAGE_BYTES + 1)


@given(st.text(max_size=400), st.integers(20, 200))
def test_clipping_keeps_head_and_tail_and_counts_the_rest(text: str, limit: int) -> None:
    """Short text is unchanged; of long text the first and last part remain, `limit` characters in all."""
    clipped = clip(text, limit)
    if len(text) <= limit:
        assert clipped == text
    else:
        head, tail = limit * 2 // 3, limit - limit * 2 // 3
        assert clipped.startswith(text[:head])
        assert clipped.endswith(text[-tail:])
        assert f"{len(text) - limit:,} of {len(text):,}" in clipped


def test_pages_of_a_transcript_start_where_asked() -> None:
    """A reader that has n messages requests the page from n on."""
    transcript = Transcript()
    transcript.add(UserMessageReceived(content="a", position=1))
    transcript.add(UserMessageReceived(content="b", position=2))
    transcript.add(MessageTaken(message=2))
    assert transcript.page(1) == transcript.messages[1]
    assert transcript.page(2) == b""


@given(JSON)
def test_the_digest_covers_the_meaning(value: object) -> None:
    """Two spellings of the same JSON have one digest, which survives a round trip."""
    assert digest(json.loads(json.dumps(value))) == digest(value)
    assert canonical(json.loads(canonical(value))) == canonical(value)


def replied(position: int, text: str) -> LLMReplied:
    """Return the event of a reply."""
    message = AssistantMessage(content=text)
    return LLMReplied(
        position=position, message=message, transcript_length=0, usage=Usage(), finish_reason="stop", llm=""
    )


def test_a_transcript_is_rebuilt_from_a_note_older_than_the_messages() -> None:
    """A compaction keeps a note that the LLM has not read yet; rebuilding begins there, without the earlier message."""
    effect = PastEffect(number=1, first_run_id="r", tool="pay", call_digest="d", key="k", status="ok")
    log: list[AgentEvent] = [
        UserMessageReceived(position=1, content="task", task=True),
        replied(2, "hi"),
        UserMessageReceived(position=3, content="more"),
        RunReset(position=4, effects=(effect,), asking=True),
        MessageTaken(position=5, message=3),
        ContextCompacted(position=6, summary_message="summary", summary="s", messages=3),
        replied(7, "go"),
    ]
    live, rebuilt = Transcript(), Transcript()
    for event in log:
        live.add(event)
    for event in log[live.base.since - 1 :]:  # position 0 is `run_started`
        rebuilt.add(event)
    assert live.base.since == 4
    assert (rebuilt.messages, rebuilt.head) == (live.messages, live.head)
    assert b"was reset" in live.messages[-1]

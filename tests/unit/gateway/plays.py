"""Random threads for feeds: their events, the attempts at their replies, and a reader that can resume at any id."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.llm.blocks import ReasoningBlock, TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log import events as ev
from holdfast.core.streams.chunks import Chunk, ChunkKind, Cursor
from holdfast.core.streams.following import Following

WORDS = st.sampled_from(["pay", "pay it", "ä", "I ", "will ", "not ", "🙂", "refund 5", "refund 7"])
TEXTS = st.lists(WORDS, max_size=4).map("".join)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Play:
    """A thread: its events, and the chunks of the attempts at each reply, by the reply's position."""

    events: list[ev.AgentEvent] = field(default_factory=list)
    attempts: dict[int, list[list[tuple[ChunkKind, str]]]] = field(default_factory=dict)
    calls: int = 0

    def add(self, kind: Callable[..., Any], **fields: Any) -> None:
        """Record an event."""
        self.events.append(kind(position=len(self.events), at=NOW, **fields))


def request(number: int) -> ApprovalRequest:
    """Return an open request about a call."""
    digest = f"{number:064x}"
    return ApprovalRequest(
        id=str(number),
        kind="approval",
        number=number,
        digest=digest,
        tool="pay",
        arguments='{"cents":5}',
        why="it costs money",
        asked_at=NOW,
    )


@st.composite
def plays(draw: st.DrawFn) -> Play:
    """Return a thread of one or two runs."""
    play = Play()
    for _ in range(draw(st.integers(1, 2))):
        play.add(ev.RunStarted, thread="t", run_id="r", first_run_id="r", agent=None)
        _receive(play, draw(TEXTS) or "do it", task=True)
        for _ in range(draw(st.integers(1, 2))):
            for _ in range(draw(st.integers(0, 2))):
                _step(draw, play)
            _reply(draw, play, draw(TEXTS) or "Done.", 0)
            play.add(ev.MessageAwaited, result="Done.")
            if draw(st.booleans()):
                _receive(play, "more")
        if draw(st.booleans()):
            play.add(ev.LearningRequested, notice="learn")
            _reply(draw, play, "I learnt", 1)
            _call(draw, play, ("run",))
        play.add(ev.RunFinished, outcome=draw(st.sampled_from(["completed", "failed", "cancelled"])), result="end")
    return play


def _receive(play: Play, text: str, *, task: bool = False) -> None:
    play.add(ev.UserMessageReceived, content=text, by="ann", task=task, id=f"m{len(play.events)}")


def _reply(draw: st.DrawFn, play: Play, text: str, calls: int) -> None:
    thought, tries = draw(TEXTS), list[list[tuple[ChunkKind, str]]]()
    for _ in range(draw(st.integers(0, 2))):
        tries.append(_attempt(draw, _variant(draw, thought), _variant(draw, text)))
    if draw(st.booleans()):
        tries.append(_attempt(draw, thought, text))
    if tries and draw(st.integers(0, 5)) == 0:
        play.attempts[len(play.events)] = tries
        if draw(st.booleans()):
            play.add(ev.LLMCallLost, attempts=1, request_tokens=1)
        else:
            play.add(ev.RunBlocked, cause="Outage", message="no reply")
            play.add(ev.RunUnblocked, by="ann")
    play.attempts[len(play.events)] = tries
    blocks: tuple[ReasoningBlock | TextBlock | ToolCall, ...] = (
        *([ReasoningBlock(text=thought)] if thought else []),
        *([TextBlock(text=text)] if text else []),
        *(_tool_call() for _ in range(calls)),
    )
    fields = {"transcript_length": 1, "usage": Usage(), "finish_reason": "stop", "llm": "fake"}
    play.add(ev.LLMReplied, message=AssistantMessage(content=blocks), **fields)


def _variant(draw: st.DrawFn, text: str) -> str:
    other = draw(TEXTS)
    return draw(st.sampled_from([text, text[: len(text) // 2], other, text + other]))


def _attempt(draw: st.DrawFn, thought: str, text: str) -> list[tuple[ChunkKind, str]]:
    """Return the pieces of an attempt: the LLM thinks first, and may think on between its words."""
    said, thoughts = _pieces(draw, text), _pieces(draw, thought)
    late = draw(st.integers(0, len(thoughts)))
    at = draw(st.integers(0, len(said)))
    thinks: list[tuple[ChunkKind, str]] = [("reasoning", each) for each in thoughts]
    words: list[tuple[ChunkKind, str]] = [("text", each) for each in said]
    return [*thinks[:late], *words[:at], *thinks[late:], *words[at:]]


def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=3))})
    return [text[start:stop] for start, stop in pairwise(cuts)]


def _tool_call() -> ToolCall:
    return ToolCall(id="x", name="pay", arguments='{"cents":5}')


def _step(draw: st.DrawFn, play: Play) -> None:
    calls = draw(st.lists(st.sampled_from(["run", "approve", "expire", "quorum", "message"]), min_size=1, max_size=3))
    _reply(draw, play, draw(TEXTS), len(calls))
    _call(draw, play, tuple(calls))


def _call(draw: st.DrawFn, play: Play, ways: tuple[str, ...]) -> None:
    first = play.calls + 1
    play.calls += len(ways)
    numbers = list(zip(range(first, play.calls + 1), ways, strict=True))
    for number, _ in numbers:
        play.add(ev.ToolCallRequested, number=number, call=_tool_call())
    for number, way in numbers:
        asks = way != "run"
        play.add(ev.VerdictGiven, number=number, verdict="ask" if asks else "allow", rule="r")
        if asks:
            play.add(ev.ApprovalRequested, request=request(number))
    for number, way in draw(st.permutations(numbers)):
        decided = {"request": str(number), "decision": "approve", "by": "ann", "reason": ""}
        if way == "message":
            _receive(play, "hurry")
        if way == "quorum":
            play.add(ev.DecisionReceived, outcome="waiting_for_quorum", **decided)
        if way == "expire":
            play.add(ev.ApprovalExpired, request=str(number), decision="deny")
        elif way != "run":
            play.add(ev.DecisionReceived, outcome="accepted", **decided)
        status = "denied" if way == "expire" else draw(st.sampled_from(["ok", "failed"]))
        play.add(ev.ToolCallFinished, number=number, status=status, content="paid")


def frames(play: Play, cursor: Cursor, *, chunks: bool = True) -> Iterator[ev.AgentEvent | Chunk]:
    """Yield the frames after a cursor, as `read_stream` does; without chunks as if they were lost."""
    following = Following(cursor)
    for event in play.events:
        stored: dict[int, dict[int, Chunk]] = {}
        tries = play.attempts.get(event.position, []) if chunks and event.position > cursor.after else []
        for attempt, pieces in enumerate(tries, start=1):
            for number, (kind, text) in enumerate(pieces, start=1):
                chunk = Chunk(position=event.position, attempt=attempt, chunk=number, kind=kind, text=text)
                stored.setdefault(attempt, {})[number] = chunk
                if (attempt, number) > (cursor.attempt, cursor.chunk) or event.position > cursor.after + 1:
                    yield from following.chunks(stored)
        if following.event({"position": event.position, "type": event.type}):
            yield event

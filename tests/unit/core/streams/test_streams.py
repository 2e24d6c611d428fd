"""Chunks reach a reader in one order with the events, once each, and never beyond the reply that replaces them."""

from collections.abc import Iterable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.llm.deltas import Delta
from holdfast.core.log.events import AgentEvent
from holdfast.core.streams.batches import MOST_CHARS, Batches, Piece
from holdfast.core.streams.chunks import CHUNK_CHARS, Chunk, Cursor
from holdfast.core.streams.drafts import Draft
from holdfast.core.streams.following import ENDS, Following
from holdfast.core.tools.redactor import Redactor
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from tests.support.examples import examples

KEY = "sk-12345678"
SECRETS = Secrets({"KEY": KEY, "LONG": KEY + "90", "WORD": "aabaabaab"})


def grouped(chunks: Iterable[Chunk]) -> dict[int, dict[int, Chunk]]:
    """Return stored chunks as a hub keeps them."""
    attempts: dict[int, dict[int, Chunk]] = {}
    for chunk in chunks:
        attempts.setdefault(chunk.attempt, {}).setdefault(chunk.chunk, chunk)
    return attempts


def stored(position: int, attempt: int, *texts: str, first: int = 1) -> list[Chunk]:
    """Return the chunks of an attempt, as they are stored."""
    return [
        Chunk(position=position, attempt=attempt, chunk=number, kind="text", text=text)
        for number, text in enumerate(texts, first)
    ]


def shown(following: Following, chunks: Iterable[Chunk]) -> list[str]:
    """Return what a reader is shown: `ID TEXT`."""
    return [f"{each.id} {each.text or each.kind}" for each in following.chunks(grouped(chunks))]


def event(position: int, kind: str = "llm_replied") -> dict[str, Any]:
    """Return an event."""
    return {"position": position, "type": kind}


def test_every_kind_of_event_that_ends_a_call_exists() -> None:
    """A name that no event has would leave obsolete chunks on the screen."""
    union = get_args(AgentEvent)[0]
    kinds = {get_args(each.model_fields["type"].annotation)[0] for each in get_args(union)}
    assert kinds >= ENDS


def test_chunks_come_after_the_events_before_their_reply_and_end_with_it() -> None:
    """The order of ids is total: the chunks of a position precede its event, which replaces them."""
    following, chunks = Following(Cursor()), stored(2, 1, "a", "b")
    assert following.event(event(0, "run_started"))
    assert shown(following, chunks) == [], "event 1 is missing"
    assert following.event(event(1, "user_message_received"))
    assert shown(following, chunks) == ["2.1.1 a", "2.1.2 b"]
    assert shown(following, [*chunks, *stored(2, 1, "c", first=3)]) == ["2.1.3 c"]
    assert following.event(event(2))
    assert shown(following, [*chunks, *stored(2, 1, "d", first=4)]) == []


def test_an_event_in_the_middle_of_a_reply_moves_the_ids_of_its_chunks() -> None:
    """A message may be recorded while the LLM writes: the position is always that of the reply to come."""
    following, chunks = Following(Cursor(1)), stored(2, 1, "a", "b", "c")
    assert shown(following, chunks[:1]) == ["2.1.1 a"]
    following.event(event(2, "user_message_received"))
    assert shown(following, chunks[:2]) == ["3.1.2 b"]
    resumed = Following(Cursor.parse("3.1.2"))
    assert not resumed.event(event(2, "user_message_received")), "the reader has it"
    assert shown(resumed, chunks) == ["3.1.3 c"]


def test_another_attempt_begins_with_superseded_and_an_earlier_one_is_never_shown_again() -> None:
    """A reader never joins words of two attempts."""
    following = Following(Cursor(1))
    first, second = stored(2, 1, "a", "b"), stored(2, 2, "x", "y")
    assert shown(following, first[:1]) == ["2.1.1 a"]
    assert shown(following, [*first[:1], *second]) == ["2.2.0 superseded", "2.2.1 x", "2.2.2 y"]
    assert shown(following, [*first, *second]) == []


def test_a_missing_chunk_ends_what_is_shown_of_an_attempt() -> None:
    """Text with a hole would read as if it was whole."""
    following, chunks = Following(Cursor(1)), stored(2, 1, "a", "b", "c")
    assert shown(following, [chunks[0], chunks[2]]) == ["2.1.1 a"]
    assert shown(Following(Cursor(1)), chunks[1:]) == [], "the beginning is missing"


def test_a_reader_that_resumes_at_an_event_within_a_reply_begins_it_again() -> None:
    """The id of an event does not say which chunks came before it: the reader is told to drop them."""
    following, chunks = Following(Cursor(2)), stored(2, 1, "a", "b")
    assert shown(following, chunks) == ["3.1.0 superseded", "3.1.1 a", "3.1.2 b"]
    ended = Following(Cursor(2))
    ended.event(event(2))
    assert shown(ended, chunks) == [], "event 2 was the reply"


@settings(max_examples=examples(40, 2_000))
@given(st.data())
def test_a_reader_that_is_cut_anywhere_gets_the_rest_without_gap_or_repetition(drawn: st.DataObject) -> None:
    """Chunks may be delivered late, twice, in any order and split over any number of connections: what a reader joins
    by the rules is the last attempt's text, and each event comes once.
    """
    texts = {number: [f"{number}{letter}" for letter in "abcd"] for number in (1, 2, 3)}
    chunks = [chunk for number, each in texts.items() for chunk in stored(2, number, *each)]
    late = drawn.draw(st.lists(st.sampled_from(chunks), max_size=20))
    log = [event(0, "run_started"), event(1, "user_message_received")]
    middle = drawn.draw(st.booleans())
    following, text, events = Following(Cursor()), "", []

    def take(visible: list[Chunk], recorded: list[dict[str, Any]]) -> None:
        nonlocal following, text
        for each in recorded:
            if each["position"] >= following.next - 3 and following.event(each):
                events.append(each["position"])
        ids = []
        for chunk in following.chunks(grouped(visible)):
            text = "" if chunk.kind == "superseded" else text + chunk.text
            ids.append(chunk.id)
        if drawn.draw(st.booleans()):  # the connection is cut: the reader has its last id alone
            last = ids[-1] if ids else str(Cursor(following.next - 1, 0, 0)) if not following.attempt else ""
            following = Following(Cursor.parse(last)) if last else following

    for count in range(len(late)):
        take(late[: count + 1], log)
        if middle and count == len(late) // 2:
            log.append(event(2, "user_message_received"))
    take(chunks, log)
    take(chunks, log)
    assert text == "".join(texts[3])
    assert events == [each["position"] for each in log]


@pytest.mark.parametrize("text", ["-1", "0", "12", "13.1.4", "13.2.0"])
def test_a_cursor_is_what_its_id_says(text: str) -> None:
    """Ids are read back as they were sent."""
    assert str(Cursor.parse(text)) == text


@pytest.mark.parametrize("text", ["", "x", "1.2", "1.0.1", "-1.1.1", "1.1.1.1", "٣", " 1", "9" * 17, "1.1.1\n"])
def test_a_text_that_is_no_id_is_rejected(text: str) -> None:
    """A header may hold anything."""
    with pytest.raises(ValueError, match="no id of a stream"):
        Cursor.parse(text)


@settings(max_examples=examples(80, 5_000))
@given(st.lists(st.text("ab-sk1234567890 ", max_size=8) | st.sampled_from([KEY, KEY[:5], KEY[5:], "aab"]), max_size=12))
def test_a_secret_cut_at_any_place_is_redacted_as_in_the_whole_text(pieces: list[str]) -> None:
    """No reader sees a part of a secret, and nothing else is held back to the end."""
    redactor = Redactor(SECRETS)
    joined = "".join([*map(redactor.feed, pieces), redactor.end()])
    assert joined == SECRETS.redact("".join(pieces))
    assert Redactor(SECRETS).feed("a plain text") == "a plain text"


@settings(max_examples=examples(40, 1_000))
@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "reasoning", "arguments"]), st.text(max_size=5) | st.just(KEY[:6])),
        max_size=20,
    ),
    st.integers(1, 5),
)
def test_joined_chunks_are_the_text_of_their_kind(parts: list[tuple[Any, str]], every: int) -> None:
    """Batches lose, double and reorder nothing, whenever they are taken."""
    batches, chunks = Batches(SECRETS), list[Piece]()
    for count, (kind, text) in enumerate(parts):
        batches.add(Delta(kind, text, 0 if kind == "arguments" else None, "pay" if kind == "arguments" else ""))
        if count % every == 0:
            chunks += batches.take()
    batches.finish()
    chunks += batches.take()
    assert [chunk.chunk for chunk in chunks] == list(range(1, len(chunks) + 1))
    for kind in ("text", "reasoning", "arguments"):
        whole = "".join(text for each, text in parts if each == kind)
        assert "".join(chunk.text for chunk in chunks if chunk.kind == kind) == SECRETS.redact(whole)


def test_what_is_streamed_of_a_reply_is_bounded() -> None:
    """A provider that never stops writing fills neither the ring nor the worker's memory."""
    batches, sent = Batches(NO_SECRETS), 0
    for _ in range(300):
        batches.add(Delta("text", "x" * 10_000))
        pieces = batches.take()
        assert all(len(piece.text) <= CHUNK_CHARS for piece in pieces)
        sent += sum(len(piece.text) for piece in pieces)
    assert sent <= MOST_CHARS
    assert batches.full


def test_a_structured_result_is_readable_while_it_is_written() -> None:
    """Each chunk of its call gives a longer value, and the value is whole at the end."""
    draft, values, text = Draft(), [], '{"result": {"city": "Kyiv", "days": [1, 2]}}'
    for number, letter in enumerate(text, 1):
        draft.add(
            Chunk(position=5, attempt=1, chunk=number, kind="arguments", text=letter, call=0, tool="final_result")
        )
        values.append(draft.result)
    assert {"city": "Ky"} in values
    assert values[-1] == {"city": "Kyiv", "days": [1, 2]}
    draft.event({"type": "llm_replied"})
    assert draft.result is None

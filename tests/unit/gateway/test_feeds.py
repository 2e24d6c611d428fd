"""A thread as AG-UI and as UI messages: valid, resumable at every id, and no text twice."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from holdfast.core.llm.blocks import ReasoningBlock, blocks_of
from holdfast.core.streams.chunks import Chunk
from holdfast.gateway.feeds.ag_ui import SUPERSEDED, AgUi
from holdfast.gateway.feeds.conversation import resumes_from
from holdfast.gateway.feeds.feed import Encoder, Feed, Sent
from holdfast.gateway.feeds.place import Place
from holdfast.gateway.feeds.ui_messages import UiMessages
from tests.support.examples import examples
from tests.unit.gateway.plays import Play, frames, plays

PROTOCOLS = Path(__file__).parent / "protocols"
AG_UI = validator_for(json.loads((PROTOCOLS / "ag_ui-1.0.0.json").read_text()))
"""The events of `ag-ui-protocol` 1.0.0, by its own models; a field that they do not have is invalid."""
CHUNKS = json.loads((PROTOCOLS / "ui_message_chunks-6.0.326.json").read_text())
"""Required and optional fields of the chunks of `ai` 6.0.326 (`uiMessageChunkSchema`) that the feed uses."""

ENCODERS: tuple[Callable[[], Encoder], ...] = (lambda: AgUi("t", "run-1"), lambda: UiMessages("t"))


def sent_after(play: Play, encoder: Encoder, place: Place, *, chunks: bool = True) -> Iterator[Sent]:
    """Yield the feed after a place, as the gateway does."""
    events = [event for event in play.events if event.position <= place.cursor.after]
    feed = Feed(encoder, place, events[resumes_from(events) or 0 :])
    for each in frames(play, place.cursor, chunks=chunks):
        yield from feed.chunk(each) if isinstance(each, Chunk) else feed.event(each)


class AgUiClient:
    """What a client of AG-UI shows, by the rules of `@ag-ui/client` (`verifyEvents` and `defaultApplyEvents`)."""

    def __init__(self) -> None:
        self.running = False
        self.texts: dict[str, str] = {}
        self.thoughts: dict[str, str] = {}
        self.open: set[str] = set()
        self.calls: dict[str, str] = {}
        self.others: list[dict[str, Any]] = []

    def take(self, event: dict[str, Any]) -> None:
        """Take an event."""
        kind, text = event["type"], event.get("messageId", "")
        assert self.running != (kind == "RUN_STARTED"), event
        match kind:
            case "RUN_STARTED":
                self.running = True
            case "RUN_FINISHED" | "RUN_ERROR":
                assert not self.open
                self.running = False
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                shown = self._shown(kind)
                assert text not in self.texts.keys() | self.thoughts.keys()
                self.open.add(text)
                shown[text] = ""
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                assert text in self.open
                self._shown(kind)[text] += event["delta"]
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END":
                self.open.remove(text)
            case "ACTIVITY_SNAPSHOT":
                assert event["activityType"] == SUPERSEDED
                assert text not in self.open
                (self.texts if text in self.texts else self.thoughts)[text] = ""
            case "TOOL_CALL_START":
                assert event["toolCallId"] not in self.calls
                self.calls[event["toolCallId"]] = "open"
            case "TOOL_CALL_RESULT":
                assert self.calls[event["toolCallId"]] == "open"
                self.calls[event["toolCallId"]] = event["content"]
        if not kind.startswith(("TEXT", "REASONING", "ACTIVITY")):
            self.others.append(event)

    def _shown(self, kind: str) -> dict[str, str]:
        return self.texts if kind.startswith("TEXT") else self.thoughts

    @property
    def shown(self) -> tuple[list[str], list[str], dict[str, str], list[dict[str, Any]]]:
        """Everything that stays on the screen."""
        return _kept(self.texts), _kept(self.thoughts), self.calls, self.others


class ChatClient:
    """What a client of the AI SDK shows, by the rules of `processUIMessageStream`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.thoughts: dict[str, str] = {}
        self.open: set[str] = set()
        self.calls: set[str] = set()
        self.others: list[dict[str, Any]] = []

    def take(self, event: dict[str, Any]) -> None:
        """Take a chunk."""
        kind, id = event["type"], event.get("id", "")
        shown = self.texts if kind.startswith("text") else self.thoughts
        match kind:
            case "text-start" | "reasoning-start":
                assert id not in self.texts.keys() | self.thoughts.keys()
                self.open.add(id)
                shown[id] = ""
            case "text-delta" | "reasoning-delta":
                assert id in self.open
                shown[id] += event["delta"]
            case "text-end" | "reasoning-end":
                self.open.remove(id)
                if event.get("providerMetadata") == {"holdfast": {"superseded": True}}:
                    shown[id] = ""
            case "tool-input-available":
                self.calls.add(event["toolCallId"])
            case "tool-output-available" | "tool-output-error" | "tool-output-denied" | "tool-approval-request":
                assert event["toolCallId"] in self.calls, "the stock client throws"
            case "finish":
                assert not self.open
        if not kind.startswith(("text", "reasoning")):
            self.others.append(event)

    @property
    def shown(self) -> tuple[list[str], list[str], list[dict[str, Any]]]:
        """Everything that stays on the screen."""
        return _kept(self.texts), _kept(self.thoughts), self.others


def _kept(texts: dict[str, str]) -> list[str]:
    return [text for text in texts.values() if text]


def client_of(encoder: Encoder, events: Iterable[Sent]) -> Any:
    """Return the client that has taken events."""
    client = AgUiClient() if isinstance(encoder, AgUi) else ChatClient()
    for each in events:
        client.take(each.event)
    return client.shown


def gist(events: Iterable[Sent]) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Return the events of no text, and those of each text: an attempt may come in other pieces."""
    others, texts = list[dict[str, Any]](), dict[str, list[str]]()
    for _, event in events:
        kind = event["type"]
        if not kind.startswith(("TEXT", "REASONING", "ACTIVITY", "text", "reasoning")):
            others.append(event)
            continue
        parts = texts.setdefault(event.get("messageId") or event["id"], [])
        if "delta" in event and parts and parts[-1].startswith("+"):
            parts[-1] += event["delta"]
        else:
            parts.append(f"+{event['delta']}" if "delta" in event else json.dumps(event))
    return others, texts


@settings(max_examples=examples(25, 1_000))
@given(plays())
def test_every_event_is_valid_and_each_reply_is_shown_once_as_it_was_recorded(play: Play) -> None:
    """Whatever attempts begin, a client ends with the recorded replies and their reasoning, in order, and nothing else;
    every event is one that the protocol has, at a time at which its client takes it.
    """
    recorded = [each.message for each in play.events if each.type == "llm_replied" and each.message]
    said = [each for each in recorded if each.text != "I learnt"]
    thoughts = [block.text for each in said for block in blocks_of(each.content) if isinstance(block, ReasoningBlock)]
    for make in ENCODERS:
        sent = list(sent_after(play, make(), Place()))
        assert client_of(make(), sent)[:2] == ([each.text for each in said if each.text], thoughts)
        for each in sent:
            if isinstance(make(), AgUi):
                AG_UI.validate(each.event)
            else:
                required, optional = CHUNKS[each.event["type"]]
                assert set(required) <= set(each.event) <= {*required, *optional}


@settings(max_examples=examples(3, 400))
@given(plays())
def test_a_feed_that_is_cut_anywhere_and_resumed_is_the_whole_feed(play: Play) -> None:
    """After any id, a client gets exactly the rest of each text, and of all else; if the chunks are gone meanwhile, it
    shows the same in the end.
    """
    for make in ENCODERS:
        whole = list(sent_after(play, make(), Place()))
        assert len({each.id for each in whole}) == len(whole)
        for number, each in enumerate(whole):
            place = Place.parse(each.id)
            assert str(place) == each.id
            rest = list(sent_after(play, make(), place))
            assert gist(rest) == gist(whole[number + 1 :])
            assert len({each.id for each in [*whole[: number + 1], *rest]}) == number + 1 + len(rest)
            lost = list(sent_after(play, make(), place, chunks=False))
            assert client_of(make(), [*whole[: number + 1], *lost]) == client_of(make(), whole)


@settings(max_examples=examples(10, 400))
@given(plays(), st.data())
def test_a_feed_can_be_cut_many_times(play: Play, data: st.DataObject) -> None:
    """Each connection may bring one event, or several, with or without the chunks."""
    for make in ENCODERS:
        expected, have, place = client_of(make(), sent_after(play, make(), Place())), list[Sent](), Place()
        while True:
            chunks, most = data.draw(st.booleans()), data.draw(st.integers(1, 20))
            new = [sent for sent, _ in zip(sent_after(play, make(), place, chunks=chunks), range(most), strict=False)]
            if not new:
                break
            have += new
            place = Place.parse(new[-1].id)
        assert client_of(make(), have) == expected


def test_a_repeated_attempt_adds_nothing_until_it_says_more() -> None:
    """An attempt that begins again with the same words is not shown again, and one that differs replaces the first."""
    from holdfast.gateway.feeds.reply_text import ReplyText
    from holdfast.gateway.feeds.steps import TextAdded, TextEnded, TextStarted, TextWithdrawn

    text = ReplyText()
    assert list(text.add("I will ")) == [TextStarted("reply-0"), TextAdded("reply-0", "I will ")]
    text.begin_attempt()
    assert not [*text.add("I "), *text.add("will")]
    assert list(text.add(" pay")) == [TextAdded("reply-0", "pay")]
    text.begin_attempt()
    assert list(text.record("I refuse")) == [
        TextEnded("reply-0", withdrawn=True),
        TextWithdrawn("reply-0"),
        TextStarted("reply-0-1"),
        TextAdded("reply-0-1", "I refuse"),
        TextEnded("reply-0-1"),
    ]


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "1.1", "1~1.1.1", "1~1.1.1.x", "1!1.1.1", "1!0.1.1.o~0.1.1.o", "1_", "-1.1.1", "9" * 17, "1.0.1", "1 "],
)
def test_what_is_no_place_is_rejected(wrong: str) -> None:
    """An id that no feed and no stream of events gives out is an error, not a place."""
    with pytest.raises(ValueError, match="id of"):
        Place.parse(wrong)

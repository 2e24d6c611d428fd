"""Lines read from the permanent record, and addresses of content."""

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.canonical import GENESIS, address_of, canonical, chain, digest_of
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, MessageTaken, UserMessageReceived
from holdfast.core.log.stored_lines import end_of_chain, read_lines
from holdfast.errors import ArtifactNotFound, RecordUnreadable

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def recorded(*texts: str) -> tuple[list[AgentEvent], list[bytes]]:
    """Return a log with these messages, and its lines."""
    log = EventLog()
    for text in texts:
        log.append(UserMessageReceived(content=text), at=AT)
    return log.events, [event_line(event) for event in log.events]


def with_values(line: bytes, **changes: object) -> bytes:
    """Return the line with other values."""
    return canonical(json.loads(line) | changes)


@given(st.lists(st.text(st.characters(codec=None)), max_size=4))
def test_lines_are_read_back_as_equal_events(texts: list[str]) -> None:
    """Recorded events with any content are read back equal."""
    events, lines = recorded(*texts)
    assert read_lines("t", 0, lines) == events


@given(st.lists(st.text(st.characters(codec=None)), min_size=1, max_size=4), st.data())
def test_lines_lead_to_the_digest_of_the_last_one_and_altered_lines_do_not(
    texts: list[str], data: st.DataObject
) -> None:
    """For any content, an altered byte or a missing line is rejected or leads to another digest."""
    events, lines = recorded(*texts)
    at = data.draw(st.integers(0, len(lines)))
    head = events[at - 1].digest if at else "of no meaning"
    assert end_of_chain("t", at, lines[at:], head=head) == events[-1].digest

    line, place = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0))
    changed = bytearray(lines[line])
    changed[place % len(changed)] ^= data.draw(st.integers(1, 255))
    for others in ([*lines[:line], bytes(changed), *lines[line + 1 :]], [*lines[:line], *lines[line + 1 :]]):
        try:
            actual = end_of_chain("t", 0, others, head=GENESIS)
        except RecordUnreadable:
            continue
        assert actual != events[-1].digest


@pytest.mark.parametrize("spelled", ["digest first", "digest last", "a space before the digest"])
def test_a_line_in_another_spelling_leads_nowhere(spelled: str) -> None:
    """If two spellings of an event have one digest, the record accepts the one in the log."""
    events, lines = recorded("a", "b")
    event = json.loads(lines[1])
    own = b'"digest":"%b",' % event["digest"].encode()
    rest = lines[1].replace(own, b"")
    other = {
        "digest first": b"{" + own + rest[1:],
        "digest last": rest[:-1] + b"," + own[:-1] + b"}",
        "a space before the digest": lines[1].replace(own, own.replace(b":", b": ")),
    }[spelled]
    assert json.loads(other) == event
    assert end_of_chain("t", 1, lines[1:], head=events[0].digest) == events[1].digest
    with pytest.raises(RecordUnreadable, match="event 1 of thread t was altered"):
        end_of_chain("t", 1, [other], head=events[0].digest)


def test_a_page_is_checked_against_the_digest_before_it() -> None:
    """Given the digest before a page, its first line is verified too."""
    events, lines = recorded("a", "b", "c")
    assert read_lines("t", 1, lines[1:], head=events[0].digest) == events[1:]
    with pytest.raises(RecordUnreadable, match="event 1 of thread t was altered"):
        read_lines("t", 1, lines[1:], head=GENESIS)


def test_without_an_earlier_digest_the_first_line_is_not_checked() -> None:
    """The lines after it are still verified."""
    events, lines = recorded("a", "b", "c")
    assert read_lines("t", 1, lines[1:]) == events[1:]
    with pytest.raises(RecordUnreadable, match="event 2 of thread t was altered"):
        read_lines("t", 1, [lines[1], with_values(lines[2], content="d")])
    with pytest.raises(RecordUnreadable, match="event 1 of thread t was altered"):
        read_lines("t", 1, [with_values(lines[1], digest=""), lines[2]])


@pytest.mark.parametrize("changes", [{"content": "x"}, {"digest": "0" * 64}, {"digest": None}, {"unheard": "of"}])
def test_an_altered_line_is_named(changes: dict[str, object]) -> None:
    """The error names the first line whose digest does not follow; unknown fields count too."""
    _, lines = recorded("a", "b", "c")
    with pytest.raises(RecordUnreadable, match=r"event 1 of thread t .*restore the record from a backup"):
        read_lines("t", 0, [lines[0], with_values(lines[1], **changes), lines[2]])


def test_a_missing_line_is_named() -> None:
    """A gap is detected by position, including one at the start of the thread."""
    _, lines = recorded("a", "b", "c")
    with pytest.raises(RecordUnreadable, match="event 1 of thread t is missing: the line in its place has position 2"):
        read_lines("t", 0, [lines[0], lines[2]])
    with pytest.raises(RecordUnreadable, match="event 0 of thread t is missing"):
        read_lines("t", 0, lines[1:])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"[]",
        b"null",
        b"{}",
        b'{"type":"of_tomorrow"}',
        b'{"type":"message_taken"}',
        b'{"type":"message_taken","schema_version":1}',
        b'{"type":"message_taken","schema_version":99,"message":4}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":"message_taken","message":' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_does_not_decode_is_named(line: bytes) -> None:
    """The error names the line briefly and does not quote its content."""
    with pytest.raises(RecordUnreadable, match="event 3 of thread t does not decode") as error:
        read_lines("t", 3, [line])
    assert "999" not in str(error.value)
    assert len(str(error.value)) < 600


def test_fields_of_a_newer_release_verify() -> None:
    """The digest covers the stored line, including fields that this release does not use."""
    stored = {
        "schema_version": 1,
        "type": "message_taken",
        "position": 0,
        "at": "2026-01-02T03:04:05Z",
        "message": 4,
        "mood": "sunny",
    }
    stored["digest"] = chain(GENESIS, canonical(stored))
    (event,) = read_lines("t", 0, [canonical(stored)])
    assert isinstance(event, MessageTaken)
    assert event.message == 4


def test_an_address_is_the_sha_256_of_the_content() -> None:
    """Any program can compute and parse an address."""
    address = address_of(b"content")
    assert address == f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    assert digest_of(address) == address.removeprefix("sha256:")


@pytest.mark.parametrize("address", ["", "sha256:", "sha256:" + 64 * "G", "sha256:" + 64 * "A", 64 * "0", "a" * 10**6])
def test_an_invalid_address_is_rejected_briefly(address: str) -> None:
    """An address may come from an LLM, so it is checked and a long one is not quoted in full."""
    with pytest.raises(ArtifactNotFound, match="is not an artifact address") as error:
        digest_of(address)
    assert len(str(error.value)) < 250


def test_holdfast_testing_imports_without_pytest() -> None:
    """A worker with the scripted LLM imports `holdfast.testing` in production, where pytest is not installed."""
    program = "import sys, holdfast.testing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "holdfast.testing.conformance" in loaded
    assert "pytest" not in loaded

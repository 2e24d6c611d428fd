"""ERRORS.md and similar files: dated entries with their source, which no text can forge."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.memory.notes import Note, add_note, note, parse_notes

AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
ANYTHING = st.text(st.sampled_from("#-> \t\n\r`~=<!ab2026-:\0\u2028\x85"), max_size=60)


def noted(title: str = "Locks", text: str = "The table is locked.", call: str = "3f2a") -> Note:
    """Return a note of the thread `nightly`."""
    return note(title, text, AT, thread="nightly", call=call)


def test_a_note_is_written_for_people() -> None:
    """A note has date and title, source, and the quoted text."""
    expected = (
        "# Errors\n\n## 2026-11-21 10:30 - Locks\n- Thread: nightly\n- Call: 3f2a\n\n> The table\n>\n> is locked.\n"
    )
    assert expected == add_note(None, noted(text="The table\n\nis locked."), heading="Errors")
    assert (noted(text="The table\n\nis locked."),) == parse_notes(expected)


def test_entries_by_people_are_read_too() -> None:
    """A person's entry has a heading, a text and, optionally, a date."""
    first, second = parse_notes("# Errors\nintro\n## Do not touch prod\nEver.\n\n### 2026-01-02: Old\n- Thread: x\n")
    assert (first.title, first.text, first.at) == ("Do not touch prod", "Ever.", "")
    assert (second.title, second.at, second.thread) == ("Old", "2026-01-02", "x")
    assert parse_notes("```\n## code\n```") == ()


def test_a_call_adds_its_note_once() -> None:
    """A repeated call adds nothing, even if a person has edited the text since; another call adds its own note."""
    text = add_note("# Mine\r\n\r\nprose", noted(), heading="Errors")
    assert text.startswith("# Mine\r\n\r\nprose\r\n\r\n## 2026")
    corrected = text.replace("locked", "blocked")
    assert corrected == add_note(corrected, noted(), heading="Errors")
    assert len(parse_notes(add_note(corrected, noted(call="4b"), heading="Errors"))) == 2


@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_text_can_forge_an_entry(before: str, title: str, text: str) -> None:
    """For any text of the LLM and any file, there is one more entry, and the others are unchanged."""
    old = parse_notes(before) if before.strip() else ()
    new = noted(title, text)
    after = add_note(before, new, heading="Errors")
    entries = parse_notes(after)
    assert len(old) + 1 == len(entries)
    assert (new.title, new.call) == (entries[-1].title, entries[-1].call)
    assert [each.title for each in old] == [each.title for each in entries[:-1]]
    assert after == add_note(after, new, heading="Errors")
    assert not before.strip() or after.startswith(before)


def test_a_long_note_is_clipped() -> None:
    """Neither a long text nor many lines fill the file."""
    assert len(noted(title="t" * 9_000).title) == 200
    assert len(noted(text="x\n" * 100_000).text) <= 4_000
    assert len(noted(text="\n".join("ab" for _ in range(1_000))).text.split("\n")) == 100

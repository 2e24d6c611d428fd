"""progress.txt: entries and status are parsed; people's other text stays unchanged."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.memory.progress import (
    add_entry,
    parse_current,
    parse_entries,
    set_current,
    set_thread,
)
from holdfast.core.memory.progress_entries import Current, entry
from holdfast.core.memory.progress_sections import NEW

AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
ENTRY = entry(
    "Token refresh", AT, what="Wrote /auth/refresh", files=["a.py", "b.py"], outcome="Success", next_step="Limits"
)

LOG = """\
# Progress Log
## Current Status (Updated: 2026-01-28 10:30)
- Active Task: Implement sign-in
- Last Completed: Token endpoint
- Blockers: None
Ask Bob before you deploy.
## Recent Activity
### 2026-01-28 10:30 - Token endpoint
- What: Implemented it
- Files: src/auth.ts, src/token.ts
- Outcome: Success
- Next: Add limits
"""

LINES = st.sampled_from(
    [
        "",
        "# Progress Log",
        "## Current Status",
        "## Recent Activity",
        "### 2026-01-01 10:00 - a",
        "### Note",
        "# End",
        "- What: x",
        "- Blockers: Bob",
        "* Active Task: y",
        "```",
        "~~~~",
        "````x",
        "prose",
        "## Mine",
        "\x0c",
        "-",
    ]
)
LOGS = st.builds(
    lambda lines, ending, last: ending.join(lines) + last,
    st.lists(LINES, max_size=14),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\n"]),
)


def test_a_log_is_read_as_people_write_it() -> None:
    """Status and entries are parsed from the documented form."""
    assert Current(
        updated="2026-01-28 10:30",
        active="Implement sign-in",
        last_completed="Token endpoint",
        blockers="None",
    ) == parse_current(LOG)
    (entry,) = parse_entries(LOG)
    assert (entry.at, entry.title, entry.what) == ("2026-01-28 10:30", "Token endpoint", "Implemented it")
    assert (entry.files, entry.outcome, entry.next) == ("src/auth.ts, src/token.ts", "Success", "Add limits")
    assert Current() == parse_current("prose")
    assert parse_entries("prose") == ()


def test_a_new_entry_goes_on_top_and_only_once() -> None:
    """The new entry is above the older ones; an identical one is not added again, even after other changes."""
    after = add_entry(LOG, ENTRY)
    assert [ENTRY, *parse_entries(LOG)] == list(parse_entries(after))
    assert after == add_entry(after, ENTRY) == add_entry(after, ENTRY.model_copy(update={"files": "c.py"}))
    block = (
        "### 2026-11-21 10:30 - Token refresh\n- What: Wrote /auth/refresh\n- Files: a.py, b.py\n- Outcome: Success\n"
    )
    head, _, tail = LOG.partition("### ")
    assert f"{head}{block}- Next: Limits\n\n### {tail}" == after


def test_the_status_is_set_line_by_line() -> None:
    """Only the given lines change; a person's text in between stays."""
    after = set_current(LOG, AT, active="Limits", last_completed="Token\n## refresh", blockers="")
    assert (
        LOG.replace("Updated: 2026-01-28 10:30", "Updated: 2026-11-21 10:30")
        .replace("Task: Implement sign-in", "Task: Limits")
        .replace("Completed: Token endpoint", "Completed: Token ## refresh")
        == after
    )
    assert after == set_current(after, AT, active="Limits")


@pytest.mark.parametrize("nothing", [None, "", " \n"])
def test_a_file_is_made_from_nothing(nothing: str | None) -> None:
    """The first entry and the first status create the complete form."""
    text = add_entry(set_current(nothing, AT, active="a"), ENTRY)
    assert text.startswith("# Progress Log\n\n## Current Status (Updated: 2026-11-21 10:30)\n- Active Task: a\n")
    assert parse_current(text).active == "a"
    assert parse_entries(text) == (ENTRY,)
    assert NEW.startswith("# Progress Log")


def test_headings_in_code_are_ignored() -> None:
    """A fenced block is not a section; an unclosed fence hides nothing."""
    fenced = "```\n## Recent Activity\n### 2026-01-01 - no\n```\n"
    assert parse_entries(fenced) == ()
    assert parse_entries(add_entry(fenced, ENTRY)) == (ENTRY,)
    assert len(parse_entries("```\n" + add_entry(LOG, ENTRY))) == 2


def test_text_of_the_llm_stays_one_entry() -> None:
    """Line breaks and headings in a text add neither an entry nor a field, and every text is clipped."""
    forged = entry(
        "a\n### b", AT, what="c\r\n- Outcome: Great\n## Recent Activity", files=["d\n# e"] * 30, next_step="f" * 9_000
    )
    (parsed,) = parse_entries(add_entry(None, forged))
    assert forged == parsed
    blank = entry(" \n", AT, what="")
    assert (blank,) == parse_entries(add_entry(add_entry(None, blank), blank))
    assert (parsed.outcome, parsed.files.endswith(" and 10 more")) == ("", True)
    assert len(parsed.next) == 2_000


@given(LOGS)
def test_text_by_people_is_kept(text: str) -> None:
    """Removing the lines of the new entry restores the original file; a repeated call adds nothing."""
    after = add_entry(text, ENTRY)
    assert after == add_entry(after, ENTRY)
    assert ENTRY in parse_entries(after)
    left = iter(after.split("\n"))
    old = [] if not text.strip() else text.split("\n")
    assert all(any(line.rstrip("\r") == new.rstrip("\r") for new in left) for line in old)


@given(LOGS)
def test_setting_the_status_twice_changes_nothing_more(text: str) -> None:
    """In any file, the status reads back as set, and no entry is lost."""
    once = set_current(text, AT, active="x", last_completed="y", blockers="z")
    assert once == set_current(once, AT, active="x", last_completed="y", blockers="z")
    current = parse_current(once)
    assert (current.active, current.last_completed, current.blockers) == ("x", "y", "z")
    assert parse_entries(text) == parse_entries(once)


def test_another_thread_archives_the_status() -> None:
    """The fields of a thread become an entry when another thread writes; a person's lines and the task fields stay."""
    mine = set_thread(LOG, AT, thread="a-1", goal="Move", status="half", context="Bob", last_step="4, blocked")
    assert parse_entries(mine) == parse_entries(LOG)
    theirs = set_thread(mine, AT, thread="b-1", next_action="look")
    newest, *older = parse_entries(theirs)
    assert (newest.title, newest.what, newest.outcome) == ("a-1: Move", "half; Bob", "4, blocked")
    assert tuple(older) == parse_entries(LOG)
    current = parse_current(theirs)
    assert (current.thread, current.goal, current.status, current.last_step) == ("b-1", "", "", "")
    assert (current.next_action, current.active) == ("look", "Implement sign-in")
    assert "Ask Bob before you deploy.\n" in theirs


def test_a_goal_that_the_llm_has_refined_is_kept() -> None:
    """The run's own note fills in a missing goal and never replaces one; the LLM's note does replace it."""
    text = set_thread(None, AT, thread="a", goal="first", last_step="0, in progress")
    text = set_thread(text, AT, thread="a", goal="second")
    assert parse_current(set_thread(text, AT, thread="a", goal="first", last_step="1, completed")).goal == "second"


@given(LOGS, st.sampled_from(["", "- Thread: old\n- Goal: x\n- Status: y\n"]), st.booleans())
def test_a_status_leaves_the_lines_of_people(text: str, fields: str, mine: bool) -> None:
    """In any file, only the thread's own lines change; repeating the update changes nothing."""
    text = text.replace("## Current Status\n", f"## Current Status\n{fields}", 1)
    values = {"thread": "old" if mine else "new", "goal": "g", "status": "s", "last_step": "1, completed"}
    after = set_thread(text, AT, **values)
    assert after == set_thread(after, AT, **values)
    current = parse_current(after)
    assert (current.thread, current.status, current.last_step) == (values["thread"], "s", "1, completed")
    own = ("- Thread:", "- Goal:", "- Status:", "## Current Status")
    left = iter(after.split("\n"))
    old = [line for line in text.split("\n") if not line.startswith(own)] if text.strip() else []
    assert all(any(line.rstrip("\r") == new.rstrip("\r") for new in left) for line in old)


@pytest.mark.extended
@pytest.mark.parametrize(
    "text",
    [
        LOG + "### 2026-01-01 10:00 - a\n- What: b\n" * 10000,
        "```a\n" * 40000,
        "`" * 2000000,
        "### \n" * 25000,
        "\n".join("`" * n for n in range(1000, 3, -1)) + "\nx" * 60000,
    ],
    ids=["entries", "open fences", "ticks", "headings", "shrinking fences"],
)
def test_a_large_log_takes_little_time(text: str) -> None:
    """Megabytes, even of the worst kind, are processed in seconds."""
    began = time.process_time()
    add_entry(text, ENTRY)
    assert time.process_time() - began < 40

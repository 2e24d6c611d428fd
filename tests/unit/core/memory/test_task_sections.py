"""Tasks move between the sections of TASKS.md, and nothing else in the file changes."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.memory.errors import TaskNotFound
from holdfast.core.memory.task_outline import lines_of
from holdfast.core.memory.task_sections import SectionKind, move_changed, section_kind
from holdfast.core.memory.tasks import add, complete, next_task, parse_tasks, start

AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)

BOARD = """\
# Our plan

Words of a person.

## To do

- [ ] Write the parser
  - details of it
- [ ] Write the docs

## In progress

## Done
- [x] Set up (completed: 2026-01-27)

Notes at the end.
"""

LINES = st.sampled_from(
    [
        *("", "", "# Plan", "## To do", "## In Progress", "## Done", "### Completed:", "Done", "---", "## Notes"),
        *("- [ ] one", "- [ ] two", "  - [ ] three", "  - [x] four", "* [x] five", "1. [ ] six", "- plain", "  words"),
        *(
            "words",
            "> - [ ] no",
            "```",
            "<!--",
            "-->",
            "    code",
            "\t- [ ] seven",
            "- [ ] eight (started: 2026-01-01)",
        ),
    ]
)
FILES = st.builds(
    lambda lines, end, last: end.join(lines) + (end if last else ""),
    st.lists(LINES, min_size=1, max_size=25),
    st.sampled_from(["\n", "\n", "\r\n"]),
    st.booleans(),
)


def begin(text: str, title: str) -> str:
    """Start a task, and move it."""
    return move_changed(text, start(text, title, AT), "in progress")


def done(text: str, title: str) -> str:
    """Complete a task, and move it."""
    return move_changed(text, complete(text, title, AT), "done")


def test_a_task_moves_through_the_sections_with_its_dates() -> None:
    """A started task stands under In progress, a completed one under Done; its lines move together, with the date."""
    started = begin(BOARD, "Write the parser")
    assert "## In progress\n\n- [ ] Write the parser (started: 2026-11-21 10:30)\n  - details of it\n## Done" in started
    assert "## To do\n\n- [ ] Write the docs\n" in started
    ended = done(started, "Write the parser")
    assert ended == BOARD.replace("- [ ] Write the parser\n  - details of it\n", "").replace(
        "2026-01-27)\n",
        "2026-01-27)\n- [x] Write the parser (started: 2026-11-21 10:30) (completed: 2026-11-21 10:30)\n"
        "  - details of it\n",
    )
    assert begin(started, "Write the parser") == started


@pytest.mark.parametrize("edit", [start, complete])
def test_a_retry_moves_no_task_with_the_same_title(edit: Callable[..., str]) -> None:
    """After a crash, the moved task counts: another task with its title, now above it, stays unchanged."""
    to: SectionKind = "in progress" if edit is start else "done"
    text = "## To do\n- [ ] a\n- [ ] a\n## In progress\n## Done\n"
    once = move_changed(text, edit(text, "a", AT), to)
    assert [task.heading for task in parse_tasks(once)] == ["To do", "Done" if to == "done" else "In progress"]
    assert move_changed(once, edit(once, "a", AT, again=True), to) == once


def test_a_file_without_sections_keeps_its_order() -> None:
    """No section is created, and a task stays at the position that a person chose."""
    text = "# Tasks\n- [ ] a\n- [ ] b\n"
    assert done(text, "a") == "# Tasks\n- [x] a (completed: 2026-11-21 10:30)\n- [ ] b\n"
    assert begin(text, "b") == "# Tasks\n- [ ] a\n- [ ] b (started: 2026-11-21 10:30)\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("## Todo\n- [ ] a\n  - [ ] b\n## Done\n", "b"),
        ("## Todo\n- [ ] a\n  - [ ] b\n## Done\n", "a"),
        ("## Todo\n- [ ] a\n## Done\nprose\n", "a"),
    ],
    ids=["subtask", "open-subtask", "prose"],
)
def test_a_task_stays_if_a_move_would_change_the_meaning(text: str, title: str) -> None:
    """A subtask stays with its parent, a parent with its open subtask, and prose never becomes part of a task."""
    after = complete(text, title, AT)
    moved = move_changed(text, after, "done")
    assert moved == after or [task.title for task in parse_tasks(moved)] == [task.title for task in parse_tasks(after)]
    if "b" in text:
        assert moved == after


def test_the_last_line_may_lack_its_end() -> None:
    """A file without a final line break gets no joined lines."""
    assert done("## To do\n- [ ] a\n## Done\n- [x] b", "a").endswith(
        "## Done\n- [x] b\n- [x] a (completed: 2026-11-21 10:30)"
    )
    text = "## Done\n- [x] b\n## To do\n- [ ] a"
    assert done(text, "a") == "## Done\n- [x] b\n- [x] a (completed: 2026-11-21 10:30)\n## To do\n"


def test_new_tasks_go_to_the_section_for_them() -> None:
    """A task added without a position goes under To do, and tasks in progress come first."""
    text = "## To do\n- [ ] a\n## In progress\n- [ ] b\n## Done\n"
    assert add(text, "c") == "## To do\n- [ ] a\n- [ ] c\n## In progress\n- [ ] b\n## Done\n"
    following = next_task(parse_tasks(text))
    assert following is not None
    assert following.title == "b"


def test_sections_are_found_by_their_common_names() -> None:
    """Case, punctuation and decoration of a heading make no difference; other words do."""
    kinds = [section_kind(name) for name in ("TO-DO:", "✅ Done", "in_progress", "Completed", "Not done", "")]
    assert kinds == ["to do", "done", "in progress", "done", None, None]


@given(FILES, st.integers(0, 9), st.sampled_from(["in progress", "done"]))
def test_everything_else_stays_byte_for_byte(text: str, number: int, to: SectionKind) -> None:
    """In any file, the task's own lines move in one piece; without them, the file is unchanged."""
    tasks = parse_tasks(text)
    assume(tasks)
    title = tasks[number % len(tasks)].title
    try:
        marked = start(text, title, AT) if to == "in progress" else complete(text, title, AT)
    except TaskNotFound:
        return
    moved = move_changed(text, marked, to)
    old, new = (
        [line.rstrip("\r\n") for line in lines_of(marked)],
        [line.rstrip("\r\n") for line in lines_of(moved)],
    )
    assert sorted(old) == sorted(new)
    if old != new:
        size = len(old)
        assert any(
            old[:at] + old[end:] == new[:to_] + new[to_ + end - at :] and old[at:end] == new[to_ : to_ + end - at]
            for at in range(size)
            for end in range(at + 1, size + 1)
            for to_ in range(size - (end - at) + 1)
        )
    assert sorted(each.title for each in parse_tasks(moved)) == sorted(each.title for each in parse_tasks(marked))
    assert sorted(each.status for each in parse_tasks(moved)) == sorted(each.status for each in parse_tasks(marked))
    assert move_changed(moved, moved, to) == moved


@pytest.mark.extended
@pytest.mark.parametrize(
    "text",
    ["## Done\n" * 8_000 + "- [ ] a\n", "## To do\n" + "- [ ] a\n" * 2_500 + "## Done\n"],
    ids=["headings", "twins"],
)
def test_a_hostile_file_is_changed_quickly(text: str) -> None:
    """Thousands of sections or of equal tasks neither fail nor take longer than their size warrants."""
    began = time.process_time()
    done(text, "a")
    assert time.process_time() - began < 40

"""TASKS.md: tasks are found as Markdown defines them, and a change affects only its own line."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.memory.errors import PlaceNotFound, TaskNotAdded, TaskNotFound, TasksInvalid
from holdfast.core.memory.markdown import headings
from holdfast.core.memory.task_outline import lines_of, plain
from holdfast.core.memory.tasks import Task, add, block, complete, next_task, parse_tasks, reopen, start

AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)

PLAN = """\
# Tasks
## In Progress
- [ ] Implement sign-in (started: 2026-01-28 10:00)
  - [x] Create login endpoint
  - [ ] Implement token refresh
## Completed
- [x] Set up database schema (completed: 2026-01-27)
"""

TITLES = st.sampled_from(
    [
        "Write tests",
        "Écrire",
        "a (b)",
        "x `[ ] y`",
        "Wait (blocked: for Bob (legal))",
        "Go (started: 2026-01-01)",
        "[x] z",
    ]
)
ITEMS = st.builds(
    lambda indent, bullet, box, title, end: f"{indent}{bullet}{box} {title}{end}",
    st.sampled_from(["", "", "  ", "    ", "\t", "      "]),
    st.sampled_from(["- ", "* ", "+ ", "1. ", "2) ", "-   ", "-\t", "- - "]),
    st.sampled_from(["[ ]", "[ ]", "[x]", "[X]"]),
    TITLES,
    st.sampled_from(["", "", "  ", "\\"]),
)
PIECES = st.sampled_from(
    [
        "",
        "",
        "# Tasks",
        "## Later",
        "prose",
        "  prose",
        "```",
        "~~~~",
        "    ```",
        "<!--",
        "-->",
        "<details>",
        "> - [ ] no",
        "===",
        "---",
        "- plain",
        "- [ ]",
        "-",
        "  [ ] Next line",
        "[ ] No item",
        "| a | b |",
        "\u2028- [ ] no",
        "\x0c",
    ]
)
MARKDOWN = st.builds(
    lambda lines, ending, last: ending.join(lines) + last,
    st.lists(ITEMS | PIECES, max_size=14),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\n", "\r\n"]),
)
WITH_TASKS = st.builds(
    lambda before, task, after: f"{before}\n{task}\n{after}",
    MARKDOWN,
    ITEMS.map(str.lstrip),
    MARKDOWN,
)
ANYTHING = st.text(st.sampled_from("-*1.> \t\n\r[]xX()`~#<!=ab\0\u2028\u3000"), max_size=60)


def task_titled(text: str, title: str) -> Task:
    """Return the only task with that title."""
    (task,) = (task for task in parse_tasks(text) if task.title == title)
    return task


def changed_lines(before: str, after: str) -> list[int]:
    """Return the numbers of the lines that differ, if none was added."""
    old, new = lines_of(before), lines_of(after)
    assert len(old) == len(new)
    return [number for number, pair in enumerate(zip(old, new, strict=True), 1) if pair[0] != pair[1]]


def test_tasks_are_read_as_people_write_them() -> None:
    """Title, status, position and heading come from the list; marks at the end of a line are not part of a title."""
    assert [(task.title, task.status, task.parent, task.heading) for task in parse_tasks(PLAN)] == [
        ("Implement sign-in", "open", None, "In Progress"),
        ("Create login endpoint", "done", 3, "In Progress"),
        ("Implement token refresh", "open", 3, "In Progress"),
        ("Set up database schema", "done", None, "Completed"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```\n- [ ] a\n```",
        "<!--\n- [ ] a\n-->",
        "> - [ ] a",
        "- > [ ] a",
        "    - [ ] a",
        "[ ] a",
        "- [ ]",
        "- [-] a",
        "- [ ]a",
        "- # [ ] a",
    ],
)
def test_text_that_only_looks_like_a_task_is_ignored(text: str) -> None:
    """Code, comments, quotes, and boxes without an item or a title are not tasks."""
    assert parse_tasks(text) == ()


@pytest.mark.parametrize("text", ["\ufeff- [ ] One\n- [ ] Two\n", "\ufeff# Plan\n\n- [ ] One\n- [ ] Two\n"])
def test_a_byte_order_mark_hides_nothing(text: str) -> None:
    """The mark that editors put before the first line is not part of it, and every edit keeps it."""
    assert [task.title for task in parse_tasks(text)] == ["One", "Two"]
    assert complete(text, "One", AT).startswith(text[: text.index("[ ]")])
    assert add(text, "Three") == f"{text}- [ ] Three\n"
    assert add("\ufeff- [ ] One\n", "Two", under="One") == "\ufeff- [ ] One\n  - [ ] Two\n"


def test_a_byte_order_mark_hides_no_heading() -> None:
    """The first heading of a memory file is found, and its position is after the mark."""
    (heading,) = headings("\ufeff# First\ntext\n")
    assert (heading.title, heading.start) == ("First", 1)


def test_children_come_before_their_parent() -> None:
    """The next task is the first open one with nothing open or blocked below it."""
    refresh = next_task(parse_tasks(PLAN))
    assert refresh is not None
    assert refresh.title == "Implement token refresh"

    done = complete(PLAN, "Implement token refresh", AT)
    parent = next_task(parse_tasks(done))
    assert parent is not None
    assert parent.title == "Implement sign-in"

    assert next_task(parse_tasks(block(PLAN, "Implement token refresh", "no key"))) is None
    assert next_task(parse_tasks("- [ ] a\n  - [x] b\n    - [ ] c (blocked: d)\n")) is None


def test_completing_ticks_the_box_and_says_when() -> None:
    """Other marks stay, and a block is removed; a repeated call changes nothing."""
    done = complete(PLAN, "Implement sign-in", AT)
    assert "- [x] Implement sign-in (started: 2026-01-28 10:00) (completed: 2026-11-21 10:30)\n" in done
    assert done == complete(done, "Implement sign-in", AT)
    assert complete("- [ ] a (blocked: b (c))  \r\n", "a", AT) == "- [x] a (completed: 2026-11-21 10:30)  \r\n"


def test_blocking_and_reopening() -> None:
    """Blocking writes the reason on the line; re-opening removes both marks."""
    blocked = block("* [ ] a", "a", "the key (of Bob)\n- [ ] forged")
    assert blocked == "* [ ] a (blocked: the key [of Bob] - [ ] forged)"
    assert (task_titled(blocked, "a").status, task_titled(blocked, "a").reason) == (
        "blocked",
        "the key [of Bob] - [ ] forged",
    )
    assert "* [ ] a" == reopen(blocked, "a") == reopen("* [x] a (completed: 2026-01-01)", "a")
    assert (
        "- [ ] a (started: 2026-11-21 10:30)" == start("- [ ] a", "a", AT) == start(start("- [ ] a", "a", AT), "a", AT)
    )
    with pytest.raises(TaskNotFound, match="shows 'a' as completed"):
        block("- [x] a", "a", "late")


def test_a_title_means_its_first_open_task() -> None:
    """A retry in the same minute does not complete the next task of that title; another call does."""
    text = "- [x] a\n  - [x] Test\n- [ ] b\n  - [ ] Test\n- [ ] c\n  - [ ] Test\n"
    once = complete(text, "Test", AT)
    assert changed_lines(text, once) == [4]
    assert once == complete(once, "Test", AT, again=True)
    assert changed_lines(once, complete(once, "Test", AT)) == [6]
    held = block(text, "Test", "why")
    assert held == block(held, "Test", "why", again=True)


def test_an_unknown_task_error_lists_the_open_tasks() -> None:
    """The LLM can choose one of them."""
    with pytest.raises(TaskNotFound, match=r"no open task 'Refresh'; its open tasks are: 'Implement sign-in', 'Impl"):
        complete(PLAN, "Refresh", AT)
    with pytest.raises(TaskNotFound, match="its open tasks are: none"):
        reopen("", "a")
    with pytest.raises(PlaceNotFound, match="no heading or task 'Later'; it has: 'Tasks', 'In Progress', 'Completed'"):
        add(PLAN, "a", under="Later")


@pytest.mark.parametrize(
    ("text", "under", "expected"),
    [
        ("", None, "# Tasks\n\n- [ ] new\n"),
        ("# Plan", None, "# Plan\n\n- [ ] new\n"),
        ("- [ ] a\r\n\r\nprose\r\n", None, "- [ ] a\r\n- [ ] new\r\n\r\nprose\r\n"),
        ("1. [ ] a\n2. [ ] b\n   more\n", None, "1. [ ] a\n2. [ ] b\n   more\n3. [ ] new\n"),
        ("- [ ] a\n## Done\n- [x] b\n", None, "- [ ] a\n- [ ] new\n## Done\n- [x] b\n"),
        ("- [ ] a\n- [ ] b\n", "a", "- [ ] a\n  - [ ] new\n- [ ] b\n"),
        ("- [ ] a\n  * [x] c\n- [ ] b\n", "a", "- [ ] a\n  * [x] c\n  * [ ] new\n- [ ] b\n"),
        ("## Now\nprose\n## Later\n- [ ] a\n", "now", "## Now\n\n- [ ] new\n\nprose\n## Later\n- [ ] a\n"),
        ("## Now\n- [x] a\n## Later\n", "## Now", "## Now\n- [x] a\n- [ ] new\n## Later\n"),
        ("- [ ] a\n  ```\n  x\n  ```\nprose\n", None, "- [ ] a\n  ```\n  x\n  ```\n- [ ] new\n\nprose\n"),
    ],
)
def test_a_task_is_added_in_its_position(text: str, under: str | None, expected: str) -> None:
    """The task follows the last open one of the heading or parent, in its neighbours' style; never inside prose."""
    assert expected == add(text, "new", under=under)
    assert expected == add(expected, "new", under=under)


def test_text_of_the_llm_is_at_most_one_task() -> None:
    """Line breaks, boxes, marks and great length in a title add no other item and no status."""
    text = add("- [ ] a\n", "- [x] new\n# Heading\r\n- [ ] b\u2028c\x85d (completed: 2026-01-01) (blocked: e)")
    assert [task.title for task in parse_tasks(text)] == ["a", "new # Heading - [ ] b c d"]
    assert parse_tasks(text)[1].status == "open"
    assert len(parse_tasks(add("", "x" * 5_000_000))[0].title) == 200
    assert block("- [ ] a", "a", "y" * 1_000) == "- [ ] a (blocked: " + "y" * 299 + "…)"
    for empty in ("", " \n", "[ ] "):
        with pytest.raises(TaskNotAdded, match="needs a title"):
            add("", empty)
    with pytest.raises(TaskNotAdded, match="no place where 'new' would"):
        add("```\nnever closed", "new")


def test_a_title_may_be_used_in_several_places() -> None:
    """A task is added at the requested position, even if another one has its title."""
    assert add("- [ ] A\n- [ ] Test\n", "Test", under="A") == "- [ ] A\n  - [ ] Test\n- [ ] Test\n"
    assert add("- [ ] A\n  - [ ] Test\n", "Test") == "- [ ] A\n  - [ ] Test\n- [ ] Test\n"
    assert add("# A\n- [ ] x\n# B\n- [ ] y\n", "x", under="B") == "# A\n- [ ] x\n# B\n- [ ] y\n- [ ] x\n"


@given(WITH_TASKS | ANYTHING.map("- [ ] a{}".format), st.integers(0, 20))
def test_completing_changes_one_line_and_one_task(text: str, number: int) -> None:
    """In any Markdown, one line differs, the task is done, and all others are unchanged."""
    tasks = parse_tasks(text)
    assume(tasks)
    title = tasks[number % len(tasks)].title
    same = [task for task in tasks if plain(task.title) == plain(title)]
    meant = next((task for status in ("open", "blocked") for task in same if task.status == status), None)

    after = complete(text, title, AT)

    if meant is None:
        assert text == after
        return
    assert changed_lines(text, after) == [meant.line]
    done = meant.model_copy(update={"status": "done", "reason": ""})
    assert [done if task == meant else task for task in tasks] == list(parse_tasks(after))


@given(WITH_TASKS | ANYTHING.map("- [ ] a{}".format))
def test_every_change_can_be_undone(text: str) -> None:
    """Block and reopen, or complete and reopen, restore an open task without marks byte for byte."""
    titles = [plain(task.title) for task in parse_tasks(text)]
    for task in parse_tasks(text):
        if task.status == "open" and titles.count(plain(task.title)) == 1 and "(completed:" not in text:
            assert text == reopen(block(text, task.title, "because"), task.title)
            assert text == reopen(complete(text, task.title, AT), task.title)


@given(MARKDOWN | ANYTHING, st.sampled_from([None, "Later", "Write tests"]))
def test_adding_leaves_every_line_as_it_was(text: str, under: str | None) -> None:
    """In any Markdown, the old lines stay in order with one task more, or the task is rejected."""
    try:
        after = add(text, "Brand new", under=under)
    except (TaskNotAdded, PlaceNotFound):
        return
    left = iter(lines_of(after))
    assert all(any(line.rstrip("\r\n") == new.rstrip("\r\n") for new in left) for line in lines_of(text))
    old, new = [task.shape() for task in parse_tasks(text)], [task.shape() for task in parse_tasks(after)]
    assert len(old) + 1 == len(new)
    assert old == [shape for shape in new if shape[0] != "Brand new"]


@pytest.mark.extended
@pytest.mark.parametrize(
    "text",
    [
        "\n".join("  " * n + "- [ ] a" for n in range(45)) * 80,
        "- [ ] a " + "(started: b) " * 20_000,
        "- [ ] " + "(" * 50_000,
        "- [ ] a\n" * 4_000,
        "`" * 100_000,
        "- [ ] \0",
    ],
    ids=["nested", "marks", "parentheses", "many", "ticks", "nul"],
)
def test_hostile_text_is_parsed_quickly(text: str) -> None:
    """Nesting and long lines neither fail nor take longer than their size warrants."""
    began = time.process_time()
    parse_tasks(text)
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "text",
    [
        "- " * 10_000 + "[ ] a",
        "> " * 10_000 + "- [ ] a",
        "\n".join("  " * n + "- [ ] a" for n in range(500)) + "\n\n# More\n- [ ] b\n",
    ],
    ids=["lists", "quotes", "nested"],
)
def test_too_deep_nesting_is_rejected(text: str) -> None:
    """No task is skipped silently: if the parser stops, TASKS.md is unreadable, and the error gives the line."""
    began = time.process_time()
    with pytest.raises(TasksInvalid, match=r"TASKS.md, line \d+: it is nested too deeply"):
        parse_tasks(text)
    assert time.process_time() - began < 30

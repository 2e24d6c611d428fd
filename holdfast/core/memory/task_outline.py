"""The structure of TASKS.md: list items with a checkbox, headings, and the lines that belong to each."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from markdown_it import MarkdownIt
from markdown_it.token import Token

from holdfast.core.base.models import Frozen
from holdfast.core.memory.errors import TasksInvalid

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""Lines by Markdown's line breaks; `str.splitlines` also splits at other characters."""
_BOX = re.compile(r"\[([ xX])\]([ \t]+)(?=\S)")
BOM = "\ufeff"
"""The byte order mark, which editors on Windows put before the first line."""
_DEEPEST = 100
"""Maximum nesting of blocks: beyond it, the parser drops the rest of the text."""
_MARK = re.compile(r"\((started|completed|blocked):[ \t]*(.*)\)", re.IGNORECASE)


Status = Literal["open", "done", "blocked"]
"""Unchecked · checked · unchecked and marked as blocked."""


class Task(Frozen):
    """A task of TASKS.md."""

    title: str
    status: Status
    reason: str = ""
    """The reason that the task is blocked."""
    line: int
    """Its first line, from 1."""
    parent: int | None = None
    """The line of its parent task; None at the top level."""
    heading: str = ""
    """The nearest heading above it."""

    def shape(self) -> tuple[str, str, str, str]:
        """Return the properties that adding a line elsewhere must not change."""
        return self.title, self.status, self.reason, self.heading


@dataclass(frozen=True)
class Mark:
    """A mark in parentheses at the end of a task's line."""

    kind: str
    value: str
    written: str
    """The mark as written, with the space before it."""

    @classmethod
    def of(cls, kind: str, value: str) -> Self:
        """Make a new mark."""
        return cls(kind, value, f" ({kind}: {value})")


@dataclass(frozen=True)
class TaskItem:
    """A task with the parts of its line, `prefix [box] middle marks tail`, and its extent."""

    task: Task
    start: int
    """The first line of its list item, from 0."""
    end: int
    """The line after its last non-blank line."""
    prefix: str
    middle: str
    marks: tuple[Mark, ...]
    tail: str

    def mark(self, kind: str) -> str | None:
        """Return the value of the last mark of this kind."""
        return next((mark.value for mark in reversed(self.marks) if mark.kind == kind), None)


@dataclass(frozen=True)
class Section:
    """A heading outside other blocks, with its lines."""

    title: str
    level: int
    start: int
    end: int
    """The line after the heading itself."""


@dataclass(frozen=True)
class InsertionPoint:
    """The position for a new task: after the last sibling or, without siblings, below the heading or the parent."""

    siblings: list[TaskItem]
    heading: Section | None = None
    parent: TaskItem | None = None


@dataclass(frozen=True)
class Outline:
    """The structure of a TASKS.md."""

    lines: list[str]
    """The lines, with their line ends."""
    items: list[TaskItem]
    headings: list[Section]
    starts: frozenset[int]
    """The first lines of all list items."""

    def insertion_point(self, under: str | None) -> InsertionPoint | None:
        """Find the position for a new task; None if there is no such heading or task.

        Args:
            under: A heading or a task; None for the default, after the last top-level task that is not done.
        """
        if under is None:
            top = [each for each in self.items if each.task.parent is None]
            last = next((at for at in range(len(top), 0, -1) if top[at - 1].task.status != "done"), len(top))
            return InsertionPoint(top[:last])
        name = plain(under).lstrip("# ").casefold()
        for heading in self.headings:
            if plain(heading.title).casefold() == name:
                later = (each for each in self.headings if each.start > heading.start and each.level <= heading.level)
                end = next((each.start for each in later), len(self.lines))
                inside = [each for each in self.items if heading.end <= each.start < end]
                return InsertionPoint([each for each in inside if each.task.parent is None], heading=heading)
        named = [each for each in self.items if plain(each.task.title).casefold() == name]
        parent = next((each for each in named if each.task.status != "done"), named[0] if named else None)
        if parent is None:
            return None
        return InsertionPoint([each for each in self.items if each.task.parent == parent.task.line], parent=parent)


def plain(text: str) -> str:
    """Collapse white space to single spaces, so that titles can be compared."""
    return " ".join(text.split())


def lines_of(text: str) -> list[str]:
    """Split a text into lines with their line ends."""
    return _LINE.findall(text)


def outline(text: str) -> Outline:
    """Parse the structure of TASKS.md.

    Raises:
        TasksInvalid: The text is nested so deeply that the parser would miss some tasks.
    """
    lines, items, sections = lines_of(text), list[TaskItem](), list[Section]()
    starts, above, quotes = set[int](), list[int | None](), 0
    tokens = _parser().parse(text.removeprefix(BOM))  # the lines keep it
    for at, token in enumerate(tokens):
        if token.level >= _DEEPEST - 1:
            line = token.map[0] + 1 if token.map else len(lines)
            raise TasksInvalid(f"TASKS.md, line {line}: it is nested too deeply; correct it there")
        match token.type:
            case "blockquote_open":
                quotes += 1
            case "blockquote_close":
                quotes -= 1
            case "list_item_open":
                first, end = token.map or (0, 0)
                starts.add(first)
                heading = sections[-1].title if sections else ""
                task = None if quotes else _task_item(lines, tokens[at + 1 : at + 3], (first, end), above, heading)
                if task is not None:
                    items.append(task)
                above.append(task.task.line if task else above[-1] if above else None)
            case "list_item_close":
                above.pop()
            case "heading_open" if token.level == 0 and token.map:
                sections.append(Section(tokens[at + 1].content, int(token.tag[1:]), *token.map))
    return Outline(lines, items, sections, frozenset(starts))


def _parser() -> MarkdownIt:
    """Make a parser of blocks only; inline parsing is not needed and would take most of the time.

    Each text gets its own parser, because rules are compiled on first use, which is not thread-safe.
    """
    parser = MarkdownIt("zero", {"maxNesting": _DEEPEST, "html": True})
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser.enable(["blockquote", "code", "fence", "heading", "hr", "html_block", "lheading", "list"])


def _task_item(
    lines: list[str], tokens: list[Token], extent: tuple[int, int], above: list[int | None], heading: str
) -> TaskItem | None:
    """Parse a list item as a task, from its first two tokens; None if it is not a task."""
    if len(tokens) < 2 or tokens[0].type != "paragraph_open" or tokens[0].map is None:
        return None
    number = tokens[0].map[0]
    first = tokens[1].content.partition("\n")[0].rstrip()
    box = _BOX.match(first)
    body = lines[number].rstrip()
    if box is None or not body.replace("\0", "\ufffd").endswith(first):
        return None
    begin = len(body) - len(first)
    rest = body[begin + 3 :]
    middle, marks = _marks(rest)
    end = extent[1]
    while end > number + 1 and not lines[end - 1].strip():
        end -= 1
    kinds = {mark.kind: mark.value for mark in marks}
    status: Status = "done" if box[1] in "xX" else "blocked" if "blocked" in kinds else "open"
    task = Task(
        title=middle.strip(),
        status=status,
        reason=kinds["blocked"] if status == "blocked" else "",
        line=number + 1,
        parent=above[-1] if above else None,
        heading=heading,
    )
    return TaskItem(task, extent[0], end, body[:begin], middle, tuple(marks), lines[number][len(body) :])


def _marks(rest: str) -> tuple[str, list[Mark]]:
    """Split the text after a box into the part before the marks at its end, and the marks in order."""
    marks: list[Mark] = []
    end = len(rest)
    while (begin := _opening(rest, end)) and (match := _MARK.fullmatch(rest, begin, end)):
        before = len(rest[:begin].rstrip())
        if before in (0, begin):
            break
        marks.insert(0, Mark(match[1].lower(), match[2].strip(), rest[before:end]))
        end = before
    return rest[:end], marks


def _opening(text: str, end: int) -> int:
    """Return the position of the parenthesis that opens the one closing at `end`; 0 if there is none."""
    depth = 0
    for at in range(end - 1, 0, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at if at < end - 1 else 0
    return 0

"""Where the tasks of TASKS.md stand: its list items with a box, its headings, and the lines that belong to each."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from markdown_it import MarkdownIt
from markdown_it.token import Token

from holdfast.base.models import Frozen
from holdfast.memory.errors import TasksInvalid

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""The line ends that Markdown knows; `str.splitlines` knows more."""
_BOX = re.compile(r"\[([ xX])\]([ \t]+)(?=\S)")
_DEEPEST = 100
"""Blocks within blocks: the parser drops the rest of a text that has more."""
_MARK = re.compile(r"\((started|completed|blocked):[ \t]*(.*)\)", re.IGNORECASE)


Status = Literal["open", "done", "blocked"]
"""Not ticked · ticked · not ticked, and marked as blocked."""


class Task(Frozen):
    """A task of TASKS.md."""

    title: str
    status: Status
    reason: str = ""
    """What a blocked task waits for."""
    line: int
    """Its first line, from 1."""
    parent: int | None = None
    """The line of the task that it stands below; None at the top."""
    heading: str = ""
    """The nearest heading above it."""

    def shape(self) -> tuple[str, str, str, str]:
        """All that a line added elsewhere must leave as it is."""
        return self.title, self.status, self.reason, self.heading


@dataclass(frozen=True)
class Mark:
    """What stands in parentheses at the end of a task's line."""

    kind: str
    value: str
    written: str
    """As it stands there, with the space before it."""

    @classmethod
    def of(cls, kind: str, value: str) -> Self:
        """A new one."""
        return cls(kind, value, f" ({kind}: {value})")


@dataclass(frozen=True)
class Found:
    """A task, and where each part of it stands. Its line is `prefix [box] middle marks tail`."""

    task: Task
    start: int
    """The first line of its list item, from 0."""
    end: int
    """After the last line that is not blank."""
    prefix: str
    middle: str
    marks: tuple[Mark, ...]
    tail: str

    def mark(self, kind: str) -> str | None:
        """The value of the last mark of that kind."""
        return next((mark.value for mark in reversed(self.marks) if mark.kind == kind), None)


@dataclass(frozen=True)
class Section:
    """A heading at the top level, and its lines."""

    title: str
    level: int
    start: int
    end: int
    """After the heading itself."""


@dataclass(frozen=True)
class Place:
    """Where a new task may go: after the last of its siblings; without any, below the heading or the parent."""

    siblings: list[Found]
    heading: Section | None = None
    parent: Found | None = None


@dataclass(frozen=True)
class Outline:
    """What was found in a TASKS.md."""

    lines: list[str]
    """Its lines, with their ends."""
    found: list[Found]
    headings: list[Section]
    starts: frozenset[int]
    """The first lines of all list items."""

    def place(self, under: str | None) -> Place | None:
        """Where a new task goes; None where there is no such heading or task.

        Args:
            under: A heading or a task; None for where new ones go by themselves: among those at the top, after the
                last that is not done.
        """
        if under is None:
            top = [each for each in self.found if each.task.parent is None]
            last = next((at for at in range(len(top), 0, -1) if top[at - 1].task.status != "done"), len(top))
            return Place(top[:last])
        wanted = plain(under).lstrip("# ").casefold()
        for heading in self.headings:
            if plain(heading.title).casefold() == wanted:
                later = (each for each in self.headings if each.start > heading.start and each.level <= heading.level)
                end = next((each.start for each in later), len(self.lines))
                inside = [each for each in self.found if heading.end <= each.start < end]
                return Place([each for each in inside if each.task.parent is None], heading=heading)
        named = [each for each in self.found if plain(each.task.title).casefold() == wanted]
        parent = next((each for each in named if each.task.status != "done"), named[0] if named else None)
        if parent is None:
            return None
        return Place([each for each in self.found if each.task.parent == parent.task.line], parent=parent)


def plain(text: str) -> str:
    """Text with its white space made single spaces: titles that differ in nothing else are the same."""
    return " ".join(text.split())


def lines_of(text: str) -> list[str]:
    """The lines of a text, with their ends; joined they are the text again."""
    return _LINE.findall(text)


def outline(text: str) -> Outline:
    """Find the tasks of TASKS.md and what is around them.

    Raises:
        TasksInvalid: It is nested so deeply that some tasks could not be seen.
    """
    lines, found, sections = lines_of(text), list[Found](), list[Section]()
    starts, above, quotes = set[int](), list[int | None](), 0
    tokens = _parser().parse(text)
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
                task = None if quotes else _found(lines, tokens[at + 1 : at + 3], (first, end), above, heading)
                if task is not None:
                    found.append(task)
                above.append(task.task.line if task else above[-1] if above else None)
            case "list_item_close":
                above.pop()
            case "heading_open" if token.level == 0 and token.map:
                sections.append(Section(tokens[at + 1].content, int(token.tag[1:]), *token.map))
    return Outline(lines, found, sections, frozenset(starts))


def _parser() -> MarkdownIt:
    """Blocks alone: what stands within a line is nobody's business here, and takes most of the time.

    One for each text, because its rules are compiled at their first use, which is not safe among threads.
    """
    parser = MarkdownIt("zero", {"maxNesting": _DEEPEST, "html": True})
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser.enable(["blockquote", "code", "fence", "heading", "hr", "html_block", "lheading", "list"])


def _found(
    lines: list[str], tokens: list[Token], extent: tuple[int, int], above: list[int | None], heading: str
) -> Found | None:
    """The task that a list item is, from its first two tokens; None where it is none."""
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
    return Found(task, extent[0], end, body[:begin], middle, tuple(marks), lines[number][len(body) :])


def _marks(rest: str) -> tuple[str, list[Mark]]:
    """What follows a box, without the marks at its end; and those, in their order."""
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
    """Where the parenthesis opens that closes at `end`; 0 where none does."""
    depth = 0
    for at in range(end - 1, 0, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at if at < end - 1 else 0
    return 0

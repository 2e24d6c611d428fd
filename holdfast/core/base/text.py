"""Text formatting: single lines, wrapping, visible characters, and escapes for Markdown."""

import re
from collections.abc import Callable, Iterator
from unicodedata import east_asian_width

QUOTED_CHARS = 2_000
"""Default maximum length of a quoted text; a longer one is cut, with a note that says so."""

# People approve tool calls on a screen. There, text from an LLM or a tool must not control the terminal, reorder a line
# or hide anything in it.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters except tab and line feed, bidirectional controls, and default-ignorable code points."""

_ADDRESS = re.compile(r"://|@|\bwww\.|\bmailto:|\bxmpp:", re.IGNORECASE)
"""Marks a word that a Markdown renderer may turn into a link by itself."""

_WORD = re.compile(r"(\s+)")

_MARKDOWN = re.compile(r"[\\`*_\[\]<>#!|~&]|^(?:[^\S\n]*(?:[-+=]|\d+[.)]))", re.MULTILINE)


def one_line(text: str, limit: int = 120) -> str:
    """Put `text` on one line and cut it to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str) -> str:
    """Escape, as Python does, every character of `text` that is invisible or could control a display.

    Tabs and line breaks stay; the line breaks of Windows become line feeds.
    """
    return escape_invisible(text.replace("\r\n", "\n"))


def escape_invisible(text: str) -> str:
    """Escape every invisible character except line feeds and tabs; carriage returns are escaped, too."""
    return INVISIBLE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def invisible(text: str) -> int:
    """Count the characters that `escape_invisible` escapes."""
    return len(INVISIBLE.findall(text))


def remove_invisible(text: str) -> str:
    """Remove the characters that `escape_invisible` escapes."""
    return INVISIBLE.sub("", text)


def is_blank(text: str) -> bool:
    """Whether a person would see nothing of the text."""
    return not remove_invisible(text).strip()


def visible_json(text: str) -> str:
    """Escape the invisible characters of a JSON text as JSON does, so that its value stays the same."""
    return INVISIBLE.sub(_json_escape, text)


def quoted(text: str, limit: int = QUOTED_CHARS) -> str:
    """Quote `text` in Markdown, line by line, escaped and cut to `limit` characters."""
    lines = [f"> {escaped(line)}\\" if line.strip() else ">" for line in visible(text[:limit]).split("\n")]
    if lines:
        lines[-1] = lines[-1].removesuffix("\\")
    if len(text) > limit:
        lines += [">", f"> … cut: {limit:,} of {len(text):,} characters"]
    return "\n".join(lines)


def code(text: str) -> str:
    """Make text safe between backticks: replace backticks and escape invisible characters."""
    return visible(text).replace("`", "'")


def plain(text: str, limit: int = 300) -> str:
    """Put `text` on one line and escape Markdown in it."""
    return escaped(one_line(visible(text), limit))


def escaped(text: str) -> str:
    """Escape Markdown and HTML; words that look like addresses become code, which is never a link.

    A backslash would not prevent a link: renderers search for addresses after they have resolved escapes.
    """
    pieces: list[str] = []
    plain_from = 0
    words = _WORD.split(text)  # one pattern for a word around an address would take quadratic time
    for number, word in enumerate(words):
        if _ADDRESS.search(word):
            before = "".join(words[plain_from:number])
            pieces += [_MARKDOWN.sub(_backslashed, before), f"`{word.replace('`', chr(39))}`"]
            plain_from = number + 1
    return "".join([*pieces, _MARKDOWN.sub(_backslashed, "".join(words[plain_from:]))])


def _backslashed(match: re.Match[str]) -> str:
    return match.group()[:-1] + "\\" + match.group()[-1]


def _json_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


CONTINUED = "┆ "
"""The prefix of the second row of a wrapped line, and of each further one."""

TAB = "⇥   "
"""Shown in place of a tab, which is wider than one column."""

_BEGINNING = re.compile(r"[-+ ]*(?:│ )?")


def columns_of(character: str) -> int:
    """Return the width of a character in columns, by Unicode's East Asian width."""
    return 2 if east_asian_width(character) in "WF" else 1


def wrapped(line: str, width: int, *, columns: Callable[[str], int] = columns_of) -> list[str]:
    """Wrap a whole line into rows of at most `width` columns; further rows begin with a mark at the line's indent.

    Args:
        line: Without a line break.
        width: At least 4.
        columns: Returns the width of a character in columns.
    """
    text = line.replace("\t", TAB)
    indent = _BEGINNING.match(text)
    hanging = " " * min(indent.end() if indent else 0, width // 2)
    return list(_rows(text, width, hanging + CONTINUED, columns))


def _rows(text: str, width: int, mark: str, columns: Callable[[str], int]) -> Iterator[str]:
    row, taken = "", 0
    for character in text:
        needed = columns(character)
        if taken + needed > width:
            yield row
            row, taken = mark, len(mark)
        row += character
        taken += needed
    yield row


def count(number: int, thing: str) -> str:
    """Return a count with its noun: `1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

"""Text formatting: one line, rows of a width, visible characters, and escapes for Markdown."""

import re
from collections.abc import Callable, Iterator
from unicodedata import east_asian_width

QUOTED_CHARS = 2_000
"""Maximum length of a quoted text, by default; a longer one is cut, with a note that says so."""

# On a screen where people approve tool calls, no text of a model or a tool may act on the terminal, reorder a line or
# carry what is invisible: control characters, bidirectional controls and default-ignorable code points of Unicode.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters but tab and line feed, bidirectional controls, and default-ignorable code points."""

_ADDRESS = re.compile(r"://|@|\bwww\.|\bmailto:|\bxmpp:", re.IGNORECASE)
"""What makes a word one that a Markdown renderer may turn into a link without being asked to."""

_WORD = re.compile(r"(\s+)")

_MARKDOWN = re.compile(r"[\\`*_\[\]<>#!|~&]|^(?:[^\S\n]*(?:[-+=]|\d+[.)]))", re.MULTILINE)


def one_line(text: str, limit: int = 120) -> str:
    """Put `text` on one line and cut it to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def visible(text: str) -> str:
    """Write out every invisible character of `text`, and every one that could act on a display, as Python escapes it.

    Line breaks, those of Windows included, and tabs stay.
    """
    return written_out(text.replace("\r\n", "\n"))


def written_out(text: str) -> str:
    """Write out every invisible character but line feeds and tabs: carriage returns, too."""
    return INVISIBLE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def invisible(text: str) -> int:
    """Return how many characters `written_out` writes out."""
    return len(INVISIBLE.findall(text))


def invisible_removed(text: str) -> str:
    """Leave out what `written_out` writes out."""
    return INVISIBLE.sub("", text)


def is_blank(text: str) -> bool:
    """Whether text has nothing that a person would see."""
    return not invisible_removed(text).strip()


def visible_json(text: str) -> str:
    """Write out the invisible characters of a JSON text as JSON escapes them: the value stays the same."""
    return INVISIBLE.sub(_json_escape, text)


def quoted(text: str, limit: int = QUOTED_CHARS) -> str:
    """Quote `text` in Markdown line by line, all of it as plain text, cut to `limit` characters."""
    lines = [f"> {escaped(line)}\\" if line.strip() else ">" for line in visible(text[:limit]).split("\n")]
    if lines:
        lines[-1] = lines[-1].removesuffix("\\")
    if len(text) > limit:
        lines += [">", f"> … cut: {limit:,} of {len(text):,} characters"]
    return "\n".join(lines)


def code(text: str) -> str:
    """Make text safe within backticks: no backtick, and no invisible character."""
    return visible(text).replace("`", "'")


def plain(text: str, limit: int = 300) -> str:
    """Put `text` on one line and escape what Markdown would interpret."""
    return escaped(one_line(visible(text), limit))


def escaped(text: str) -> str:
    """Escape what Markdown and HTML would interpret; words that look like addresses become code, which is never a link.

    A backslash would not do: renderers find addresses in the text that is left after escapes are resolved.
    """
    pieces: list[str] = []
    plain_from = 0
    words = _WORD.split(text)  # word by word: a pattern for a word around an address would take quadratic time
    for number, word in enumerate(words):
        if _ADDRESS.search(word):
            before = "".join(words[plain_from:number])
            pieces += [_MARKDOWN.sub(_backslashed, before), f"`{word.replace('`', chr(39))}`"]
            plain_from = number + 1
    return "".join([*pieces, _MARKDOWN.sub(_backslashed, "".join(words[plain_from:]))])


def _backslashed(found: re.Match[str]) -> str:
    return found.group()[:-1] + "\\" + found.group()[-1]


def _json_escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


CONTINUED = "┆ "
"""What the second and each further row of a line begins with."""

TAB = "⇥   "
"""How a tab is shown, which is wider than one column."""

_BEGINNING = re.compile(r"[-+ ]*(?:│ )?")


def columns_of(character: str) -> int:
    """Return how many columns a character takes, by Unicode's East Asian width."""
    return 2 if east_asian_width(character) in "WF" else 1


def wrapped(line: str, width: int, *, columns: Callable[[str], int] = columns_of) -> list[str]:
    """Return a line as rows of at most `width` columns: all of it, each further row with a mark at the line's indent.

    Args:
        line: Without a line break.
        width: At least 4.
        columns: Returns how many columns a character takes.
    """
    text = line.replace("\t", TAB)
    found = _BEGINNING.match(text)
    hanging = " " * min(found.end() if found else 0, width // 2)
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

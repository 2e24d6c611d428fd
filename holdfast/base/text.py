"""Text formatting: shortening to one line, and quoting and escaping for Markdown."""

QUOTED_CHARS = 2_000
"""Maximum length of a quoted text; a longer one is cut, with a note that says so."""


def one_line(text: str, limit: int = 120) -> str:
    """Put `text` on one line and cut it to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str) -> str:
    """Quote `text` in Markdown, cut to `QUOTED_CHARS`."""
    lines = [f"> {line}" for line in text[:QUOTED_CHARS].splitlines()]
    if len(text) > QUOTED_CHARS:
        lines += [">", f"> … cut: {QUOTED_CHARS:,} of {len(text):,} characters"]
    return "\n".join(lines)


def code(text: str) -> str:
    """Replace the backticks in text that will be shown within backticks."""
    return text.replace("`", "'")


def plain(text: str, limit: int = 300) -> str:
    """Put `text` on one line and escape what Markdown would interpret."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>!#|" else c for c in one_line(text, limit))

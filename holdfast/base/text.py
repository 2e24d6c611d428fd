"""Text in general: cut to one line, or written so that Markdown shows it as it is."""

QUOTED_CHARS = 2_000
"""Of a quoted text. What is longer is cut, and the quotation says so."""


def one_line(text: str, limit: int = 120) -> str:
    """`text` on one line, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str) -> str:
    """`text` as a quotation in Markdown, cut to `QUOTED_CHARS`."""
    lines = [f"> {line}" for line in text[:QUOTED_CHARS].splitlines()]
    if len(text) > QUOTED_CHARS:
        lines += [">", f"> … cut: {QUOTED_CHARS:,} of {len(text):,} characters"]
    return "\n".join(lines)


def code(text: str) -> str:
    """Text within backticks: one of its own would end the code."""
    return text.replace("`", "'")


def plain(text: str, limit: int = 300) -> str:
    """Text that Markdown leaves alone."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>!#|" else c for c in one_line(text, limit))

"""An agent's claim: the text of the reply that made a tool call. People read it before they decide about the call.

1. An LLM can write anything, also a text that looks like part of the screen. So each row of the text that is shown has
   a mark before it, has no character that could control a display, and is too short for a display to break it.
2. Nothing depends on a claim: it is in no digest, no signature covers it, and no rule reads it.
"""

from holdfast.core.base.text import CONTINUED, visible, wrapped
from holdfast.core.llm.messages import AssistantMessage

CLAIM_CHARS = 1_000
"""Maximum length of a claim that is kept."""

CLAIM_ROWS = 12
"""Maximum number of rows that are shown. More would push the arguments off the screen."""

CLAIM_COLUMNS = 60
"""Columns of a row that fit on any terminal."""

CLAIMED = "The agent says (its own claim, which nobody has checked):"
"""The line above a claim, on each screen."""

MARK = "┃ "
"""The mark before each row of a claim on a terminal."""


def claim_of(message: AssistantMessage) -> str:
    """Return the text beside the tool calls of a reply, cut to `CLAIM_CHARS`; empty if it makes no calls."""
    text = message.text.strip() if message.tool_calls else ""
    return text if len(text) <= CLAIM_CHARS else f"{text[: CLAIM_CHARS - 1]}…"


def claim_rows(claim: str, columns: int = CLAIM_COLUMNS) -> tuple[str, ...]:
    """Return a claim for display, in rows of at most that many columns, without blank lines; empty for none.

    If there are more rows than `CLAIM_ROWS`, the last one is an ellipsis.
    """
    lines = [line.rstrip() for line in visible(claim).split("\n") if line.strip()]
    rows = [row for line in lines for row in wrapped(line, columns)]
    rows = rows if len(rows) <= CLAIM_ROWS else [*rows[: CLAIM_ROWS - 1], f"{CONTINUED}…"]
    return tuple(rows)

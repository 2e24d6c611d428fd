"""A preview: what a tool call would do, as its tool computed it before people are asked to decide.

1. A tool computes it, so its text may quote anything that a file or a web page has. On each screen, each row has a mark
   before it, has no character that could control a display, and is too short for a display to break it.
2. It is part of what a decision is bound to: the request's digest covers it, and so does the signature.
3. A preview that could not be computed says why, in `problem`: people then decide on the arguments alone.
"""

from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import visible, wrapped

PREVIEW_CHARS = 8_000
"""Maximum length of a preview in a request. The complete text of a longer one is an artifact."""

BASE_CHARS = 200
"""Maximum length of a base."""

PROBLEM_CHARS = 500
"""Maximum length of the reason why there is no preview."""

PREVIEW_COLUMNS = 76
"""Columns of a row that fit on a terminal of 80, after the mark and the indent."""

PREVIEWED = "What it would do, as its tool has computed it:"
"""The line above a preview, on each screen."""

ASKED_BY_SERVER = "The server's own words, which nobody has checked:"
"""The line above the text of a server's question, in the place of `PREVIEWED`."""


class CallPreview(Frozen):
    """A preview of one tool call, as a request shows it."""

    text: str = ""
    """The preview, or the beginning of a longer one."""
    base: str = ""
    """Names the state that the preview was computed from; empty if the tool names none. If the state has another name
    when the call is about to run, the call does not run."""
    artifact: str = ""
    """Address of the complete text; empty if `text` is complete."""
    size: int = 0
    """Characters of the complete text; 0 if `text` is complete."""
    problem: str = ""
    """Why there is no preview; empty if there is one."""

    @property
    def complete(self) -> bool:
        """Whether `text` is all of the preview."""
        return not self.size

    @property
    def digest(self) -> str:
        """The digest that a decision is bound to."""
        return digest(["preview/1", self.text, self.base, self.artifact, self.size, self.problem])


def preview_heading(kind: str) -> str:
    """Return the line above the preview of a request of this kind."""
    return ASKED_BY_SERVER if kind == "question" else PREVIEWED


def preview_rows(preview: CallPreview, columns: int = PREVIEW_COLUMNS) -> tuple[str, ...]:
    """Return a preview for display, in rows of at most that many columns."""
    if preview.problem:
        lines = [f"There is none: {visible(preview.problem)}"]
    else:
        lines = [line.rstrip() for line in visible(preview.text).split("\n")] or ["(empty)"]
    return tuple(row for line in lines for row in wrapped(line, columns) or [""])


def cut_words(preview: CallPreview, thread: str) -> str:
    """Return a line that says how much of a preview is left out, and how to read all of it; empty for nothing.

    Args:
        preview: The preview.
        thread: The thread's id.
    """
    if preview.complete:
        return ""
    shown = f"Cut: the first {len(preview.text):,} of {preview.size:,} characters."
    return f"{shown} All of it: holdfast artifact {thread} {preview.artifact}"

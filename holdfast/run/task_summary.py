"""The task of a run in one line, as Temporal keeps it beside the run."""

from holdfast.base.text import one_line, plain
from holdfast.llm.blocks import Content, text_of

TASK = "task"
"""The memo of a start that has the task in one line: Temporal lists memos, and does not list summaries."""

_CHARS = 100


def summary(task: Content) -> str:
    """Return the task in one line, for the Web UI, which reads it as Markdown."""
    return plain(_first_line(task), _CHARS)


def memo(task: Content) -> dict[str, str]:
    """Return what Temporal keeps beside a run, for lists of runs."""
    return {TASK: one_line(_first_line(task), _CHARS)}


def _first_line(task: Content) -> str:
    return next((line for line in text_of(task).splitlines() if line.strip()), "")

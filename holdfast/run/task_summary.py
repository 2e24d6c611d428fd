"""The task of a run in one line, as Temporal keeps it beside the run."""

from holdfast.base.text import one_line
from holdfast.llm.blocks import Content, text_of

TASK = "task"
"""The memo of a start that has the task in one line: Temporal lists memos, and does not list summaries."""


def summary(task: Content) -> str:
    """Return the task in one line, for the Web UI."""
    return one_line(next((line for line in text_of(task).splitlines() if line.strip()), ""), 100)


def memo(task: Content) -> dict[str, str]:
    """Return what Temporal keeps beside a run, for lists of runs."""
    return {TASK: summary(task)}

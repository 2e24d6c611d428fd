"""What the screens of a thread say in a line: its pause, delays, retries, limits, tokens, and place in a tree."""

import math
import shlex
from datetime import datetime

from holdfast.cli.screens.event_words import speaker
from holdfast.cli.text import brief, clock, count, indented, visible
from holdfast.client.reading.runs import Retrying
from holdfast.client.threads import JSON


def refinement_row(refinement: JSON) -> tuple[str, str]:
    """How the task was refined: number and kind, by whom and when, and the text in lines of its own."""
    by = brief(refinement["by"] if refinement.get("own") else speaker(refinement))
    head = f"{refinement['refinement']}, {refinement['kind']}, by {by}, {clock(refinement['at'])}"
    return "Refined", f"{head}\n{indented(visible(refinement['text']))}"


def constraint_stands(constraint: JSON, at: datetime) -> bool:
    """Whether a constraint has not ended by itself."""
    return not constraint["until"] or datetime.fromisoformat(constraint["until"]) > at


def pause_words(pause: JSON) -> str:
    """Since when a run is paused, and until when."""
    return f" since {clock(pause['since'])}" + (f", until {clock(pause['until'])}" if pause["until"] else "")


def delay_words(delayed: JSON, now: datetime) -> str:
    """How long a repeated call still waits, and why."""
    seconds = max(0, math.ceil((datetime.fromisoformat(delayed["starts_at"]) - now).total_seconds()))
    why = f"the same call has had the same result {count(delayed['repeats'], 'time')}"
    return f"call {delayed['call']} of {visible(delayed['tool'])} waits {seconds:,} s: {why}"


def limits_words(limits: JSON | None) -> str:
    """What counts towards the agent's limits, each with its limit."""
    if not limits:
        return ""
    most, limit = limits.get("repeats", 0), limits.get("repeats_asked", 0)
    repeats = f", a call with the same result {most:,} times" + (f" of {limit:,}" if limit else "") if most > 1 else ""
    return (
        f"steps {limits['steps']:,} of {limits['step_limit']:,}, unusable replies in a row "
        f"{limits['rejected_replies']:,} of {limits['max_rejected_replies']:,}, at most {limits['max_calls']:,} calls "
        f"in a reply{repeats}"
    )


def retry_words(retrying: Retrying, *, now: datetime, thread: str = "") -> str:
    """`call_llm: attempt 4, the LLM does not answer: connection refused, next try in 8 s`.

    Args:
        retrying: The activity.
        now: The time.
        thread: Its thread, for the command that unpauses a paused activity; empty to leave that out.
    """
    silent = "the LLM does not answer: " if retrying.activity == "call_llm" else ""
    if retrying.paused:
        command = (
            f"temporal activity unpause -w {shlex.quote(thread)} --activity-id {shlex.quote(retrying.activity_id)}"
        )
        how = f"; `{command}` resumes it" if thread else ""
        failed = f" after {silent}{brief(retrying.reason, 200)}" if retrying.reason else ""
        return f"{retrying.activity} is paused in Temporal at attempt {retrying.attempt}{failed}{how}"
    reason = brief(retrying.reason, 200) or "no reason given"
    words = f"{retrying.activity}: attempt {retrying.attempt}, {silent}{reason}"
    if retrying.next_try is None:
        return f"{words}, trying now"
    return f"{words}, next try in {max(0, round((retrying.next_try - now).total_seconds()))} s"


def tokens_words(usage: JSON) -> str:
    """The tokens of a thread; empty while there are none."""
    if not usage["prompt_tokens"] and not usage["completion_tokens"]:
        return ""
    cached = f" ({usage['cached_tokens']:,} cached)" if usage["cached_tokens"] else ""
    return f"{usage['prompt_tokens']:,} prompt{cached}, {usage['completion_tokens']:,} completion"


def root_words(state: JSON) -> str:
    """Where a sub-agent stands in its tree; empty for any other run."""
    lineage = state.get("lineage")
    return " > ".join([*lineage["path"], state["thread"]]) if lineage else ""


def child_words(child: JSON) -> str:
    """A sub-agent in a line, as its parent has it."""
    how = f"{child['status']}, in the background" if child["background"] else child["status"]
    return brief(f"{child['thread']}  agent {child['agent']}, {how}", 240)


def refined_words(row: JSON) -> str:
    """What stands before the task of a thread in a list: a mark where the task was refined since."""
    return "(refined) " if row.get("refinements") else ""

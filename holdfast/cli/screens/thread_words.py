"""Single lines of a thread's screens: its pause, delays, retries, limits, tokens, and position in a tree."""

import math
import shlex
from datetime import datetime

from holdfast.cli.screens.event_words import principal_text
from holdfast.cli.text import brief, clock, count, indented, visible
from holdfast.client.reading.runs import Retrying
from holdfast.client.threads import JSON


def refinement_row(refinement: JSON) -> tuple[str, str]:
    """Return a refinement of the task: number, kind, author and time; the text follows on its own lines."""
    by = brief(refinement["by"] if refinement.get("own") else principal_text(refinement))
    head = f"{refinement['refinement']}, {refinement['kind']}, by {by}, {clock(refinement['at'])}"
    return "Refined", f"{head}\n{indented(visible(refinement['text']))}"


def constraint_stands(constraint: JSON, at: datetime) -> bool:
    """Whether a constraint has not expired."""
    return not constraint["until"] or datetime.fromisoformat(constraint["until"]) > at


def pause_text(pause: JSON) -> str:
    """Return the beginning of a pause, and its end."""
    return f" since {clock(pause['since'])}" + (f", until {clock(pause['until'])}" if pause["until"] else "")


def delay_text(delayed: JSON, now: datetime) -> str:
    """Return how long a delayed call still waits, and why."""
    seconds = max(0, math.ceil((datetime.fromisoformat(delayed["starts_at"]) - now).total_seconds()))
    why = f"the same call has had the same result {count(delayed['repeats'], 'time')}"
    if delayed.get("postponed"):
        start = f"starts at {clock(delayed['starts_at'])} ({visible(delayed['postponed'])})"
        return f"call {delayed['call']} of {visible(delayed['tool'])} {start}"
    if unanswered := delayed.get("unanswered"):
        why = f"{count(unanswered, 'step')} in a row that called it got no answer"
    return f"call {delayed['call']} of {visible(delayed['tool'])} waits {seconds:,} s: {why}"


def limits_text(limits: JSON | None) -> str:
    """Return the counts towards the agent's limits, each with its limit."""
    if not limits:
        return ""
    most, limit = limits.get("repeats", 0), limits.get("repeats_asked", 0)
    repeats = f", a call with the same result {most:,} times" + (f" of {limit:,}" if limit else "") if most > 1 else ""
    return (
        f"steps {limits['steps']:,} of {limits['step_limit']:,}, unusable replies in a row "
        f"{limits['rejected_replies']:,} of {limits['max_rejected_replies']:,}, at most {limits['max_calls']:,} calls "
        f"in a reply{repeats}"
    )


def retry_text(retrying: Retrying, *, now: datetime, thread: str = "") -> str:
    """Return `call_llm: attempt 4, the LLM does not answer: connection refused, next try in 8 s`.

    Args:
        retrying: The activity.
        now: The current time.
        thread: Its thread, for the command that unpauses a paused activity; empty to leave the command out.
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
    attempt = f"{retrying.activity}: attempt {retrying.attempt}, {silent}{reason}"
    if retrying.awaits_worker:
        return f"{attempt}, waits for a free worker"
    if retrying.next_try is None:
        return f"{attempt}, trying now"
    return f"{attempt}, next try in {max(0, round((retrying.next_try - now).total_seconds()))} s"


def tokens_text(usage: JSON) -> str:
    """Return the tokens of a thread; empty while there are none."""
    if not usage["prompt_tokens"] and not usage["completion_tokens"]:
        return ""
    cached = f" ({usage['cached_tokens']:,} cached)" if usage["cached_tokens"] else ""
    return f"{usage['prompt_tokens']:,} prompt{cached}, {usage['completion_tokens']:,} completion"


def root_text(state: JSON) -> str:
    """Return a sub-agent's path from the root of its tree; empty for any other run."""
    lineage = state.get("lineage")
    return " > ".join([*lineage["path"], state["thread"]]) if lineage else ""


def subagent_text(subagent: JSON) -> str:
    """Return a line for a sub-agent, from its parent's state."""
    how = f"{subagent['status']}, in the background" if subagent["background"] else subagent["status"]
    return brief(f"{subagent['thread']}  agent {subagent['agent']}, {how}", 240)


def refined_text(row: JSON) -> str:
    """Return the mark before the task of a thread in a list, if the task was refined."""
    return "(refined) " if row.get("refinements") else ""

"""A run as people watch and steer it: its head, and the rows of a list of runs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.client.reading.states import CLOSED
from holdfast.config.page_links import path_of
from holdfast.gateway.callers import Scope
from holdfast.gateway.page.views.text import Piece, When, line, pieces, when

JSON = Mapping[str, Any]


class Fact(NamedTuple):
    """A fact about a run."""

    name: str
    value: str


class Control(NamedTuple):
    """A way to steer a run."""

    act: str
    label: str
    path: str
    refused: str
    """Why it is not possible; empty if it is."""


class Head(NamedTuple):
    """A run, without its events."""

    thread: str
    path: str
    agent: str
    status: str
    status_words: str
    is_open: bool
    now: str
    next: tuple[Fact, ...]
    task: tuple[Piece, ...]
    result: tuple[Piece, ...]
    facts: tuple[Fact, ...]
    warning: str
    blocked: Fact | None
    blocked_message: tuple[Piece, ...]
    paused: str
    requests: tuple[Fact, ...]
    """Open requests: a name, and a path."""
    controls: tuple[Control, ...]
    events: int


class RunRow(NamedTuple):
    """A run in a list."""

    thread: str
    path: str
    agent: str
    status: str
    status_words: str
    task: str
    step: int
    pending: int
    started: When | None


def head_view(state: JSON, scopes: tuple[Scope, ...]) -> Head:
    """Return a run for display.

    Args:
        state: As `show` presents it.
        scopes: Those of the person who looks.
    """
    thread, status = str(state["thread"]), str(state["status"])
    is_open = status not in CLOSED and status != "unauthenticated"
    blocked, paused = state.get("blocked"), state.get("paused")
    return Head(
        thread=line(thread, 300),
        path=path_of("runs", thread),
        agent=line(state.get("agent") or "not loaded yet"),
        status=css_class(status),
        status_words=status.replace("_", " "),
        is_open=is_open,
        now=line(state.get("now") or "", 400),
        next=tuple(Fact(line(each["when"], 300), line(each["then"], 300)) for each in state.get("next") or ()),
        task=pieces(_text(state.get("task"))),
        result=pieces(_text(state.get("result"))),
        facts=tuple(_facts(state)),
        warning=line(state.get("warning") or "", 1_000),
        blocked=Fact(line(blocked["cause"]), line(blocked.get("after") or "", 400)) if blocked else None,
        blocked_message=pieces(str(blocked.get("message") or "")) if blocked else (),
        paused=line(f"{paused.get('by')}: {paused.get('reason') or 'no reason given'}", 400) if paused else "",
        requests=tuple(
            Fact(line(f"Request {each['request']}: {each['tool']}"), path_of("requests", thread, str(each["request"])))
            for each in state.get("pending") or ()
        ),
        controls=tuple(_controls(thread, status, is_open, bool(paused), bool(blocked), scopes)),
        events=int(state.get("events") or 0),
    )


def run_row(row: JSON, now: datetime) -> RunRow:
    """Return a row of a list of runs."""
    status = str(row["status"])
    return RunRow(
        thread=line(row["thread"], 300),
        path=path_of("runs", str(row["thread"])),
        agent=line(row.get("agent") or ""),
        status=css_class(status),
        status_words=line(status.replace("_", " ")),
        task=line(row.get("task") or "", 160),
        step=int(row.get("step") or 0),
        pending=int(row.get("pending") or 0),
        started=when(row.get("started_at"), now),
    )


def spent(state: JSON) -> tuple[Fact, ...]:
    """Return what a run has used so far: steps, tokens, and each limit of its budget."""
    usage = state.get("usage") or {}
    tokens = int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)
    facts = [Fact("Steps", f"{int(state.get('step') or 0):,}"), Fact("Tokens", f"{tokens:,}")]
    for each in (state.get("budget") or {}).get("limits") or ():
        dollars = "$" if each["limit"] == "usd" else ""
        name = "Cost" if dollars else f"Budget of {line(each['limit'])}"
        facts.append(Fact(name, line(f"{dollars}{each['spent']} of {dollars}{each['allowed']}")))
    return tuple(facts)


def _facts(state: JSON) -> list[Fact]:
    facts = [*spent(state)]
    if state.get("llm"):
        facts.append(Fact("LLM", line(state["llm"])))
    if state.get("trust"):
        facts.append(Fact("Has read", line(f"content of the level {state['trust']}")))
    lineage = state.get("lineage") or {}
    if path := lineage.get("path"):
        facts.append(Fact("Sub-agent of", line(" > ".join(map(str, path)), 400)))
    return facts


def _controls(
    thread: str, status: str, is_open: bool, paused: bool, blocked: bool, scopes: tuple[Scope, ...]
) -> list[Control]:
    rows: tuple[tuple[str, str, Scope, str], ...] = (
        ("pause", "Pause", "pause", "It is paused already." if paused else ""),
        ("resume", "Resume", "pause", "" if paused else "It is not paused."),
        ("retry", "Retry", "retry", "" if blocked else "It is not blocked."),
        ("cancel", "Cancel", "cancel", ""),
    )
    over = "" if is_open else "The run is over."
    return [
        Control(act, label, path_of("runs", thread, act), over or why or _lacks(scope, scopes))
        for act, label, scope, why in rows
    ]


def _lacks(scope: Scope, scopes: tuple[Scope, ...]) -> str:
    return "" if scope in scopes else f"Your token does not have the scope {scope}."


def css_class(status: str) -> str:
    """Return a status as a class: letters and underscores alone."""
    return "".join(each for each in status if each.isascii() and (each.isalpha() or each == "_"))[:40]


def _text(value: Any) -> str:
    if isinstance(value, list):  # content blocks
        return "\n".join(str(each.get("text") or f"({each.get('type')})") for each in value if isinstance(each, dict))
    return str(value or "")

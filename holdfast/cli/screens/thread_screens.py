"""Screens of threads: one thread in full, or many in a list."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from holdfast.cli.screens.costs import budget_text, cost_text, left_text, more_text
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.event_words import principal_text
from holdfast.cli.screens.request_screens import request_screen, request_text
from holdfast.cli.screens.thread_words import (
    constraint_stands,
    delay_text,
    limits_text,
    pause_text,
    refined_text,
    refinement_row,
    retry_text,
    root_text,
    subagent_text,
    tokens_text,
)
from holdfast.cli.text import age_text, brief, cell, clock, count, indented, visible
from holdfast.client.reading.runs import Retrying
from holdfast.client.reading.states import CLOSED
from holdfast.client.showing import archive_origin
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI
from holdfast.core.base.constraint_names import constraint_name, constraint_origin
from holdfast.core.base.readable_json import readable_json
from holdfast.core.run.state.dormancy import polls_text
from holdfast.core.tools.triggers import WAKE_TRIGGER

TASK_CHARS = 48
"""Characters of a task in a list."""

STATUS_STYLES = {
    "running": "cyan",
    "waiting_approval": "bold yellow",
    "waiting_message": "yellow",
    "paused": "bold blue",
    "paused_in_temporal": "blue",
    "unauthenticated": "bold red",
    "dormant": "blue",
    "blocked": "bold red",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "moved": "blue",
}

_ROW_STYLES = {"Now": "bold", "Error": "red", "Paused": "yellow", "Retrying": "yellow", "Warning": "yellow"}


def show_screen(
    state: JSON,
    *,
    retrying: Sequence[Retrying],
    ui: str | None,
    last: JSON | None = None,
    now: datetime | None = None,
) -> Text:
    """Return the screen of one thread: its state, open requests and waits, the last error, and commands that act on it.

    Commands that would be rejected are not shown: nothing acts on a closed thread, or on a log archived by a reset.
    """
    thread, status, origin = state["thread"], state["status"], archive_origin(state)
    acts = origin is None and status not in CLOSED
    at = now or datetime.now(UTC)
    screen = Text.assemble(
        (visible(thread), "bold"),
        "  ",
        (status.replace("_", " "), STATUS_STYLES.get(status, "")),
        f"  agent {state['agent'] or 'not loaded'}, step {state['step']}, {count(state['events'], 'event')}",
        # In any other status, the phase adds nothing: a run that waits for approval is not asleep.
        f", {state['lifecycle']}" if status == "running" and state.get("lifecycle") else "",
        (f", as it was after event {state['at']}" if "at" in state else "", "yellow"),
        "\n\n",
    )
    for label, text in _rows(state, last, retrying=retrying, ui=ui, at=at):
        if text:
            head, *rest = text.splitlines()
            screen.append(f"{label:<10} ", "dim").append(head + "\n", _ROW_STYLES.get(label, ""))
            screen.append("".join(f"{'':<11}{line}\n" for line in rest))
    screen.append(_pause_text(thread, state, acts=acts))
    if dormancy := state.get("dormancy"):
        screen.append(_dormancy_text(thread, dormancy, acts=acts))
    screen.append(_blocked_text(thread, state, acts=acts))
    screen.append(_authority_text(thread, state, acts=acts))
    for constraint in state.get("constraints", ()):
        if constraint_stands(constraint, at):
            screen.append(_constraint_text(thread, constraint, acts=acts))
    if fork := state.get("fork"):
        screen.append(_fork_text(thread, fork, acts=acts))
    for request in state["pending"]:
        format_request = request_screen if acts else request_text
        screen.append("\n").append(format_request({"thread": thread, **request}))
    if state["result"]:
        title = "Why" if status in ("failed", "cancelled") else "Result"
        screen.append(f"\n{title}\n", "bold").append(indented(visible(state["result"])) + "\n")
    if origin:
        screen.append(f"\nThis is what a reset of {visible(origin)} has left behind: nothing continues it\n", "bold")
        screen.append(f"  {CLI.command('show', origin)}\n", "bold")
    elif status == "waiting_message":
        screen.append(f"\nIt is open for a message\n  {CLI.command('say', thread, 'MESSAGE')}\n", "bold")
    screen.rstrip()
    return screen


def _rows(
    state: JSON, last: JSON | None, *, retrying: Sequence[Retrying], ui: str | None, at: datetime
) -> list[tuple[str, str]]:
    """Return the rows at the head of the screen, as label and text. Rows with an empty text are not shown."""
    thread = state["thread"]
    rows = status_rows(state, last, now=at)
    rows += [("Task", visible(state["task"])), *map(refinement_row, state.get("refinements", ()))]
    if (context := state.get("context")) is not None:
        rows.append(("Context", brief(json.dumps(context, ensure_ascii=False), 600)))
    rows += [("Workspace", visible(state["workspace"])), ("Schedule", visible(state.get("schedule", "")))]
    rows += [
        ("Root", visible(root_text(state))),
        *(("Sub-agent", subagent_text(c)) for c in state.get("subagents", ())),
    ]
    rows += [("Nodes", visible(places_text(state["places"])))] if "places" in state else []
    rows += [("Running", visible(call)) for call in state.get("running", ())]
    rows += [("Delayed", delay_text(each, at)) for each in state.get("delayed", ())]
    rows += [("Paused" if each.paused else "Retrying", retry_text(each, now=at, thread=thread)) for each in retrying]
    rows += [("Warning", visible(state.get("warning", "")))]
    rows += [("Tokens", tokens_text(state["usage"])), ("Cost", cost_text(state) if "cost" in state else "")]
    rows += [("Budget", budget_text(state.get("budget")))]
    rows += [("Attended", "no: it fails where others wait for a person")] if state.get("unattended") else []
    rows += [("Limits", limits_text(state.get("limits"))), ("Web UI", ui or "")]
    return rows


def places_text(places: JSON) -> str:
    """Return the nodes that may execute a run, the one that did last, and the nodes that rejected its work."""
    layers = [" or ".join(nodes) for nodes in places["scope"]]
    lines = [" and ".join(layers) or "any"]
    if node := places["node"]:
        lines.append(f"last: {node['name']}")
    if waits := places["waits_for"]:
        lines += [f"rejected by {each}" for each in waits["rejected"]]
    return "\n".join(lines)


def _pause_text(thread: str, state: JSON, *, acts: bool) -> Text:
    """Return who paused the run and, if the thread is open, the command that resumes it."""
    screen = Text()
    if paused := state.get("paused"):
        why = f": {brief(paused['reason'], 400)}" if paused["reason"] else ""
        screen.append("\nPaused ", "bold blue").append(f"by {brief(principal_text(paused))}{pause_text(paused)}{why}\n")
        if acts:
            screen.append(f"  {CLI.command('resume', thread)}\n", "bold")
    return screen


def _blocked_text(thread: str, state: JSON, *, acts: bool) -> Text:
    """Return why the run is blocked and, if the thread is open, the command that unblocks it."""
    screen = Text()
    if blocked := state["blocked"]:
        screen.append("\nBlocked ", "bold red").append(f"{brief(blocked['cause'])}: {visible(blocked['message'])}\n")
        if after := blocked.get("after"):
            screen.append(f"  gave up {brief(after, 400)}\n")
        if reason := blocked.get("reason"):
            screen.append(f"  last: {brief(reason, 1_000)}\n")
        if acts:
            more = more_text(state.get("budget"))
            then = ("extend", thread, "--budget", more) if blocked["cause"] == "BudgetSpent" else ("retry", thread)
            screen.append(f"  {CLI.command(*then)}\n", "bold")
    return screen


def _authority_text(thread: str, state: JSON, *, acts: bool) -> Text:
    """Return remembered rules and delegations and, if the thread is open, the commands that revoke them."""
    screen = Text()
    for rule in state.get("remembered", ()):
        screen.append("\nAllowed from now on  ", "bold").append(
            f"this call of {brief(rule['tool'])}, by {brief(rule['by'])}\n"
        )
        if "arguments" in rule:
            screen.append(indented(readable_json(rule["arguments"]), "    ") + "\n")
        if acts:
            screen.append(f"  {CLI.command('revoke', thread, '--remembered', rule['rule'])}\n", "dim")
    for delegation in state.get("delegated", ()):
        who = f"{brief(delegation['by'])} to {brief(delegation['to'])}, until {clock(delegation['until'])}"
        screen.append("\nDelegated  ", "bold").append(f"by {who}\n")
        if acts:
            screen.append(f"  {CLI.command('revoke', thread, '--delegated-to', delegation['to'])}\n", "dim")
    return screen


def _constraint_text(thread: str, constraint: JSON, *, acts: bool) -> Text:
    """Return the calls that a constraint refuses, why and, if the thread is open, the command that removes it."""
    screen = Text()
    name, what = constraint_name(constraint["constraint"]), f"every call of {constraint['tool']}"
    if constraint["scope"] == "here":
        what = f"{constraint['tool']}({constraint['arguments']})"
    if nodes := constraint.get("nodes"):
        what = f"{what} on {nodes}"
    end = f", until {clock(constraint['until'])}" if constraint["until"] else ""
    origin = constraint_origin(constraint["constraint"])
    source = f", {origin}" if origin else ""
    screen.append(f"\nConstraint {name}  ", "bold").append(f"refuses {brief(what, 300)}{end}{source}\n")
    screen.append(f"  {brief(constraint['reason'], 600)}\n")
    return screen.append(f"  {CLI.command('lift', thread, name)}\n", "dim") if acts else screen


def _fork_text(thread: str, fork: JSON, *, acts: bool) -> Text:
    """Return the origin of a fork, and the differences from it."""
    screen = Text()
    screen.append("\nFork ", "bold").append(f"of {brief(fork['thread'])} after event {fork['position']}")
    screen.append(f", by {brief(fork['by'])}\n" if fork["by"] else "\n")
    if fork.get("llm"):
        screen.append(f"  its LLM is {brief(fork['llm'])}\n")
    for digest in fork.get("policies", ()):
        screen.append(f"  policy {digest[:12]} judges its calls, too: the strictest verdict counts\n")
    if fork["effects_ask"]:
        screen.append("  its effects ask first, whatever the policy allows\n")
        if acts:
            screen.append(f"  {CLI.command('lift', thread, '0')}\n", "dim")
    return screen


def _dormancy_text(thread: str, dormancy: JSON, *, acts: bool) -> Text:
    """Return a dormant run's triggers, its buffered events and, if the thread is open, the commands that wake it."""
    screen = Text()
    for wait in dormancy["waits"]:
        trigger = WAKE_TRIGGER.validate_python(wait).words
        screen.append("\nDormant ", "bold blue").append(f"call {wait['call']} waits for {brief(trigger, 400)}\n")
        if polls := wait.get("polls"):
            looks = polls_text(polls["count"], polls["result"])
            screen.append(f"  looks again at {clock(polls['again'])} ({looks})\n")
        data = ("--data", json.dumps(wait["match"])) if wait.get("match") else ()  # ASCII, because an LLM wrote it
        event = ("--event", wait["event"], *data) if wait["kind"] == "event" else ()
        if acts and wait["kind"] != "task":
            screen.append(f"  {CLI.command('wake', thread, *event)}\n", "bold")
    if kept := dormancy["buffered"]:
        names = ", ".join(dict.fromkeys(brief(each["event"]) for each in kept))
        screen.append("\nKept ", "bold").append(f"{count(len(kept), 'event')} that no call waits for yet: {names}\n")
    return screen


def list_screen(rows: Sequence[JSON], *, now: datetime | None = None) -> Text:
    """Return threads in columns, the task last and shortened. Unknown values are `?`."""
    asleep = any(row.get("wakes_at") for row in rows)
    budgets = any(row.get("budget") for row in rows)
    more = ["LEFT"] if budgets else []
    wakes = ["WAKES"] if asleep else []
    heads = ("THREAD", "STATUS", *wakes, "STEP", "PENDING", "AGE", "COST", *more, "AGENT", "TASK")
    at = now or datetime.now(UTC)
    table = [
        (
            row["thread"],
            row["status"],
            *([clock(row["wakes_at"]) if row.get("wakes_at") else "–"] if asleep else []),
            str(row["step"]),
            str(row["pending"] or "–"),
            age_text(row["started_at"], now=at),
            cost_text(row),
            *([left_text(row) or "–"] if budgets else []),
            brief(row["agent"] or "–"),
            refined_text(row) + brief(row["task"] or "?", TASK_CHARS),
        )
        for row in rows
    ]
    # Ids, statuses and other search attributes are untrusted: anybody with access to Temporal can write them.
    table = [tuple(map(cell, line)) for line in table]
    widths = [max(len(line[column]) for line in [heads, *table]) for column in range(len(heads))]
    screen = Text(_columns(heads, widths) + "\n", "dim") if table else Text()
    for line in table:
        thread, status, *rest = line
        screen.append(f"{thread:<{widths[0]}}  ").append(f"{status:<{widths[1]}}", STATUS_STYLES.get(status, ""))
        screen.append("  " + _columns(rest, widths[2:]) + "\n")
    screen.rstrip()
    return screen


def costs_screen(rows: Sequence[JSON], by: str) -> Text:
    """Return the total costs of threads, in columns."""
    heads = (by.upper(), "THREADS", "TOKENS", "COST")
    table = [
        (
            cell(row[by]),
            f"{row['threads']:,}",
            f"{row['tokens']:,}",
            f"${row['cost']:,.4f}" + (f" and {row['unknown']:,} unknown" if row["unknown"] else ""),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [heads, *table]) for column in range(len(heads))]
    screen = Text(_columns(heads, widths) + "\n", "dim")
    for line in table:
        screen.append(_columns(line, widths) + "\n")
    screen.rstrip()
    return screen


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


_WITH_COMMAND = ("paused", "blocked", "waiting_message", "waiting_approval")
"""Statuses whose section of the screen has its own command."""


def status_rows(state: JSON, last: JSON | None, *, now: datetime) -> list[tuple[str, str]]:
    """Return the status in rows of a label and a text. A worker of an older release omits the fields that it lacks.

    Args:
        state: The view that `show --json` prints.
        last: The last event; None if it is unknown.
        now: The current time.
    """
    rows = [("Now", brief(state.get("now") or "", 300))]
    rows += [("Next", f"when {brief(each['when'])}: {brief(each['then'])}") for each in state.get("next", ())]
    if last:
        ago = age_text(last["at"], now=now)
        rows.append(("Last", f"{_line(last)}, {ago} ago: {event_summary(last)}"))
    rows += [("Error", f"{_line(error)}: {brief(error['what'], 300)}") for error in state.get("errors", ())]
    if (way := state.get("continue")) and state["status"] not in _WITH_COMMAND:
        rows.append(("Continue", brief(" – ".join(filter(None, (way["command"], way["why"]))), 300)))
    return rows


def _line(event: JSON) -> str:
    return f"{event['position']}  {clock(event['at'])}  {brief(event['type'])}"

"""Screens of loops, for people."""

from rich.text import Text

from holdfast.cli.screens.costs import budget_text
from holdfast.cli.screens.thread_screens import STATUS_STYLES
from holdfast.cli.screens.thread_words import tokens_text
from holdfast.cli.text import brief, clock, count, visible
from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI

_STYLES = {"completed": "green", "blocked": "bold red", "failed": "red", "changed": "yellow", None: "cyan"}


def loop_screen(state: JSON, *, ui: str | None) -> Text:
    """Return the screen of a loop: its state, its last iterations, and the commands that act on it."""
    loop, status = state["thread"], state["status"]
    acts = status not in CLOSED
    screen = Text.assemble(
        (visible(loop), "bold"),
        "  ",
        (status.replace("_", " "), STATUS_STYLES.get(status, "")),
        f"  agent {state['agent'] or 'not known yet'}, {count(state['step'], 'iteration')}\n\n",
    )
    tasks = f"{state['tasks']['done']} done, {state['tasks']['open']} open"
    cost = "" if state["cost"] is None else f"${state['cost']:,.4f}"
    rows = [("Task", visible(state["task"])), ("Workspace", visible(state["workspace"])), ("Tasks", tasks)]
    rows += [("Tokens", tokens_text(state["usage"])), ("Cost", cost)]
    rows += [("Budget", budget_text(state.get("budget"))), ("Web UI", ui or "")]
    for label, text in rows:
        if text:
            screen.append(f"{label:<10} ", "dim").append(text.replace("\n", "\n" + " " * 11) + "\n")
    if state["iterations"]:
        screen.append("\n")
    for each in state["iterations"]:
        screen.append(iteration_line(each)).append("\n")
    if paused := state["paused"]:
        why = f": {brief(paused['reason'])}" if paused["reason"] else ""
        until = f" until {clock(paused['until'])}" if paused.get("until") else ""
        screen.append("\nPaused ", "bold blue").append(f"by {brief(paused['by'])}{until}{why}\n")
        if acts:
            screen.append(f"  {CLI.command('resume', loop)}\n", "bold")
    if blocked := state["blocked"]:
        screen.append("\nBlocked ", "bold red").append(f"{brief(blocked['cause'])}: {visible(blocked['message'])}\n")
        if acts:
            screen.append(f"  {CLI.command('retry', loop)}\n", "bold")
    if state["result"]:
        screen.append("\nResult\n" if status == "completed" else "\nWhy\n", "bold").append(visible(state["result"]))
    screen.rstrip()
    return screen


def iteration_line(iteration: JSON) -> Text:
    """Return the lines of one iteration: its thread, outcome, task and commits."""
    outcome = iteration["outcome"]
    words = Text.assemble(
        f"  {visible(iteration['thread'])}  ",
        (f"{outcome or 'under way':<9}", _STYLES.get(outcome, "")),
        f"  {brief(iteration['task'] or 'write the plan')}",
    )
    if iteration["explanation"]:
        words.append(f"\n      {brief(iteration['explanation'], 300)}", "dim")
    for commit in iteration["commits"]:
        words.append(f"\n      {brief(commit)}", "dim")
    return words

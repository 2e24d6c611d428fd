"""Screens of schedules, for people."""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from holdfast.cli.screens.thread_screens import STATUS_STYLES
from holdfast.cli.text import brief, clock, count, local, visible
from holdfast.client.threads import JSON
from holdfast.config.programs import CLI
from holdfast.core.base.durations import span_text


def when_text(state: JSON) -> str:
    """Return the times at which a schedule starts runs, in a few words."""
    if state["every"] is not None:
        return f"every {span_text(state['every'])}"
    if state["cron"] is not None:
        return f"{state['cron']} ({brief(state['tz'])})"
    return "times set in Temporal"


def schedules_screen(rows: Sequence[JSON]) -> Text:
    """Return a line for each schedule: its name, times, next run and task."""
    screen = Text()
    for row in rows:
        ahead = "paused" if row["paused"] else clock(row["next"][0]) if row["next"] else "ended"
        style = "bold red" if row["problem"] else "bold blue" if row["paused"] else ""
        screen.append(f"{visible(row['schedule']):<20}  ", "bold").append(f"{when_text(row):<28}  ")
        screen.append(f"{'broken' if row['problem'] else ahead:<19}", style).append(f"  {brief(row['task'], 48)}\n")
    screen.rstrip()
    return screen


def schedule_screen(state: JSON) -> Text:
    """Return the screen of a schedule: its task, times, requester and last runs."""
    name = state["schedule"]
    late = span_text(state["catchup"]) if state["catchup"] is not None else ""
    rows = [
        ("Task", visible(state["task"])),
        ("By", brief(state["by"])),
        ("Agent", brief(state["agent"] or "")),
        ("Workspace", visible(state["workspace"] or "")),
        ("Why", brief(state["reason"], 400)),
        ("When", when_text(state)),
        ("Until", clock(state["until"]) if state["until"] else ""),
        ("Overlap", state["overlap"]),
        ("Catch-up", f"at most {late} late" if late else ""),
        ("Nodes", " or ".join(state.get("nodes") or ())),
        ("Attended", "no: runs fail instead of waiting for a person" if state.get("unattended") else ""),
        ("Next", ", ".join(map(_in_zone, state["next"][:3]))),
        ("So far", _so_far(state)),
    ]
    screen = Text.assemble((visible(name), "bold"), "\n\n")
    for label, text in rows:
        if text:
            screen.append(f"{label:<10} ", "dim").append(text.replace("\n", "\n" + " " * 11) + "\n")
    if state["problem"]:
        screen.append("\nBroken ", "bold red").append(f"{brief(state['problem'], 600)}\n")
    if state["paused"]:
        screen.append("\nPaused ", "bold blue").append(f"{brief(state['note'].removeprefix('paused '), 600)}\n")
        screen.append(f"  {CLI.command('schedule', 'resume', name)}\n", "bold")
    elif state["note"]:
        screen.append("Note       ", "dim").append(f"{brief(state['note'], 600)}\n")
    for at, run in enumerate(state["runs"]):
        screen.append("\nLast runs\n" if at == 0 else "", "bold")
        status = run["status"]
        screen.append(f"  {visible(run['thread'])}  ").append(
            status.replace("_", " "), STATUS_STYLES.get(status, "red" if status == "not_started" else "")
        )
        screen.append("\n" + (f"      {brief(run['why'], 300)}\n" if run["why"] else ""))
    screen.rstrip()
    return screen


def _in_zone(at: str) -> str:
    """Return a time on this machine's clock, with its zone, which may differ from the schedule's."""
    return f"{clock(at)} {local(datetime.fromisoformat(at)).tzname()}"


def _so_far(state: JSON) -> str:
    """Return the numbers of runs that were started, skipped and missed."""
    counts = [count(state["started"], "run")]
    counts += [f"{state['skipped']} left out, because the last one was open"] if state["skipped"] else []
    counts += [f"{state['missed']} missed, because Temporal was down"] if state["missed"] else []
    return ", ".join(counts)

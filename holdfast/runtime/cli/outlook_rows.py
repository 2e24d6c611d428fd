"""The first rows of `show`: what a run does or waits for, what follows, what happened and went wrong last, and the
command that continues it.
"""

from datetime import datetime

from holdfast.runtime.cli.event_lines import event_summary
from holdfast.runtime.cli.text import age_words, brief, clock
from holdfast.runtime.client.threads import JSON

_WITH_COMMAND = ("paused", "blocked", "waiting_message", "waiting_approval")
"""Statuses for which the screen shows the command beside what it is about."""


def outlook_rows(state: JSON, last: JSON | None, *, now: datetime) -> list[tuple[str, str]]:
    """Return rows of a label and a text. A worker of an older release leaves out what it does not know.

    Args:
        state: As `show --json` has it.
        last: The last event; None where it is not known.
        now: The time.
    """
    rows = [("Now", brief(state.get("now") or "", 300))]
    rows += [("Next", f"when {brief(each['when'])}: {brief(each['then'])}") for each in state.get("next", ())]
    if last:
        ago = age_words(last["at"], now=now)
        rows.append(("Last", f"{_line(last)}, {ago} ago: {event_summary(last)}"))
    rows += [("Error", f"{_line(error)}: {brief(error['what'], 300)}") for error in state.get("errors", ())]
    if (way := state.get("continue")) and state["status"] not in _WITH_COMMAND:
        rows.append(("Continue", brief(" – ".join(filter(None, (way["command"], way["why"]))), 300)))
    return rows


def _line(event: JSON) -> str:
    return f"{event['position']}  {clock(event['at'])}  {brief(event['type'])}"

"""The permanent record: whether a thread has been altered, and which threads can be pruned."""

from rich.text import Text

from holdfast.runtime.audit.verify import Verification
from holdfast.runtime.cli.text import clock, count, visible
from holdfast.runtime.reading.record import EndedThread


def verify_screen(verified: Verification) -> Text:
    """The result of checking a thread."""
    where = " and ".join(
        {"history": "Temporal's histories", "record": "the permanent record"}[s] for s in verified.sources
    )
    head = ("ok       ", "green") if verified.ok else ("altered  ", "bold red")
    screen = Text.assemble(head, (visible(verified.thread), "bold"), f"  {count(verified.events, 'event')} in {where}")
    if verified.ok and verified.signatures:
        screen.append(f", {count(verified.signatures, 'signature')}")
    if verified.ok and verified.seals:
        screen.append(f", {count(verified.seals, 'seal')}")
    if not verified.ok:
        event = "" if verified.position is None else f"event {verified.position}, "
        place = verified.where if verified.where == "artifacts" else f"the {verified.where}"
        screen.append(f"\n         {event}in {place}: {visible(verified.reason)}\n         {verified.advice}")
    for one in verified.unchecked:
        screen.append(f"\n         not checked: {one.what}: {visible(one.why)}", "dim")
    for words in verified.notes:
        screen.append(f"\n         note: {visible(words)}", "yellow")
    return screen


def prunable_line(one: EndedThread) -> Text:
    """A thread that ended long ago, in one line."""
    size = f"{count(one.events, 'event')}, {one.bytes:,} bytes"
    return Text.assemble((clock(one.last_at.isoformat()), "dim"), f"  {visible(one.thread)}  ({size})")

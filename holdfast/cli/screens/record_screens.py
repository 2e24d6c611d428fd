"""Screens of verified records, of a thread here or in a portable file, and the line of a thread that can be pruned.

All text in a portable file is untrusted.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from holdfast.audit.evidence.results import calls_by_node
from holdfast.audit.evidence.verdicts import Verdict, Verification
from holdfast.cli.text import clock, count, visible
from holdfast.client.reading.record import EndedThread

if TYPE_CHECKING:
    from holdfast.portable.verify import FileVerification

INDENT = " " * 12
_STYLES: Mapping[Verdict, str] = {"proven": "green", "not_proven": "yellow", "altered": "bold red"}


def verify_screen(verified: Verification) -> Text:
    """Return the screen of a verified thread."""
    where = " and ".join(
        {"history": "Temporal's histories", "record": "the permanent record"}[s] for s in verified.sources
    )
    screen = Text.assemble(verdict_text(verified), (visible(verified.thread), "bold"))
    screen.append(f"  {count(verified.events, 'event')} in {where}")
    if verified.ok and verified.signatures:
        screen.append(f", {count(verified.signatures, 'signature')}")
    if verified.ok and verified.seals:
        screen.append(f", {count(verified.seals, 'seal')}")
    if not verified.ok:
        event = "" if verified.position is None else f"event {verified.position}, "
        place = verified.where if verified.where == "artifacts" else f"the {verified.where}"
        screen.append(f"\n{INDENT}{event}in {place}: {visible(verified.reason)}\n{INDENT}{verified.advice}")
    return append_checks(screen, verified)


def verdict_text(verified: Verification) -> tuple[str, str]:
    """Return the verdict, and its style."""
    return f"{verified.verdict.replace('_', ' '):<12}", _STYLES[verified.verdict]


def append_checks(screen: Text, verified: Verification) -> Text:
    """Append the checks that were made, those that were not, and the notes."""
    if verified.checked:
        screen.append(f"\n{INDENT}checked: {visible(', '.join(verified.checked))}", "dim")
    for one in verified.unchecked:
        screen.append(f"\n{INDENT}not checked: {visible(one.what)}: {visible(one.why)}", "dim")
    for made in calls_by_node(verified.calls) if verified.ok else ():
        by = f"{made.node} made" if made.known else f"claimed, not checked: a node {visible(made.node)}… made"
        text = f"{by} {count(made.llm, 'LLM call')} and {count(made.tools, 'tool call')}"
        screen.append(f"\n{INDENT}{text}", "" if made.known else "dim")
    for note in verified.notes:
        screen.append(f"\n{INDENT}{visible(note)}", "yellow")
    return screen


def prunable_line(one: EndedThread) -> Text:
    """Return a line for a thread that ended long ago."""
    size = f"{count(one.events, 'event')}, {one.bytes:,} bytes"
    return Text.assemble((clock(one.last_at.isoformat()), "dim"), f"  {visible(one.thread)}  ({size})")


def file_screen(verified: "FileVerification") -> Text:
    """Return the screen of a verified portable file: the result or the first fault, and the checks not made."""
    screen = Text.assemble(verdict_text(verified), (visible(verified.thread), "bold"))
    screen.append(f"  {count(verified.events, 'event')} in a file")
    if verified.ok:
        screen.append(f", {count(verified.subagents, 'sub-agent')}" if verified.subagents else "")
        screen.append(f", {count(verified.signatures, 'signature')}" if verified.signatures else "")
        claimed = " of nodes that you did not name" if any(each.claimed for each in verified.stretches) else ""
        screen.append(f", {count(verified.seals, 'seal')}{claimed}" if verified.seals else "")
        screen.append(f"\n{INDENT}head {verified.head}")
        for key in verified.signers:
            screen.append(f"\n{INDENT}signed with {visible(key)}")
        for segment in verified.segments:
            screen.append(f"\n{INDENT}trace {segment.trace_id} from event {segment.position}")
        for stretch in verified.stretches:
            which = f"events {stretch.first} to {stretch.last}"
            if stretch.claimed:
                screen.append(f"\n{INDENT}claimed, not checked: {which} first sealed by {stretch.node}", "dim")
            else:
                screen.append(f"\n{INDENT}{which} first sealed by {stretch.node}")
    else:
        event = "" if verified.position is None else f"event {verified.position}, "
        screen.append(f"\n{INDENT}{event}in {visible(verified.where)}: {visible(verified.reason)}")
        screen.append(f"\n{INDENT}{verified.advice}")
    return append_checks(screen, verified)

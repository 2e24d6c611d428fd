"""What the command line shows of a portable file. All that is in such a file is untrusted text."""

from rich.text import Text

from holdfast.runtime.cli.record_screens import INDENT, append_checks, verdict_text
from holdfast.runtime.cli.text import count, visible
from holdfast.runtime.portable.verify import FileVerification


def file_screen(verified: FileVerification) -> Text:
    """The result of checking a portable file: what holds, the first thing that does not, and what was not checked."""
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

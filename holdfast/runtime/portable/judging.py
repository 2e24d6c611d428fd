"""Judges the events of a portable file: whether each follows from those before it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.audit.audit import Audit
from holdfast.authority.policy import Policy
from holdfast.errors import EventUnreadable, NotPortable
from holdfast.log.events import AgentEvent, RunForked, RunStarted, SubagentStarted
from holdfast.log.upcasters import decode_event
from holdfast.portable.derived import Derived
from holdfast.portable.layout import Unsound
from holdfast.portable.members import LOG
from holdfast.runtime.portable.reader import PortableFile
from holdfast.stores import origin_of

BATCH: Final = 500
"""Events that are judged at a time; more if more were recorded together."""

_NOT_AS_STORED = (LookupError, TypeError, AttributeError, ValueError, RecursionError, NotPortable)
"""What deriving raises where a forged line decodes, and has its fields in other forms than any release stored."""


@dataclass
class Judged:
    """What the events of a log show."""

    audit: Audit
    derived: Derived = field(default_factory=Derived)
    follows: dict[str, bytes] = field(default_factory=dict)
    """Members that follow from the log, with their content."""
    last: str = ""
    """The type of the last event."""
    forked: RunForked | None = None
    """The last fork: what comes before it belongs to another thread."""
    parent: str = ""
    """The thread whose sub-agent this one is; empty for none."""
    subagents: int = 0
    """How many sub-agents the thread has started."""


def judge(file: PortableFile, trusted: Policy | None, *, owner: str) -> Judged:
    """Judge the log of a file, and collect what follows from it.

    Args:
        file: Its log is whole.
        trusted: People, gateways and their keys, from outside the file; None to trust the file's own.
        owner: The thread to which the first event has to belong: of a fork, the original.

    Raises:
        Unsound: An event does not follow from those before it.
    """
    found = Judged(Audit(owner, trusted=trusted))
    audit, waiting = found.audit, list[AgentEvent]()
    for event in _events(file, found):
        waiting.append(event)
        if len(waiting) >= BATCH and len(waiting) % BATCH == 0:
            del waiting[: audit.take(waiting, more=True)]
            if audit.fault:
                break
    audit.take(waiting)
    if audit.fault:
        raise Unsound(LOG, audit.fault.reason, audit.fault.position)
    if audit.thread != (origin_of(file.manifest.thread) or file.manifest.thread):
        raise Unsound(LOG, f"its last event belongs to thread {audit.thread!r}, and the manifest names another")
    try:
        found.follows = dict(found.derived.members())
    except _NOT_AS_STORED as error:
        raise Unsound(LOG, f"nothing can be derived from it ({type(error).__name__})") from None
    return found


def _events(file: PortableFile, found: Judged) -> Iterator[AgentEvent]:
    for position, line in enumerate(file.lines(LOG)):
        try:
            event = decode_event(line)
            found.derived.take(event.type, line)
        except EventUnreadable as error:
            raise Unsound(LOG, str(error), position) from None
        except _NOT_AS_STORED as error:
            raise Unsound(LOG, f"nothing can be derived from it ({type(error).__name__})", position) from None
        found.last = event.type
        match event:
            case RunForked():
                found.forked, found.parent, found.subagents = event, "", 0
            case RunStarted(lineage=lineage) if lineage:
                found.parent = lineage.parent
            case SubagentStarted():
                found.subagents += 1
            case _:
                pass
        yield event

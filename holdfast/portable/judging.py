"""Judges the events of a portable file: whether each follows from those before it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.audit.judge.audit import Audit
from holdfast.audit.judge.signed_results import NodeKeys
from holdfast.core.authority.policy import Policy
from holdfast.core.log.events import AgentEvent, RunForked, RunStarted
from holdfast.core.log.upcasters import decode_event
from holdfast.errors import EventUnreadable, NotPortable
from holdfast.portable.format.derived import DerivedMembers
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.reader import PortableFile

BATCH: Final = 500
"""The number of events judged at a time; more if more were recorded together."""

_NOT_AS_STORED = (LookupError, TypeError, AttributeError, ValueError, RecursionError, NotPortable)
"""Errors of deriving from a forged line that decodes, but has fields in forms that no release stored."""


@dataclass
class LogFindings:
    """The findings about the events of a log."""

    audit: Audit
    derived: DerivedMembers = field(default_factory=DerivedMembers)
    follows: dict[str, bytes] = field(default_factory=dict)
    """Members derived from the log, with their content."""
    last: str = ""
    """The type of the last event."""
    forked: RunForked | None = None
    """The last fork: the events before it belong to another thread."""
    parent: str = ""
    """The thread that started this sub-agent; empty if it is none."""


def judge(
    file: PortableFile, trusted: Policy | None, *, owner: str, path: str = "", nodes: NodeKeys | None = None
) -> LogFindings:
    """Judge a log of a file, and derive its members.

    Args:
        file: A file whose integrity was checked.
        trusted: People, gateways and their keys, from outside the file; None to trust the file's own.
        owner: The thread to which the first event must belong: for a fork, the original.
        path: The path of a sub-agent below the root thread; empty for the root.
        nodes: The keys of nodes, with which signatures of results are verified; None for no node.

    Raises:
        Unsound: An event does not follow from those before it.
    """
    judged = LogFindings(Audit(owner, trusted=trusted, nodes=nodes))
    name, thread = child_member(LOG, path), file.thread_at(path)
    audit, waiting = judged.audit, list[AgentEvent]()
    for event in _events(file, name, judged):
        waiting.append(event)
        if len(waiting) >= BATCH and len(waiting) % BATCH == 0:
            del waiting[: audit.take(waiting, more=True)]
            if audit.fault:
                break
    audit.take(waiting)
    if audit.fault:
        raise Unsound(name, audit.fault.reason, audit.fault.position)
    if audit.thread != thread:
        raise Unsound(name, f"its last event belongs to thread {audit.thread!r}, and the manifest names another")
    try:
        judged.follows = dict(judged.derived.members())
    except _NOT_AS_STORED as error:
        raise Unsound(name, f"nothing can be derived from it ({type(error).__name__})") from None
    return judged


def _events(file: PortableFile, name: str, judged: LogFindings) -> Iterator[AgentEvent]:
    for position, line in enumerate(file.lines(name)):
        try:
            event = decode_event(line)
            judged.derived.take(event.type, line)
        except EventUnreadable as error:
            raise Unsound(name, str(error), position) from None
        except _NOT_AS_STORED as error:
            raise Unsound(name, f"nothing can be derived from it ({type(error).__name__})", position) from None
        judged.last = event.type
        match event:
            case RunForked():
                judged.forked, judged.parent = event, ""
            case RunStarted(lineage=lineage) if lineage:
                judged.parent = lineage.parent
            case _:
                pass
        yield event

"""Check a thread before its file is signed: the signature vouches for it, and others import the file because of that.

A file is signed only if the permanent record passed its checks together with the MACs of Temporal's histories, or with
seals of nodes in anchors.
"""

from dataclasses import dataclass, replace

from holdfast.audit.evidence.anchors import Anchors
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.errors import ExportFailed


@dataclass(frozen=True)
class CheckedThread:
    """The part of a thread that was checked."""

    events: int = 0
    head: str = ""
    """The digest of the last of these events."""
    gap: str = ""
    """The reason why the thread must not be signed; empty if it may be."""

    @property
    def last(self) -> set[int]:
        """The position of the last event that was checked."""
        return {self.events - 1} if self.events else set()


async def vouch(threads: Threads, thread: str, evidence: Evidence | None, anchors: Anchors | None) -> CheckedThread:
    """Check a thread before its export.

    Args:
        threads: Reads the thread.
        thread: The thread id.
        evidence: The ledger; None without a database.
        anchors: Anchors with seals of the thread; None for no anchors.

    Raises:
        ExportFailed: The thread does not verify.
        ThreadNotFound: There is no such thread.
    """
    checks = replace(evidence, artifacts=None) if evidence else None
    verification = await verify(threads, thread, evidence=checks, anchors=anchors)
    if verification.faults:
        location = (
            verification.where
            if verification.position is None
            else f"{verification.where}, event {verification.position}"
        )
        raise ExportFailed(
            f"thread {thread!r} does not verify, so its file is not signed: {location}: {verification.reason}"
        )
    gaps = {gap.what: gap.why for gap in verification.unchecked}
    needed = ("record",) if "anchors" in verification.checked else ("record", "history", "seals", "beginning")
    gap = next((f"{name}: {gaps[name]}" for name in needed if name in gaps), "")
    if not gap and "record" not in verification.checked:
        gap = "record: it was not checked"
    return CheckedThread(verification.events, verification.head, gap)

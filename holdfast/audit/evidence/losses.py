"""What a gap in a log leaves unproven. Anybody who can write to the database can write one, too."""

from collections.abc import Iterable

from holdfast.audit.evidence.evidence import Unchecked
from holdfast.core.log.events import EventsLost


def lost(losses: Iterable[EventsLost]) -> list[Unchecked]:
    """Return an entry for each gap: no witness makes it needless."""
    return [
        Unchecked(
            "lost",
            f"events {gap.position} to {gap.events - 1} were lost before event {gap.position} was recorded, which says "
            "that an older backup was restored: what they said is not known, nor whether somebody removed them",
        )
        for gap in losses
    ]

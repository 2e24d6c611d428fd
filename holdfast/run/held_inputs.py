"""What arrives before the thread's past is loaded: it is held in order, and taken in afterwards.

1. There is room for a bounded number of bounded payloads. What arrives beyond that is refused, and only counted: the
   log, which would record it, is not there yet.
2. Where the run continues as new before the past is loaded, what is held travels in the next run's input.
"""

from typing import Any

from holdfast.log.events import SignalRejected
from holdfast.run.refusals import Refusals, bounded, encoded

HELD = 150
"""How many signals and updates are held until the thread's past is loaded."""

HELD_BYTES = 200_000
"""How many bytes they may have together, as JSON."""


class HeldInputs:
    """Signals and updates that wait for the thread's past. Not part of `RunState`, because that is not loaded yet.

    Args:
        held: What an earlier Temporal run held and handed over.
        refusals: Counts what finds no room.
    """

    def __init__(self, held: tuple[tuple[str, Any], ...], refusals: Refusals) -> None:
        self._held = list(held)
        self._bytes = sum(len(encoded(payload)) for _, payload in held)
        self._refusals = refusals

    @property
    def all(self) -> tuple[tuple[str, Any], ...]:
        """What is held: names and payloads, oldest first."""
        return tuple(self._held)

    def hold(self, name: str, payload: Any) -> None:
        """Hold a signal or update, or refuse it where there is no room."""
        if not self.has_room(payload):
            why = "too much came before the thread was loaded"
            for event in bounded([SignalRejected(signal=name, explanation=why, outcome="too_many")], payload):
                self._refusals.count(event)
            return
        if not isinstance(payload, dict | list | str):
            payload = None  # it means nothing, and may have to travel as JSON
        self._held.append((name, payload))
        self._bytes += len(encoded(payload))

    def has_room(self, payload: Any) -> bool:
        """Whether there is room for another payload of this size."""
        return len(self._held) < HELD and self._bytes + len(encoded(payload)) <= HELD_BYTES

    def release(self) -> tuple[tuple[str, Any], ...]:
        """Return what is held, oldest first, and hold nothing any more."""
        held, self._held, self._bytes = self.all, [], 0
        return held

"""Merges a thread's events with the chunks of its next reply, in one order of ids. Pure.

A reader can stop at any id and continue there: it gets everything after it once. Chunks may arrive late, twice, out of
order, or never, and any process with access to the database can write some. So:

1. Chunks are shown only if all events before their reply have been, and no reply has been recorded since.
2. Chunks of an attempt are shown in order, without a gap; a missing one ends what is shown of the attempt.
3. A later attempt replaces the one that was shown; an earlier one is never shown again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.streams.chunks import Chunk, Cursor

ENDS = frozenset(
    {
        "llm_replied",
        "llm_call_lost",
        "context_compacted",
        "context_exceeded",
        "run_blocked",
        "run_finished",
        "run_reset",
    }
)
"""Types of events after which chunks before them are obsolete: the LLM call that they belong to has ended."""


Attempts = Mapping[int, Mapping[int, Chunk]]
"""Chunks by attempt and number."""


class Following:
    """The place of one reader in a thread.

    Args:
        cursor: The reader's last id.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.next = cursor.after + 1
        """The position of the next event."""
        self.ended = -1
        """The position of the last event that ended an LLM call, as far as it is known."""
        self.attempt = cursor.attempt
        """The attempt that was shown last, of the reply to come; 0 for none."""
        self.chunk = cursor.chunk
        self._resumed = self.next if cursor.position >= 0 else 0
        """Chunks of calls that began before this position may have been shown under ids that the cursor lacks."""

    def event(self, event: Mapping[str, Any]) -> bool:
        """Take the next event; return whether the reader lacks it."""
        position, news = int(event["position"]), int(event["position"]) >= self.next
        self.next = max(self.next, position + 1)
        if event["type"] in ENDS:
            self.ended = max(self.ended, position)
            if news:
                self.attempt = self.chunk = 0
        return news

    def shows(self, chunk: Chunk) -> bool:
        """Whether a chunk, as it was stored, belongs to the reply to come."""
        return self.ended < chunk.position <= self.next

    def chunks(self, attempts: Attempts) -> Iterator[Chunk]:
        """Yield the chunks to show next, with the ids under which they are shown.

        Args:
            attempts: The chunks as they were stored; those shown before may be among them.
        """
        begun = [attempt for attempt, chunks in attempts.items() if self._begins(attempt, chunks)]
        if not begun:
            return
        chunks = attempts[last := max(begun)]
        if last != self.attempt:
            if self.attempt or last > 1 or chunks[1].position < self._resumed:
                yield Chunk(position=self.next, attempt=last, chunk=0, kind="superseded")
            self.attempt, self.chunk = last, 0
        while (following := chunks.get(self.chunk + 1)) and self.shows(following):
            self.chunk += 1
            yield following.model_copy(update={"position": self.next})

    def _begins(self, attempt: int, chunks: Mapping[int, Chunk]) -> bool:
        if attempt == self.attempt:
            return True
        return attempt > self.attempt and 1 in chunks and self.shows(chunks[1])

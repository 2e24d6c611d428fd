"""Read a thread whole: its events from the first one on, wherever they are.

1. What the current Temporal run has is asked of its worker; of a closed run, and where no worker answers, it is read
   from the history.
2. What came before is in the permanent record; without one, in the histories of the earlier Temporal runs.
3. The parts have to follow one from the other: no position is left out, and the digests lead on. Where they do not,
   an error says what is missing.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

from temporalio.client import WorkflowExecutionDescription

from holdfast.errors import EventsMissing, HistoryUnreadable, NoWorker, RecordUnavailable, RunPaused, ThreadNotFound
from holdfast.log.event_log import event_line
from holdfast.runtime.reading.continuity import Continuity, position_of
from holdfast.runtime.reading.histories import Recorded, fetch, previous_of, runs_back
from holdfast.runtime.reading.record import Record
from holdfast.runtime.reading.runs import ENDED, NeverRan, Runs
from holdfast.stores import ThreadStore

Note = Callable[[str], None]
"""Told that no worker answers. Whoever gives one takes, in an answer's stead, what is settled in the history."""

Lines = list[bytes]


class Reader:
    """Reads the threads of one namespace.

    Args:
        runs: Its Temporal runs.
        store: The permanent record; None without one.
    """

    def __init__(self, runs: Runs, store: ThreadStore | None) -> None:
        self.runs = runs
        self.record = None if store is None else Record(store)
        self._begun: set[str] = set()
        """Temporal runs that have loaded what came before them."""

    async def find(self, thread: str) -> WorkflowExecutionDescription | None:
        """What Temporal knows of a thread's latest run; None where only the permanent record knows the thread.

        Raises:
            ThreadNotFound: Neither does.
            ServerUnreachable: The server does not answer.
        """
        try:
            return await self.runs.describe(thread)
        except ThreadNotFound as unknown:
            try:
                if self.record and await self.record.length(thread):
                    return None
            except RecordUnavailable as error:
                raise ThreadNotFound(f"{unknown} {error}") from error
            raise

    async def lines(
        self,
        thread: str,
        start: int,
        *,
        found: WorkflowExecutionDescription | None,
        note: Note | None,
        asking: bool = True,
    ) -> AsyncIterator[bytes]:
        """The events from position `start` on, up to now, each as its line in the log.

        Args:
            thread: The thread id.
            start: The first position.
            found: The latest run's description, where the caller has it already.
            note: Told when no worker answers; None to raise instead.
            asking: Ask the worker of an open run; else only what is settled in its history is read.

        Raises:
            ThreadNotFound: There is no such thread.
            EventsMissing: Some lie before what can be read.
            LogBroken: Those that can be read do not follow one from the other.
        """
        joints = Continuity(thread, start)
        found = found or await self.find(thread)
        if found is None:
            assert self.record is not None
            async for part in self.record.parts(thread, start):
                for line in joints.join(part):
                    yield line
            return
        any_own = False
        async for own in self._own(found, start, note, asking=asking):
            any_own = True
            first = position_of(own[0])
            if first > joints.position:
                async for part in self._earlier(thread, joints.position, first):
                    for line in joints.join(part):
                        yield line
            for line in joints.join(own):
                yield line
        if not any_own and not await self._has_begun(found):
            async for part in self._earlier(thread, start, None):
                for line in joints.join(part):
                    yield line

    async def settled(self, thread: str, silence: NoWorker, note: Note | None) -> Recorded:
        """What is settled of the latest run, where no worker answered: of an open one only if `note` is there.

        Of one that is paused in Temporal in any case: nobody could answer.

        Raises:
            NoWorker: It is open and nobody is to be told, or this release cannot read its history.
        """
        found = await self.runs.describe(thread)
        if found.status not in ENDED and note is None and not isinstance(silence, RunPaused):
            raise silence
        try:
            run = await self.history(found)
        except HistoryUnreadable as error:
            raise silence from error
        if note and found.status not in ENDED:
            note(str(silence))
        return run

    async def history(self, found: WorkflowExecutionDescription) -> Recorded:
        """The history of a thread's latest run, read.

        Raises:
            ThreadNotFound: It is gone.
            HistoryUnreadable: This release cannot read it.
        """
        if run := await fetch(self.runs, found.id, found.run_id):
            if run.log:
                self._begun.add(found.run_id)
            return run
        raise ThreadNotFound(f"run {found.run_id} of thread {found.id!r} was removed from Temporal meanwhile")

    async def _own(
        self, found: WorkflowExecutionDescription, start: int, note: Note | None, *, asking: bool
    ) -> AsyncIterator[Lines]:
        """What the current Temporal run has from `start` on; it may begin later."""
        thread, run = found.id, None
        if not asking:
            run = await self.history(found)
        elif found.status in ENDED:
            with contextlib.suppress(HistoryUnreadable):
                run = await self.history(found)
        while run is None:
            try:
                page: bytes = await self.runs.query(thread, "log", start)
            except NeverRan:
                return
            except NoWorker as silence:
                run = await self.settled(thread, silence, note)
                break
            if not page:
                return
            self._begun.add(found.run_id)
            lines = page.split(b"\n")
            yield lines
            start = position_of(lines[-1]) + 1
        if lines := [event_line(event) for event in run.log if event.position >= start]:
            yield lines

    async def _has_begun(self, found: WorkflowExecutionDescription) -> bool:
        """Whether a run that has nothing to tell from some position on knows what came before it.

        One that continues a closed thread is empty until it has loaded the thread's past.
        """
        if found.run_id not in self._begun and found.status not in ENDED:
            with contextlib.suppress(NeverRan, NoWorker):
                if (await self.runs.query(found.id, "state"))["events"]:
                    self._begun.add(found.run_id)
        return found.run_id in self._begun

    async def _earlier(self, thread: str, start: int, stop: int | None) -> AsyncIterator[Lines]:
        """What came before the current Temporal run, from `start` up to `stop`; None for all there is.

        Raises:
            EventsMissing: Not all of it is there any more.
        """
        kept, away = 0, ""
        try:
            kept = await self.record.length(thread) if self.record else 0
        except RecordUnavailable as error:
            away = str(error)
        later: Lines = []
        if stop is None or kept < stop:
            later, begin = await self._from_histories(thread, max(start, kept), stop)
            lost = begin is None and not kept  # there was something, and nobody can tell how much
            if lost or (begin is not None and begin > max(start, kept)):
                raise self._missing(thread, max(start, kept), begin, away)
        if self.record and kept > start:
            async for part in self.record.parts(thread, start, kept if stop is None else min(kept, stop)):
                yield part
        if later:
            yield later

    async def _from_histories(self, thread: str, start: int, stop: int | None) -> tuple[Lines, int | None]:
        """The same, from the histories of earlier runs; and the position from which on they have it.

        That is None where all of these histories are gone, and no `stop` tells how much they held.
        """
        latest = await self.runs.describe(thread)
        previous = await previous_of(self.runs, thread, latest.run_id)
        parts: list[Lines] = []
        begin = stop if stop is not None else None if previous else start
        if previous:
            async for run in runs_back(self.runs, thread, previous):
                own = [e for e in run.log if e.position >= start and (stop is None or e.position < stop)]
                parts.append([event_line(event) for event in own])
                if run.log:
                    begin = max(start, run.log[0].position)
                    stop = begin
                    if begin == start:
                        break
        return [line for part in reversed(parts) for line in part], begin

    def _missing(self, thread: str, start: int, stop: int | None, away: str) -> EventsMissing:
        which = f"events {start} to {stop - 1}" if stop is not None else f"the events from {start} on"
        if away:
            advice = f"The permanent record has them, and {away}"
        elif self.record:
            advice = "The permanent record does not have them either: is DATABASE_URL the one that its workers have?"
        else:
            advice = "Its permanent record has them: set DATABASE_URL to the one that its workers have."
        after = f" `--after {stop - 1}` leaves them out." if stop is not None else ""
        return EventsMissing(
            f"{which} of thread {thread!r} are of earlier Temporal runs, which Temporal has removed. {advice}{after}",
            stop=stop,
        )

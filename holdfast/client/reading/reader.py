"""Read all of a thread's events from the first one on, from the sources that still have them.

1. Events of the current Temporal run come from a query to its worker; if the run is closed, or if no worker answers,
   from its history.
2. Earlier events come from the permanent record; without one, from the histories of the earlier Temporal runs.
3. The parts must follow one another without a gap, and their digests must chain. Otherwise an error names the missing
   part.
"""

import contextlib
from collections.abc import AsyncIterator, Callable

from temporalio.client import WorkflowExecutionDescription

from holdfast.client.reading.continuity import Continuity, fork_of, position_of
from holdfast.client.reading.histories import RecordedRun, converter_for, fetch, previous_of, runs_back
from holdfast.client.reading.losses import is_lost
from holdfast.client.reading.ownership import Ownership
from holdfast.client.reading.record import Record
from holdfast.client.reading.runs import ENDED, NeverRan, Runs
from holdfast.core.log.event_log import event_line
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.stores import ThreadStore
from holdfast.errors import (
    EventsMissing,
    HistoryForged,
    HistoryUnreadable,
    NoWorker,
    RecordUnavailable,
    RunPaused,
    ThreadNotFound,
)

Note = Callable[[str], None]
"""Called with a message when no worker answers. A caller that passes one accepts the recorded history instead."""

Lines = list[bytes]


class Reader:
    """Reads the threads of one namespace.

    Args:
        runs: The namespace's Temporal runs.
        store: The permanent record; None without one.
    """

    def __init__(self, runs: Runs, store: ThreadStore | None) -> None:
        self.runs = runs
        self.record = None if store is None else Record(store)
        self.ownership = Ownership(runs, self.record)
        self._begun: set[str] = set()
        """Temporal runs that have loaded the events before them."""

    async def find(self, thread: str, *, loops: bool = False) -> WorkflowExecutionDescription | None:
        """Return Temporal's description of a thread's latest run; None if only the permanent record has the thread.

        A run that somebody else started under the id of a closed thread is ignored (`ownership.foreign`), and so is a
        closed run whose events are lost.

        Args:
            thread: The thread id.
            loops: Also accept a loop's id.

        Raises:
            ThreadNotFound: Neither has it.
            ServerUnreachable: The server does not answer.
        """
        try:
            newest = await self.runs.newest(thread)
        except ThreadNotFound as unknown:
            try:
                if self.record and await self.record.length(thread):
                    return None
            except RecordUnavailable as error:
                raise ThreadNotFound(f"{unknown} {error}") from error
            raise
        found = await self.ownership.own(newest)
        if found is None or (self.record and await self._is_lost(found)):
            return None
        return await self.runs.readable(found, loops=loops)

    async def _is_lost(self, found: WorkflowExecutionDescription) -> bool:
        assert self.record is not None
        closed = found.status in ENDED and found.workflow_type == WORKFLOW
        return closed and await is_lost(self.runs, self.record, found.id, found.run_id)

    async def lines(
        self,
        thread: str,
        start: int,
        *,
        found: WorkflowExecutionDescription | None,
        note: Note | None,
        use_worker: bool = True,
    ) -> AsyncIterator[bytes]:
        """Yield the events recorded so far from position `start` on, each as its line in the log.

        Args:
            thread: The thread id.
            start: The first position.
            found: The latest run's description, if the caller already has it.
            note: Called with a message when no worker answers; None to raise instead.
            use_worker: Query the worker of an open run; otherwise read only the recorded history.

        Raises:
            ThreadNotFound: There is no such thread.
            EventsMissing: Some earlier events are lost.
            LogBroken: The readable events do not follow one another.
        """
        continuity = Continuity(thread, start)
        found = found or await self.find(thread)
        if found is None:
            assert self.record is not None
            async for page in self.record.pages(thread, start):
                for line in continuity.join(page):
                    yield line
            return
        has_current, known = False, found.run_id in self._begun  # read first, because concurrent calls change it
        async for current in self._current_run(found, start, note, use_worker=use_worker):
            has_current = True
            first = position_of(current[0])
            if first > continuity.position:
                async for part in self._earlier_runs(thread, continuity.position, first, current[0]):
                    for line in continuity.join(part):
                        yield line
            for line in continuity.join(current):
                yield line
        if has_current:
            return
        if not await self._has_begun(found, use_worker=use_worker):
            async for part in self._earlier_runs(thread, start, None):
                for line in continuity.join(part):
                    yield line
        elif not known:  # it may have begun only after it was read: its events then exist now
            self._begun.add(found.run_id)
            async for line in self.lines(thread, start, found=found, note=note, use_worker=use_worker):
                yield line
        elif not start and (latest := await self.find(thread)) and latest.run_id != found.run_id:
            # This run had events, so an empty answer came from the next run.
            async for line in self.lines(thread, start, found=latest, note=note, use_worker=use_worker):
                yield line

    async def history_instead(self, thread: str, silence: NoWorker, note: Note | None) -> RecordedRun:
        """Return the history of the latest run after no worker answered; for an open run, only if `note` is given.

        A run that is paused in Temporal never answers, so its history is returned without `note`, too.

        Raises:
            NoWorker: The run is open and `note` is None, or this release cannot read the history.
        """
        found = await self.find(thread)
        if found is None:
            raise silence
        if found.status not in ENDED and note is None and not isinstance(silence, RunPaused):
            raise silence
        try:
            run = await self.history(found)
        except HistoryUnreadable as error:
            raise silence from error
        if note and found.status not in ENDED:
            note(str(silence))
        return run

    async def history(self, found: WorkflowExecutionDescription) -> RecordedRun:
        """Read the history of a thread's latest run.

        Raises:
            ThreadNotFound: Temporal has removed the run.
            HistoryUnreadable: This release cannot read the history.
            HistoryForged: It was not made by Holdfast's own processes.
        """
        by = converter_for(self.runs.client, found.id)
        if run := await fetch(self.runs, found.id, found.run_id, by=by):
            if run.log:
                self._begun.add(found.run_id)
            return run
        raise ThreadNotFound(f"run {found.run_id} of thread {found.id!r} was removed from Temporal meanwhile")

    async def closed_history(self, found: WorkflowExecutionDescription) -> RecordedRun | None:
        """Read the history of a closed run; None if this release cannot, so that a worker has to be asked.

        Raises:
            ThreadNotFound: Temporal has removed the run.
            HistoryForged: It was not made by Holdfast's own processes.
        """
        try:
            return await self.history(found)
        except HistoryForged:
            raise
        except HistoryUnreadable:
            return None

    async def _current_run(
        self, found: WorkflowExecutionDescription, start: int, note: Note | None, *, use_worker: bool
    ) -> AsyncIterator[Lines]:
        """Yield the events of the current Temporal run from `start` on; its first event may come later."""
        thread, run = found.id, None
        if not use_worker:
            run = await self.history(found)
        elif found.status in ENDED:
            run = await self.closed_history(found)
        closed = found.run_id if found.status in ENDED else None
        while run is None:
            try:
                page: bytes = await self.runs.query(thread, "log", start, run_id=closed)
            except NeverRan:
                return
            except NoWorker as silence:
                run = await self.history_instead(thread, silence, note)
                break
            if not page:
                return
            self._begun.add(found.run_id)
            lines = page.split(b"\n")
            yield lines
            start = position_of(lines[-1]) + 1
        if lines := [event_line(event) for event in run.log if event.position >= start]:
            yield lines

    async def _has_begun(self, found: WorkflowExecutionDescription, *, use_worker: bool) -> bool:
        """Return whether a run without events from some position on has loaded the events before it.

        A run that re-opens a closed thread is empty until it has loaded the thread's past; without a worker, one that
        has just continued as new looks the same.
        """
        if not use_worker:
            return bool((await self.history(found)).log)
        if found.run_id not in self._begun and found.status not in ENDED:
            with contextlib.suppress(NeverRan, NoWorker):
                if (await self.runs.query(found.id, "state"))["events"]:
                    self._begun.add(found.run_id)
        return found.run_id in self._begun

    async def _earlier_runs(
        self, thread: str, start: int, stop: int | None, following: bytes = b""
    ) -> AsyncIterator[Lines]:
        """Yield the events before the current Temporal run, from `start` up to `stop`; None for all of them.

        The events that a fork shares with its source thread are read there, unless the record has them under the fork's
        id.

        Args:
            thread: The thread id.
            start: The first position.
            stop: One more than the last position; None for all.
            following: The line at `stop`, if there is one.

        Raises:
            EventsMissing: Some of them are lost.
        """
        kept, unavailable = 0, ""
        try:
            kept = await self.record.length(thread) if self.record else 0
        except RecordUnavailable as error:
            unavailable = str(error)
        later: Lines = []
        if stop is None or kept < stop:
            later, begin = await self._from_histories(thread, max(start, kept), stop)
            begin_line = later[0] if later else following
            if begin and begin > max(start, kept) and (point := fork_of(begin_line)):
                begin = max(start, kept)
                later = [*await self._forked(point, begin), *later]
            lost = begin is None and not kept  # events existed, and their number is unknown
            if lost or (begin is not None and begin > max(start, kept)):
                raise self._missing(thread, max(start, kept), begin, unavailable)
        if self.record and kept > start:
            async for page in self.record.pages(thread, start, kept if stop is None else min(kept, stop)):
                yield page
        if later:
            yield later

    async def _forked(self, point: ForkPoint, start: int) -> Lines:
        """Return the lines that a fork shares with its source thread, from position `start` on."""
        lines: Lines = []
        async for line in self.lines(point.thread, start, found=None, note=None, use_worker=False):
            lines.append(line)
            if start + len(lines) > point.position:
                break
        return lines

    async def _from_histories(self, thread: str, start: int, stop: int | None) -> tuple[Lines, int | None]:
        """Return those events from the histories of earlier runs, and their first position.

        The position is None if all of these histories are gone and `stop` is None, so that their length is unknown.
        """
        latest = await self.find(thread)
        previous = await previous_of(self.runs, thread, latest.run_id) if latest else None
        parts: list[Lines] = []
        begin = stop if stop is not None else None if previous else start
        if previous:
            async for run in runs_back(self.runs, thread, previous, by=converter_for(self.runs.client, thread)):
                own = [e for e in run.log if e.position >= start and (stop is None or e.position < stop)]
                parts.append([event_line(event) for event in own])
                if run.log:
                    begin = max(start, run.log[0].position)
                    stop = begin
                    if begin == start:
                        break
        return [line for part in reversed(parts) for line in part], begin

    def _missing(self, thread: str, start: int, stop: int | None, unavailable: str) -> EventsMissing:
        which = f"events {start} to {stop - 1}" if stop is not None else f"the events from {start} on"
        if unavailable:
            advice = f"They are in the permanent record, but {unavailable}"
        elif self.record:
            advice = "The permanent record does not have them either: does DATABASE_URL match that of the workers?"
        else:
            advice = "They are in the permanent record: set DATABASE_URL as the workers have it."
        after = f" `--after {stop - 1}` skips them." if stop is not None else ""
        return EventsMissing(
            f"{which} of thread {thread!r} belong to earlier Temporal runs, which Temporal has removed. "
            f"{advice}{after}",
            stop=stop,
        )

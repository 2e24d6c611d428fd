"""Write a loop's log into the permanent record when no survey does: while the loop waits, and when it ends."""

import asyncio
from collections.abc import Callable

from temporalio.exceptions import ActivityError

from holdfast.core.log.loop_events import LogPart
from holdfast.core.loop.activities import ARCHIVE_LOOP
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import LoopArchiveRequest
from holdfast.core.mac.seals import answers
from holdfast.workflows.driver import start_activity


class LogWriter:
    """Writes the events of a recorder.

    Args:
        recorder: The loop's recorder.
        order: Names the next activity request.
    """

    def __init__(self, recorder: LoopRecorder, order: Callable[[], str]) -> None:
        self._recorder = recorder
        self._next_order = order
        self._task: asyncio.Task[None] | None = None
        self._written_for: object = None
        """The reasons why the loop waited when its log was last written."""

    def write_once(self, waits: object) -> None:
        """Start to write the log, once per pause and per block; later events wait for the next write."""
        if waits == self._written_for or self._task:
            return
        self._written_for = waits
        if part := self._recorder.next_part():
            self._task = asyncio.create_task(self._write(part))

    async def write_all(self) -> None:
        """Write the log, and wait until the permanent record has it or rejects it."""
        tried: LogPart | None = None
        while (part := self._recorder.next_part()) and part != tried:
            tried = part
            await self._write(part)

    async def _write(self, part: LogPart) -> None:
        request = LoopArchiveRequest(order=self._next_order(), log=part)
        try:
            answer = await start_activity(ARCHIVE_LOOP, request, None)
        except ActivityError:  # the events stay, and are written with the next survey
            return
        finally:
            self._task = None
        if answers(answer, request):
            self._recorder.on_written(part, answer.logged)

"""Find runs whose events are lost: the record of their thread was restored from an older backup, and says so."""

from holdfast.client.reading.histories import converter_for, runs_back
from holdfast.client.reading.record import Record
from holdfast.client.reading.runs import Runs
from holdfast.core.log.events import AgentEvent, EventsLost
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.inputs.losses import LostLog, says
from holdfast.errors import EventUnreadable, HistoryUnreadable, RecordUnavailable, RecordUnreadable


async def is_lost(runs: Runs, record: Record, thread: str, run_id: str) -> bool:
    """Return whether the record ends by saying that the events of this closed run are lost.

    A record that says so of events that Temporal's histories still join to it is not believed.

    Args:
        runs: The namespace's runs.
        record: The permanent record.
        thread: The thread id.
        run_id: Temporal's id of the thread's latest run, which is closed.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    last = await _last_of(record, thread)
    if not isinstance(last, EventsLost):
        return False
    ends = False
    try:
        async for run in runs_back(runs, thread, run_id, by=converter_for(runs.client, thread)):
            if not run.log:
                continue
            end = run.log[-1]
            ends = ends or says(last, LostLog(events=end.position + 1, head=end.digest))
            if not ends or run.log[0].position <= last.position:
                return False
    except HistoryUnreadable:
        return False
    return ends


async def _last_of(record: Record, thread: str) -> AgentEvent | None:
    """Return the last recorded event of a thread; None if there is none, or none can be read."""
    try:
        if not (length := await record.length(thread)):
            return None
        async for lines in record.pages(thread, length - 1):
            return decode_event(lines[-1])
    except (RecordUnavailable, RecordUnreadable, EventUnreadable):
        pass
    return None

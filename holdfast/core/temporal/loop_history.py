"""Reads the events of a loop from its Temporal history, without a worker, the workflow's code or a server.

A loop sends its events to the permanent record inside activity requests (`holdfast.core.loop.recorder`), so its history
has every event that it sent, as JSON. Events that it has not sent yet are only in the worker's memory.
"""

from collections.abc import Iterable, Iterator

from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import PayloadConverter

from holdfast.core.base.canonical import canonical
from holdfast.core.log.loop_events import Logged, LogPart
from holdfast.core.loop.activities import ARCHIVE_LOOP, SURVEY
from holdfast.core.loop.state import LoopArchived, LoopArchiveRequest, LoopInput, Survey, SurveyRequest
from holdfast.core.temporal.history import READING, decode_any, results_of


def lines_in(events: Iterable[HistoryEvent], *, by: PayloadConverter = READING) -> dict[int, bytes]:
    """Return the loop's events in the input and the requests of one Temporal run, as lines by position.

    Args:
        events: The history.
        by: Decodes the payloads. A converter with the fleet keys and the workflow's context checks seals; unsealed
            requests and inputs are left out.

    Raises:
        HistoryUnreadable: A payload does not decode.
    """
    lines: dict[int, bytes] = {}
    for part in _parts(events, by):
        lines |= {position: canonical(event) for position, event in enumerate(part.events, part.start)}
    return lines


def archived_in(events: Iterable[HistoryEvent], *, by: PayloadConverter = READING) -> int:
    """Return the number of events in the permanent record, by the last result that one Temporal run received.

    Raises:
        HistoryUnreadable: A payload does not decode.
    """
    return max((logged.length for logged in _results(list(events), by)), default=0)


def _parts(events: Iterable[HistoryEvent], by: PayloadConverter) -> Iterator[LogPart]:
    for event in events:
        if event.HasField("workflow_execution_started_event_attributes"):
            begin = event.workflow_execution_started_event_attributes
            loop = decode_any(event.event_id, begin.input.payloads, LoopInput, by)
            if isinstance(loop, LoopInput):
                yield loop.log
        scheduled = event.activity_task_scheduled_event_attributes
        kinds = {SURVEY.name: SurveyRequest, ARCHIVE_LOOP.name: LoopArchiveRequest}
        if kind := kinds.get(scheduled.activity_type.name):
            request = decode_any(event.event_id, scheduled.input.payloads, kind, by)
            if isinstance(request, SurveyRequest | LoopArchiveRequest) and request.log:
                yield request.log


def _results(events: list[HistoryEvent], by: PayloadConverter) -> Iterator[Logged]:
    for event_id, payloads in results_of(events, SURVEY.name):
        survey = decode_any(event_id, payloads, Survey, by)
        if isinstance(survey, Survey) and survey.logged:
            yield survey.logged
    for event_id, payloads in results_of(events, ARCHIVE_LOOP.name):
        archived = decode_any(event_id, payloads, LoopArchived, by)
        if isinstance(archived, LoopArchived):
            yield archived.logged

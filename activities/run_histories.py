"""What the Temporal histories of a thread's runs have, for where the permanent record has less."""

import asyncio

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import converter_of
from holdfast.errors import HistoryUnreadable, RecordUnreadable
from holdfast.log.events import AgentEvent
from holdfast.temporal.encrypted import decrypt_in_place
from holdfast.temporal.history_reader import read_events


async def events_of_run(thread: str, run_id: str) -> tuple[list[AgentEvent], str | None]:
    """The events in a run's history, and the id of the run that it continues.

    Raises:
        RPCError: Temporal does not have the history, or is unavailable.
        HistoryUnreadable: It is not the history of an agent run.
    """
    client = activity.client()
    history = await client.get_workflow_handle(thread, run_id=run_id).fetch_history()
    # Check the seals: anyone with access to Temporal can run a workflow of their own under this id.
    converter = converter_of(thread)
    for event in history.events:
        await decrypt_in_place(event, converter.payload_codec)
    begin = history.events[0].workflow_execution_started_event_attributes
    events = await asyncio.to_thread(read_events, history.events, by=converter.payload_converter)
    return events, begin.continued_execution_run_id or None


async def events_since(thread: str, start: int) -> list[AgentEvent]:
    """The events of a thread from a position on, or from an earlier one; none where Temporal does not have it.

    Raises:
        RecordUnreadable: They cannot be read.
    """
    client = activity.client()
    events: list[AgentEvent] = []
    try:
        run_id: str | None = (await client.get_workflow_handle(thread).describe()).run_id
        while run_id and not (events and events[0].position <= start):
            recorded, run_id = await events_of_run(thread, run_id)
            first = events[0].position if events else None
            events = [event for event in recorded if first is None or event.position < first] + events
    except HistoryUnreadable as error:
        raise RecordUnreadable(str(error)) from None
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return events

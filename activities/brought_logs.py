"""Whether a sub-agent's log in the permanent record came with a file: then no run continues it here.

What people decided where it was recorded does not count here, and nothing in the log says that it was brought: the log
of the thread at the top does. Clients ask before they start a run (`may_be_imported`). The run asks again: an import
may have come in between, and a client of an older release does not ask.
"""

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import converter_of
from holdfast.activities.recorded_threads import begins_and_ends
from holdfast.errors import ThreadForgotten
from holdfast.log.events import AgentEvent, RunStarted
from holdfast.run.contracts import WORKFLOW, RunInput
from holdfast.stores import ThreadStore
from holdfast.temporal.encrypted import decrypt_in_place
from holdfast.temporal.history import decode
from holdfast.tools.subagents import parent_thread


async def may_be_brought(store: ThreadStore, thread: str, first: AgentEvent) -> bool:
    """Return whether the log that begins with this event is a sub-agent's whose tree did not begin here.

    Args:
        store: The permanent record.
        thread: Whose log it is.
        first: Its first event.
    """
    lineage = first.lineage if isinstance(first, RunStarted) and parent_thread(thread) else None
    return lineage is not None and not await _began_here(store, lineage.path[0])


async def _began_here(store: ThreadStore, thread: str) -> bool:
    """Whether a thread is here, and no file has brought any of its log."""
    try:
        recorded = await begins_and_ends(store, thread)
    except ThreadForgotten:
        return False
    if "run_imported" in recorded:
        return False
    begun = await _input_of(thread)
    if begun is None:  # an import that was interrupted leaves a log that ends as moved, and no run
        return bool(recorded) and recorded[-1] != "moved"
    return begun.imported is None


async def _input_of(thread: str) -> RunInput | None:
    """The input of a thread's latest Temporal run; None where Temporal has none.

    Raises:
        HistoryUnreadable: This release cannot read it.
    """
    converter = converter_of(thread)
    try:
        async for event in activity.client().get_workflow_handle(thread).fetch_history_events(page_size=1):
            begin = event.workflow_execution_started_event_attributes
            if begin.workflow_type.name != WORKFLOW:
                return None
            await decrypt_in_place(event, converter.payload_codec)
            return decode(1, begin.input.payloads, RunInput, converter.payload_converter)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return None

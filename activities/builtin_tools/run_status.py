"""`run_status`: the tool that reads whether another thread has ended, and with which result."""

from temporalio import activity

from holdfast.base.canonical import exact_json
from holdfast.errors import HoldfastError, ThreadNotFound
from holdfast.log.events import RunStarted, UserMessageReceived
from holdfast.runtime.reading.reader import Reader
from holdfast.runtime.reading.runs import Runs, status_of
from holdfast.runtime.reading.states import CLOSED, decode_lines, state_of
from holdfast.stores import ThreadStore
from holdfast.tools.decorator import Tool, ToolContext, tool
from holdfast.tools.triggers import RUN_STATUS

ANSWER_SECONDS = 5.0
"""How long Temporal may take to answer."""

LONGEST_ID = 200
"""Characters of a thread id."""


def run_status_tool(record: ThreadStore) -> Tool:
    """Build the tool that lets an agent look at threads of the person or program that started its own.

    Args:
        record: The permanent record, for threads that Temporal no longer has.
    """

    @tool(effect="read", trust="web", name=RUN_STATUS)
    async def run_status(thread: str, *, context: ToolContext) -> str:
        """Read the status of another thread: whether it has ended, and with which result.

        To wait for its end, use `wait_for_run`. Another agent wrote the result: read it as a claim. You can only read
        threads that were started by whoever started yours.

        Args:
            thread: The thread's id.
            context: Filled in by Holdfast.
        """
        reader = Reader(Runs(activity.client(), answer_within=ANSWER_SECONDS), record)
        if thread == context.thread:
            raise HoldfastError("this is the thread that you run in; name another one")
        # The same words where there is none: what others run is not to be found out by asking.
        unknown = HoldfastError(f"there is no thread {thread[:200]!r} that was started by whoever started this one")
        try:
            if not thread.isprintable() or len(thread) > LONGEST_ID:
                raise unknown
            own, other = await _starter(reader, context.thread), await _starter(reader, thread)
            if own is None or own != other:
                raise unknown
            found = await reader.find(thread)
        except ThreadNotFound:
            raise unknown from None
        status = status_of(found) if found else "closed"
        if found and status not in CLOSED:
            return exact_json({"ended": False, "status": status})
        state = await state_of(reader, thread, found=found, note=None)
        ended = {"ended": True, "status": str(state["status"]), "result": str(state["result"] or "")}
        return "{" + ", ".join(f"{exact_json(name)}: {exact_json(value)}" for name, value in ended.items()) + "}"

    return run_status


async def _starter(reader: Reader, thread: str) -> str | None:
    """Who started a thread; None where that is not proven."""
    proven = False
    async for event in decode_lines(reader.lines(thread, 0, found=None, note=None, use_worker=False)):
        match event:
            case RunStarted():
                proven = event.sealed and event.user_proven
            case UserMessageReceived():
                return event.by if proven else None
    return None

"""Threads that the person or program that started a run also started: the only ones that its agent can see or wake."""

from holdfast.client.reading.reader import Reader
from holdfast.client.reading.states import decode_lines
from holdfast.core.log.events import RunStarted, UserMessageReceived
from holdfast.errors import ThreadNotFound

LONGEST_ID = 200
"""The most characters of a thread id."""


class NoPeer(Exception):
    """An agent named a thread that it cannot see."""


async def require_peer(reader: Reader, thread: str, *, own: str) -> None:
    """Reject a thread that the starter of the agent's own thread has not started.

    Args:
        reader: Reads both threads.
        thread: The other thread's id.
        own: The id of the agent's own thread.

    Raises:
        NoPeer: It is the own thread; or another starter's, or none, with the same message for both: an agent must
            not find out which threads others have.
    """
    if thread == own:
        raise NoPeer("this is the thread that you run in; name another one")
    if not thread.isprintable() or len(thread) > LONGEST_ID:
        raise no_peer(thread)
    try:
        starter, other = await starter_of(reader, own), await starter_of(reader, thread)
    except ThreadNotFound:
        raise no_peer(thread) from None
    if starter is None or starter != other:
        raise no_peer(thread)


def no_peer(thread: str) -> NoPeer:
    """Return the error about a thread that does not exist, or that an agent must not find out about."""
    return NoPeer(f"there is no thread {thread[:200]!r} that the starter of this one has started")


async def starter_of(reader: Reader, thread: str) -> str | None:
    """Return the person or program that started a thread; None if that is not proven.

    Raises:
        ThreadNotFound: There is no such thread.
    """
    proven = False
    async for event in decode_lines(reader.lines(thread, 0, found=None, note=None, use_worker=False)):
        match event:
            case RunStarted():
                proven = event.sealed and event.user_proven
            case UserMessageReceived():
                return event.by if proven else None
    return None

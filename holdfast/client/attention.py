"""Find the runs of a tree that need a person: with open requests, blocked, or paused.

1. Temporal's visibility store says which runs may need one: a single query, regardless of the tree's size, and no work
   for its sleeping runs. Anybody with access to Temporal can start a run that claims to, so a claim is only a hint.
2. The runs say themselves whether they need one, read from the top of the tree down (`holdfast.client.trees`).
"""

import asyncio
from collections.abc import Sequence

from holdfast.client.reading.reader import Note
from holdfast.client.searching import search
from holdfast.client.threads import JSON, Threads
from holdfast.client.trees import LARGEST, Node, read_tree
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.errors import HoldfastError

_NEEDS = f"WorkflowType = '{WORKFLOW}' AND CloseTime IS NULL AND (HoldfastPending > 0 OR HoldfastStatus = 'blocked' OR "
_NEEDS += "HoldfastStatus = 'paused')"

SLOWEST = 20
"""How many times as long as at first a watch pauses between two looks at the tree, in the end."""


async def hints_below(threads: Threads, thread: str) -> list[str] | None:
    """Return the runs below a thread that may need a person; None if the visibility store cannot say.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    if "'" in thread or "\\" in thread:
        return None  # not to be quoted
    query = f"{_NEEDS} AND WorkflowId STARTS_WITH '{thread}.'"
    try:
        return [run.id for run in await search(threads, query, limit=LARGEST)]
    except HoldfastError as error:
        if type(error) is HoldfastError:  # the namespace lacks the search attributes, or the query's operators
            return None
        raise


async def in_need(
    threads: Threads,
    thread: str,
    *,
    state: JSON | None = None,
    hints: Sequence[str] | None,
    note: Note | None = None,
) -> list[Node]:
    """Return the runs of a tree that need a person, from the top down, without those that cannot be read.

    Args:
        threads: Reads the runs.
        thread: The thread at the top.
        state: The state of that thread, if the caller already has it.
        hints: The runs below that may need one; None to read all open ones.
        note: Called with a message when no worker answers; None to raise instead.

    Raises:
        HoldfastError: The thread at the top cannot be read.
    """

    def leads(child: JSON) -> bool:
        """Whether this sub-agent, or a run below it, may need a person."""
        if hints is None:
            return bool(child["status"] == "open")
        return any(hint == child["thread"] or hint.startswith(f"{child['thread']}.") for hint in hints)

    tree = await read_tree(threads, thread, state=state, only=leads, note=note)
    return [node for _, node in tree.walk() if node.needs_person]


class TreeWatch:
    """Looks at the runs below a thread from time to time, less often the longer nothing is found.

    Args:
        threads: Reads the runs.
        thread: The thread at the top.
        every: Seconds between the first two looks.
    """

    def __init__(self, threads: Threads, thread: str, *, every: float) -> None:
        self._threads = threads
        self._thread = thread
        self._first = self.pause = every
        self._next = 0.0

    async def look(self, *, top: bool = False) -> list[Node]:
        """Return the runs of the tree that need a person; none if it is too early for another look.

        Args:
            top: The thread itself may need one.

        Raises:
            HoldfastError: The thread cannot be read.
        """
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return []
        hints = await hints_below(self._threads, self._thread)
        self._next = now + self.pause
        self.pause = min(1.5 * self.pause, SLOWEST * self._first)
        return await in_need(self._threads, self._thread, hints=hints) if top or hints != [] else []

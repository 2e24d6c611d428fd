"""Trees of runs: a thread, its sub-agents, and their sub-agents.

1. Each run's own state names its sub-agents, so a tree is read from the top down, without the visibility store.
2. The whole tree is read within one time limit, several runs at a time. A run that was not read in time has an error in
   the tree, and the runs below it are unknown.
3. Each unanswered query costs seconds: if the caller accepts histories, they are read immediately after the first one.
4. Temporal's visibility store says which runs of a tree may need a person, because they have open requests, are blocked
   or are paused: a single query, regardless of the tree's size, and no work for its sleeping runs. Anybody with access
   to Temporal can start a run that claims to, so a claim is only a hint: the runs say themselves whether they need one.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.client.reading.reader import Note
from holdfast.client.searching import search
from holdfast.client.threads import JSON, Threads
from holdfast.config.programs import CLI
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.tools.subagents import child_thread
from holdfast.errors import HoldfastError, TreeNotRead

LARGEST = 1_000
"""Maximum number of runs of a tree that are read."""

AT_ONCE = 10
"""Maximum number of runs that are read at the same time."""

SECONDS = 20.0
"""Time limit for a whole tree, in seconds: enough for two unanswered queries, one after the other."""

_NEEDS = f"WorkflowType = '{WORKFLOW}' AND CloseTime IS NULL AND (HoldfastPending > 0 OR HoldfastStatus = 'blocked' OR "
_NEEDS += "HoldfastStatus = 'paused')"

SLOWEST = 20
"""How many times as long as at first a watch pauses between two looks at the tree, in the end."""


@dataclass
class Node:
    """A run in a tree."""

    thread: str
    agent: str | None
    status: str
    """The run's own status; if it cannot be read, the status that its parent has recorded."""
    step: int = 0
    usage: JSON | None = None
    """The tokens that it has used, without those of the runs below it; None if unknown."""
    llm: str | None = None
    """The LLM that used them."""
    pending: Sequence[JSON] = ()
    """Its open requests."""
    blocked: JSON | None = None
    """Why it is blocked; None if it is not."""
    paused: JSON | None = None
    """The pause by a person; None if it is not paused."""
    unattended: bool = False
    """It fails instead of waiting for a person."""
    error: HoldfastError | None = None
    """Why it cannot be read."""
    children: list["Node"] = field(default_factory=list)

    @property
    def needs_person(self) -> bool:
        """Whether it cannot continue without a person. An unattended run that is blocked is about to fail."""
        return bool(self.pending or self.paused or (self.blocked and not self.unattended))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Node"]]:
        """Yield the runs of the tree, each before its children, with its depth below the top."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def view(self) -> JSON:
        """Return the tree as `show --tree --json` presents it."""
        own: JSON = {"thread": self.thread, "agent": self.agent, "status": self.status, "step": self.step}
        own |= {"usage": self.usage, "llm": self.llm}
        own |= {"blocked": self.blocked} if self.blocked else {}
        own |= {"pending": list(self.pending), "children": [child.view() for child in self.children]}
        return own | ({"error": str(self.error)} if self.error else {})


async def read_tree(
    threads: Threads,
    thread: str,
    *,
    note: Note | None = None,
    state: JSON | None = None,
    only: Callable[[JSON], bool] = lambda child: True,
    within: float = SECONDS,
) -> Node:
    """Read a tree from this thread down. The node of a run below it that cannot be read, or not in time, has an error.

    Args:
        threads: Reads the runs.
        thread: The thread at the top.
        note: Called with a message when no worker answers; None to raise instead.
        state: The state of that thread, if the caller already has it.
        only: Selects the sub-agents to read, by their entries in their parents' states.
        within: Time limit for the whole tree, in seconds.

    Raises:
        HoldfastError: The thread at the top cannot be read.
    """
    slots, left, silent = asyncio.Semaphore(AT_ONCE), LARGEST, False
    deadline = asyncio.get_running_loop().time() + within

    def on_silence(message: str) -> None:
        nonlocal silent
        silent = True
        if note:
            note(message)

    async def state_of(thread: str) -> JSON:
        try:
            async with asyncio.timeout_at(deadline), slots:
                return await threads.state(thread, note=on_silence if note else None, use_worker=not silent)
        except TimeoutError:
            hint = CLI.command("show", thread, "--tree")
            why = f"thread {thread!r} was not read within the {within:g} s for its whole tree: `{hint}` reads it alone"
            raise TreeNotRead(why) from None

    async def below(top: Node, state: JSON) -> None:
        nonlocal left
        # A caller who may read the top may read all runs below it, so a state must not name a thread of another tree.
        own = [each for each in state.get("subagents", ()) if each["thread"] == child_thread(top.thread, each["call"])]
        found = [child for child in own if only(child)][: max(0, left)]
        left -= len(found)
        top.children = list(await asyncio.gather(*map(read, found)))

    async def read(child: JSON) -> Node:
        node = Node(child["thread"], child["agent"], child["status"])
        try:
            state = await state_of(node.thread)
        except HoldfastError as error:
            node.error = error
            return node
        _take(node, state)
        await below(node, state)
        return node

    state = state or await state_of(thread)
    top = Node(thread, state["agent"], state["status"])
    _take(top, state)
    await below(top, state)
    return top


async def pending_of_tree(
    threads: Threads, thread: str, *, note: Note | None = None
) -> tuple[list[JSON], dict[str, HoldfastError]]:
    """Return the open requests of a thread and of all runs below it, and why some of these could not be read.

    A sub-agent that has ended may have left open runs below it, so it is read, too.
    """
    tree = [node for _, node in (await read_tree(threads, thread, note=note)).walk()]
    return [request for node in tree for request in node.pending], {n.thread: n.error for n in tree if n.error}


def _take(node: Node, state: JSON) -> None:
    """Copy values from a run's own state."""
    node.status, node.step, node.pending = state["status"], state["step"], _pending(node.thread, state)
    node.usage, node.llm = state.get("usage"), state.get("llm")
    node.blocked, node.paused = state.get("blocked"), state.get("paused")
    node.unattended = bool(state.get("unattended"))


def _pending(thread: str, state: JSON) -> list[JSON]:
    return [{**request, "thread": thread} for request in state["pending"]]


# The runs that need a person.


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

"""`read_artifact`: the tool that reads a part of a result that was clipped in the transcript.

An artifact is addressed by its digest, in one store for all threads. So an address alone gives no permission to read:
anybody who learns one could have the LLM of another thread read it. A run may read an artifact if

1. an event of its thread refers to it (`holdfast.core.log.references`), also one from before a fork or an import; or
2. an event of a sub-agent that it started refers to it, or of one below that: their results may name the address; or
3. its task names the address, and an event of the parent run, which assigned the task, refers to it.

Only a few lines of a log are decoded; the others are searched for bytes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.activities.calling_run import CallingRun
from holdfast.activities.record.thread_past import events_since, forked_lines
from holdfast.client.reading.executions import own_client
from holdfast.core.base.canonical import digest_of
from holdfast.core.llm.blocks import text_of
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    RunContinued,
    RunForked,
    RunStarted,
    SubagentStarted,
    UserMessageReceived,
)
from holdfast.core.log.references import artifacts_of
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.state.features import RESULT_NAMES_ARTIFACTS
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.core.tools.decorator import Labelled, Tool, tool
from holdfast.core.tools.subagents import child_thread
from holdfast.errors import ArtifactNotFound, ThreadForgotten

PART_BYTES = 4_000
"""The default length of a part."""

MAX_PART_BYTES = 100_000
"""The most bytes of a part; a larger limit from the LLM is cut to this."""


MAX_LEVELS: Final = 20
"""The most levels of sub-agents that are searched."""

_DECODED_TYPES: Final = tuple(
    f'"type":"{kind}"'.encode()
    for kind in ("run_started", "agent_loaded", "run_continued", "run_forked", "subagent_started")
)
"""Lines of these types are decoded even if they do not name the address."""


def read_artifact_tool(store: ArtifactStore, threads: ThreadStore) -> Tool:
    """Build the tool that lets an agent read clipped results.

    Args:
        store: Stores the artifacts.
        threads: The permanent record, which shows whether the agent's thread refers to one.
    """
    own = ArtifactAccess(threads)

    @tool(effect="read")
    async def read_artifact(address: str, offset: int = 0, limit: int = PART_BYTES) -> str | Labelled:
        """Read a part of a long result of which you were shown the head and the tail only.

        Args:
            address: As the clipped result gives it: sha256:…
            offset: The first byte to read.
            limit: How many bytes to read; at most 100,000.
        """
        mine = await own.require(address)
        size = await store.size(address)
        start = max(0, offset)
        part = await store.get(address, start, min(max(1, limit), MAX_PART_BYTES))
        text = f"[bytes {start:,} to {start + len(part):,} of {size:,}]\n{part.decode('utf-8', 'replace')}"
        return text if mine else Labelled(text, "web")  # another run of its tree has read it

    return read_artifact


@dataclass
class _References:
    """The references to an artifact in a log."""

    address: str
    refers: bool = False
    named: bool = False
    """The task names the address."""
    above: str = ""
    """The thread that started this one as its sub-agent."""
    children: list[str] = field(default_factory=list)
    """The sub-agents that the thread started."""
    _thread: str = ""
    _level: int = 0

    def add(self, event: AgentEvent) -> None:
        """Add the next event."""
        if isinstance(event, AgentLoaded | RunContinued):
            self._level = max(self._level, event.features)
        named = self._level >= RESULT_NAMES_ARTIFACTS
        self.refers |= self.address in artifacts_of(event, named=named, stacks=False)
        match event:
            case RunForked():
                self._thread, self.above = event.thread, ""
                self.children.clear()  # they belong to the original
            case RunStarted():
                self._thread, self.above = event.thread, event.lineage.parent if event.lineage else self.above
            case SubagentStarted() if event.thread == child_thread(self._thread, event.number):
                self.children.append(event.thread)
            case UserMessageReceived(task=True):
                self.named |= self.address in text_of(event.content)
            case _:
                pass


class ArtifactAccess:
    """Decides whether the calling run may read an artifact.

    Args:
        store: The permanent record.
    """

    def __init__(self, store: ThreadStore) -> None:
        self._store = store

    async def require(self, address: str) -> bool:
        """Require that the calling run may read an artifact; return whether an event of its own thread refers to it.

        Raises:
            ArtifactNotFound: It may not, whether the artifact exists or not; or the address is malformed.
        """
        digest_of(address)
        run = CallingRun.of()
        own = await self._search_log(run.thread, await _lines_kept_by(run), address)
        if own.refers:
            return True
        if await self._refers_below(own.children, address, MAX_LEVELS):
            return False
        if own.named and own.above:
            above = CallingRun(own.above, own_client().get_workflow_handle(own.above))
            if (await self._search_log(above.thread, await _lines_kept_by(above), address)).refers:
                return False
        raise ArtifactNotFound(f"no event of this thread refers to the artifact {address}")

    async def _refers_below(self, children: Sequence[str], address: str, levels: int) -> bool:
        """Whether the record of a sub-agent that has ended, or of one below it, refers to an artifact."""
        for child in children if levels else ():
            references = await self._search_log(child, [], address)
            if references.refers or await self._refers_below(references.children, address, levels - 1):
                return True
        return False

    async def _search_log(self, thread: str, kept: Sequence[bytes], address: str) -> _References:
        """Search a log: the record up to the lines that the run itself keeps, and these."""
        references = _References(address)
        first = json.loads(kept[0]) if kept else {}
        if first.get("type") == "run_forked" and not await self._store.length(thread):
            fork = decode_event(kept[0])
            assert isinstance(fork, RunForked)
            _add_lines(references, await forked_lines(self._store, fork.point, events_since))
        position, stop = 0, first.get("position")
        try:
            while (stop is None or position < stop) and (lines := await self._store.read(thread, position)):
                _add_lines(references, lines[: None if stop is None else stop - position])
                position += len(lines)
        except ThreadForgotten:
            pass
        _add_lines(references, kept)
        return references


def _add_lines(references: _References, lines: Sequence[bytes]) -> None:
    for event in _relevant_events(lines, references.address):
        references.add(event)


def _relevant_events(lines: Sequence[bytes], address: str) -> Iterator[AgentEvent]:
    marks = (address.encode(), *_DECODED_TYPES)
    return (decode_event(line) for line in lines if any(mark in line for mark in marks))


async def _lines_kept_by(run: CallingRun) -> list[bytes]:
    """Return the lines that a Temporal run keeps itself: those that the record lacked when it began."""
    lines: list[bytes] = []
    position = 0
    while page := await run.query("log", position):
        lines += page.split(b"\n")
        position = int(json.loads(lines[-1])["position"]) + 1
    return lines

"""Signs seals and sends them to anchors, without ever failing a run or delaying one for long.

1. Each anchor gets one seal at a time. A seal that cannot be delivered stays in memory and is sent again; the next seal
   of its thread, which covers it, replaces it.
2. A run waits up to two seconds for its seal, so that a killed worker has usually delivered it. No run waits for an
   anchor that took longer the last time.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol, Self

from holdfast.audit.anchors.webhook import CheckpointRejected
from holdfast.config.logs import EventLogger
from holdfast.core.authority.signatures import public_key
from holdfast.core.log.node_seals import Gone, SignedCheckpoint, make_seal

WAIT_SECONDS = 2.0
"""How long a run waits for its seal."""
LEAVE_SECONDS = 5.0
"""How long a stopping worker waits for its seals."""
LONGEST_PAUSE = 60.0
"""The longest pause between attempts at an unreachable anchor, in seconds; the first is one second."""
MOST = 10_000
"""The most seals that wait for one anchor; beyond that, the oldest is dropped."""

log = EventLogger(__name__)


class Anchor(Protocol):
    """Stores seals."""

    name: str
    """The name in logs; contains no secret."""

    async def put(self, seal: SignedCheckpoint) -> None:
        """Store a seal durably. It is sent again after any error except `CheckpointRejected`."""
        ...

    async def aclose(self) -> None:
        """Close connections and files."""
        ...


class CheckpointSigner:
    """Seals the length and head of threads' records; an async context manager.

    Args:
        private: The node's private key.
        anchors: The anchors that get each seal.
        namespace: Temporal's namespace.
    """

    def __init__(self, private: str, anchors: Sequence[Anchor], *, namespace: str) -> None:
        self.node = public_key(private)
        self._private = private
        self._namespace = namespace
        self._queues = [_Queue(anchor) for anchor in anchors]

    async def __aenter__(self) -> Self:
        for queue in self._queues:
            queue.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*(queue.stop() for queue in self._queues))

    async def seal(self, thread: str, events: int, head: str, *, gone: Gone = "", kept: int = 0) -> None:
        """Seal the length and head of a thread's record. Errors are logged."""
        try:
            seal = make_seal(
                self._private,
                namespace=self._namespace,
                thread=thread,
                events=events,
                head=head,
                at=datetime.now(UTC),
                gone=gone,
                kept=kept,
            )
        except Exception as error:  # the run matters more than its seal
            log.warning("not_sealed", thread=thread, events=events, reason=type(error).__name__)
            return
        added = [(queue, queue.add(seal)) for queue in self._queues]
        awaited = [(queue, tried) for queue, tried in added if not queue.slow]
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                for _, tried in awaited:
                    await tried.wait()
        for queue, tried in awaited:
            if not tried.is_set():
                queue.slow = True
                log.warning("anchor_slow", anchor=queue.anchor.name, thread=thread, events=events)


class _Queue:
    """The seals that wait for one anchor."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self.failing = False
        """The last attempt failed."""
        self.slow = False
        """The last attempt failed, or took longer than a run waits."""
        self._waiting: dict[tuple[str, str], tuple[SignedCheckpoint, asyncio.Event]] = {}
        """The seals by thread and by the reason why its log is gone; each event is set after the first attempt."""
        self._sending = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def add(self, seal: SignedCheckpoint) -> asyncio.Event:
        """Queue a seal, replacing the thread's last one; return an event that is set after the first attempt."""
        before = self._waiting.pop(_key(seal), None)
        tried = before[1] if before else asyncio.Event()
        if len(self._waiting) >= MOST:
            dropped, event = self._waiting.pop(next(iter(self._waiting)))
            event.set()
            log.warning("seal_given_up", anchor=self.anchor.name, thread=dropped.thread, events=dropped.events)
        self._waiting[_key(seal)] = (seal, tried)
        self._changed.set()
        return tried

    async def stop(self) -> None:
        """Deliver the waiting seals within `LEAVE_SECONDS`."""
        assert self._task is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while (self._waiting or self._sending) and not self.failing:
                    self._changed.clear()
                    await self._changed.wait()
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._waiting:
            log.warning("seals_left", anchor=self.anchor.name, threads=len(self._waiting))
        await self.anchor.aclose()

    async def _run(self) -> None:
        pause = 1.0
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            seal, tried = self._waiting.pop(next(iter(self._waiting)))
            self._sending, begun = True, asyncio.get_running_loop().time()
            fields = {"anchor": self.anchor.name, "thread": seal.thread, "events": seal.events}
            try:
                await self.anchor.put(seal)
            except CheckpointRejected as error:
                self.failing = False
                log.error("seal_refused", reason=str(error), **fields)
            except Exception as error:  # each kind of anchor raises different errors
                self.failing = True
                log.warning("anchor_unreachable", reason=str(error) or type(error).__name__, **fields)
                self._waiting.setdefault(_key(seal), (seal, asyncio.Event()))
            else:
                self.failing, pause = False, 1.0
            self.slow = self.failing or asyncio.get_running_loop().time() - begun > WAIT_SECONDS
            self._sending = False
            tried.set()
            self._changed.set()
            if self.failing:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)


def _key(seal: SignedCheckpoint) -> tuple[str, str]:
    """Return the key under which a seal waits: a later seal with the same key replaces it."""
    return seal.thread, seal.gone

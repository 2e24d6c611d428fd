"""A thread as a conversation: its result, state, events and messages, and messages from people."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from holdfast.api.pieces import Piece, piece_of
from holdfast.api.request_views import PendingRequest
from holdfast.api.views import Result, ThreadState, ThreadTree
from holdfast.api.waiting import Until, result_of, wait
from holdfast.client import interventions, messages
from holdfast.client.follow import follow as follow_events
from holdfast.client.messages import MessageResult
from holdfast.client.reading.record import Evidence
from holdfast.client.reading.states import decode_lines
from holdfast.client.sending import UpdateResult
from holdfast.client.threads import Threads
from holdfast.client.trees import Node, pending_of_tree, read_tree
from holdfast.config.settings import Settings
from holdfast.core.authority.interventions import RefinementKind, WhenBusy
from holdfast.core.base.names import person_name
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import AnyMessage, from_json, with_time
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.inputs.interventions import INTERVENTIONS
from holdfast.core.streams.chunks import Cursor
from holdfast.core.streams.drafts import Draft
from holdfast.encryption.signing_keys import read_key
from holdfast.errors import NotAccepted, SettingsError
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

log = logging.getLogger("holdfast.client")
AnswerT = TypeVar("AnswerT", UpdateResult, MessageResult)
OpenEvidence = Callable[[], Awaitable[Evidence]]
"""Opens the ledger and the artifact store on first use."""
OpenStreams = Callable[[], Awaitable[Hub | None]]
"""Opens the streams on first use; None if there are none."""


class Dialogue:
    """Reading a thread and sending it messages, the base class of `holdfast.api.controls.Controls`."""

    def __init__(
        self,
        thread: str,
        *,
        threads: Threads,
        by: str = "",
        key: Path | None = None,
        evidence: OpenEvidence | None = None,
        settings: Settings | None = None,
        streams: OpenStreams | None = None,
    ) -> None:
        self.id = thread
        """The thread id, which is also Temporal's workflow id."""
        self._threads = threads
        self._by = by
        self._key = key
        self._evidence = evidence
        self._settings = settings
        self._streams = streams

    async def result(self, *, until: Until = "end", timeout: float | None = None) -> Result:
        """Wait for the run and return its result.

        The wait survives restarts of servers and workers. While it lasts although a person has to act, the logger
        `holdfast.client` warns, once for each reason.

        Args:
            until: `end`: until the run has completed. `attention`: also return earlier, if the run or a sub-agent below
                it waits for an approval or a retry, or is paused, or if the run waits for a message or is dormant; the
                status says which, and `attention` for which threads. `answer`, for a chat: the same, but requests and
                blocks of sub-agents in the background do not end the wait.
            timeout: Seconds; None for no limit.

        Raises:
            RunFailed: The run failed; `cause` says why.
            RunCancelled: The run was cancelled.
            AttentionNeeded: With `end`: the run or a sub-agent is blocked; or nobody attends it, and the outcome of an
                effect is unknown. The run stays open: wait again when a person has acted.
            HistoryForged: The run was not made by our own processes.
            TimeoutError: The wait did not end in time. The run continues.
        """
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                waited = await wait(self._threads, self.id, until=until)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"thread {self.id!r} has no result after {timeout:g} s; its run continues") from None
        return await result_of(self._threads, waited, until=until)

    async def state(self) -> ThreadState:
        """Return the current state of the thread."""
        return ThreadState.model_validate(await self._threads.state(self.id, note=log.info))

    async def events(self, *, after: int = -1, follow: bool = False) -> AsyncIterator[AgentEvent]:
        """Yield the thread's events, oldest first.

        Args:
            after: The position of the last event already read; -1 for none.
            follow: Continue with events as they are recorded, until the latest run has ended.

        Raises:
            EventsMissing: Some of the events can no longer be read. With `follow`, they are skipped instead.
        """
        if follow:
            async for each in follow_events(self._threads, self.id, after=after, patient=True, note=log.info):
                yield decode_event(json.dumps(each))
        else:
            lines = self._threads.reader.lines(self.id, after + 1, found=None, note=log.info)
            async for event in decode_lines(lines):
                yield event

    async def stream(self, *, after: str = "-1") -> AsyncIterator[Piece]:
        """Yield the thread's events as they are recorded, and each reply piece by piece while the LLM writes it.

            async for piece in thread.stream():
                if piece.kind == "text":
                    print(piece.text, end="", flush=True)

        A piece is a preview: it is shown before anything is recorded, and nothing is decided on it. The event of a
        reply replaces its pieces, and a piece of the kind `superseded` says that another attempt replaces them.
        Without a database, or if workers do not stream (`HOLDFAST_STREAMS`), there are events alone. It ends with the
        thread's latest run. Leaving the loop does not change the run.

        Args:
            after: The `id` of the last piece that the program has: it gets those after it, without gap or repetition.

        Raises:
            ValueError: `after` is no id of a piece.
        """
        cursor, draft = Cursor.parse(after), Draft()
        hub = await self._streams() if self._streams else None
        async for each in read_stream(self._threads, hub, self.id, cursor, patient=True, note=log.info):
            yield piece_of(each, draft)

    async def messages(self, *, active: bool = False) -> list[AnyMessage]:
        """Return the messages between people, agent and tools, without the system message, each with its time (`at`).

        Args:
            active: Return only the messages that the LLM sees now, after context compaction.
        """
        stored = self._threads.messages(self.id, active=active, note=log.info)
        return [with_time(from_json(each), datetime.fromisoformat(each["at"])) async for each in stored]

    async def pending(self) -> tuple[PendingRequest, ...]:
        """Return the open requests: calls that wait for approval, and calls whose outcome is unknown.

        They include those of all sub-agents below, whose `path` ends with the sub-agent's thread. `decide` takes any of
        them. The logger `holdfast.client` names sub-agents that cannot be read.
        """
        requests, unread = await pending_of_tree(self._threads, self.id, note=log.info)
        for thread, error in unread.items():
            log.warning("sub-agent %s could not be read: %s", thread, error)
        return tuple(PendingRequest.model_validate(request) for request in requests)

    async def tree(self) -> ThreadTree:
        """Return the thread and its sub-agents, recursively: status, usage and open requests of each.

        A run that cannot be read has an `error`. At most 1,000 runs are read, within 20 seconds.
        """
        return _tree_of(await read_tree(self._threads, self.id, note=log.info))

    async def say(
        self,
        message: Content,
        *,
        by: str | None = None,
        when_busy: WhenBusy = "queue",
        id: str = "",
        key: Path | str | None = None,
    ) -> MessageResult:
        """Send the agent a message. If the thread is closed, a new run continues it, with the message as its task.

        Args:
            message: Text, or content blocks.
            by: The person who sends it; None for the client's `by`.
            when_busy: While the agent works: `queue` the message until the step has ended, `interrupt` the LLM call, or
                `reject` it.
            id: Your id for it, of at most 100 characters: a message that is sent again with its id counts once. So a
                program that was killed can say everything again. Empty for none.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `queued`, `interrupting`, `reopened`, `duplicate` if it was received before with this id, or
            `sent` if no worker responded: Temporal keeps the message for the next worker.

        Raises:
            NotAccepted: The agent will not read the message; `outcome` gives the reason.
            ServerUnreachable: It is unknown whether the message arrived: repeat it if it has an `id`, or check
                `messages` first.
        """
        name, private = checked_name(self._by if by is None else by), self._private(key)
        answer = await messages.say(
            self._threads, self.id, message, by=name, when_busy=when_busy, id=id, private=private
        )
        if id and answer.outcome == "duplicate":
            return answer
        return self._accepted(answer, f"message to thread {self.id!r}")

    async def refine(
        self,
        kind: RefinementKind,
        text: str,
        *,
        by: str | None = None,
        when_busy: Literal["queue", "interrupt"] = "queue",
        key: Path | str | None = None,
    ) -> MessageResult:
        """Refine the task of an open run: narrow, replace or correct it. The original task stays readable.

        The agent reads who refined the task, and how. Open requests, approvals and the policy stay as they are.

        Args:
            kind: `narrow`: do less than before; `rescope`: do something else instead; `correct`: fix an error in the
                task.
            text: The task from now on, at most 8,000 bytes.
            by: The person who refines it; None for the client's `by`.
            when_busy: While the agent works: `queue` the refinement until the step has ended, or `interrupt` the LLM
                call.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `queued`, `interrupting`, or `sent` if no worker responded: Temporal keeps the refinement for
            the next worker.

        Raises:
            NotAccepted: The task is unchanged; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a person
                who may not refine it, `too_late` for a closed run (use `say` to continue it), `too_many` if the thread
                has 50 refinements, or `unknown_update` for a run that a worker before 0.2.0 began.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        payload = {"kind": kind, "text": text, "by": self._person(by), "when_busy": when_busy}
        answer = await self._intervene("refine", payload, what="refinement", key=key)
        return MessageResult(answer.outcome, answer.explanation)

    async def _intervene(
        self, name: str, payload: dict[str, Any], *, what: str, key: Path | str | None = None, thread: str = ""
    ) -> UpdateResult:
        """Send an intervention, signed if there is a key and the intervention takes a signature.

        Args:
            name: Its name.
            payload: Its payload.
            what: Names it in an error.
            key: The file of the private key; None for the client's.
            thread: The sub-agent that receives it; empty for this thread.

        Raises:
            NotAccepted: The run rejected it. The message begins with `what`.
        """
        private = self._private(key) if INTERVENTIONS[name].statement else None
        answer = await interventions.intervene(self._threads, thread or self.id, name, payload, private=private)
        return self._accepted(answer, f"{what} of thread {thread or self.id!r}")

    def _person(self, by: str | None) -> str:
        if name := checked_name(self._by if by is None else by):
            return name
        raise SettingsError(
            "say who decides: pass `by`, to this method, to `Client.connect` or to `running`, or set HOLDFAST_BY"
        )

    def _private(self, key: Path | str | None) -> str | None:
        """Return the private key to sign with; None to sign nothing."""
        path = Path(key) if key else self._key
        return read_key(path) if path else None

    @staticmethod
    def _accepted(answer: AnswerT, what: str) -> AnswerT:
        """Return an accepted answer.

        Raises:
            NotAccepted: The run rejected the input. The message begins with `what`.
        """
        if not answer.counts:
            raise NotAccepted(
                f"{what}: {answer.outcome.replace('_', ' ')}: {answer.explanation}", outcome=answer.outcome
            )
        return answer


def _tree_of(node: Node) -> ThreadTree:
    """Return a tree as clients present it."""
    own = {name: getattr(node, name) for name in ("thread", "agent", "status", "step", "usage", "llm", "blocked")}
    children = tuple(map(_tree_of, node.children))
    error = str(node.error) if node.error else ""
    return ThreadTree.model_validate({**own, "pending": node.pending, "error": error, "children": children})


def checked_name(name: str) -> str:
    """Return a person's name in its canonical spelling.

    Raises:
        SettingsError: The name could be mistaken for another one.
    """
    try:
        return person_name(name)
    except ValueError as error:
        raise SettingsError(str(error)) from None

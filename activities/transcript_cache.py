"""What a worker has already read of each run: encoded messages and the encoded agent. Losing it is harmless.

1. The first call of a thread reads its transcript with queries, which leave no trace in history. What lies before
   the Temporal run under way, the workflow does not have: that is rebuilt from the permanent record.
2. Later calls add what this worker itself has sent back since: the LLM's reply and the results of its calls.
   Where that is not all (another worker ran a call, a person denied one), they read the tail.
3. Either way, nothing is sent to an LLM that does not have the digest which the workflow computed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from activities.archive import read_thread
from activities.calling_run import CallingRun, calling_thread
from holdfast.agents.agent import AgentSpec, shared
from holdfast.base.digests import GENESIS, chain
from holdfast.errors import TranscriptMismatch
from holdfast.llm.messages import AssistantMessage, ToolMessage, encode
from holdfast.log.events import UserMessageReceived
from holdfast.stores import ThreadStore
from holdfast.transcript.prompt import request_prefix
from holdfast.transcript.transcript import Transcript, TranscriptRef, ref_digest


@dataclass
class Session:
    """One thread since its last fold, as far as this worker has read it."""

    compactions: int
    spec: AgentSpec
    prefix: bytes
    """The encoded agent (`holdfast.transcript.prompt.request_prefix`)."""
    messages: list[bytes] = field(default_factory=list)
    heads: list[str] = field(default_factory=lambda: [GENESIS])
    """`heads[n]` is the digest of the first n messages."""
    size: int = 0
    """Bytes of all messages."""
    reply: AssistantMessage | None = None
    """What this worker made the LLM say last."""
    results: dict[str, str] = field(default_factory=dict)
    """Results of that reply's calls that this worker sent back, by call id."""

    def holds(self, ref: TranscriptRef) -> bool:
        """Whether the messages and the agent that `ref` stands for are here, and are the very same."""
        known = self.compactions == ref.compactions and len(self.messages) >= ref.length
        return known and ref_digest(self.heads[ref.length], self.spec.hash) == ref.digest

    def append(self, message: bytes) -> None:
        """Keep one more message."""
        self.messages.append(message)
        self.heads.append(chain(self.heads[-1], message))
        self.size += len(message)

    def truncate(self, length: int) -> None:
        """Forget all messages but the first `length`."""
        self.size -= sum(map(len, self.messages[length:]))
        del self.messages[length:], self.heads[length + 1 :]

    def foresee(self) -> Iterator[bytes]:
        """The messages that should have come next, as far as this worker knows them."""
        if self.reply is not None:
            yield encode(self.reply)
            for call in self.reply.tool_calls:
                if call.id not in self.results:
                    break
                yield encode(ToolMessage(tool_call_id=call.id, content=self.results[call.id]))


class Sessions:
    """The sessions of one worker process; the least recently used are dropped first.

    Args:
        record: The permanent record, for what lies before the Temporal run that asks.
        limit: Bytes of messages to keep, over all threads.
    """

    def __init__(self, record: ThreadStore, *, limit: int = 256_000_000) -> None:
        self._record = record
        self._limit = limit
        self._size = 0
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def read(self, ref: TranscriptRef) -> tuple[Session, list[bytes]]:
        """The calling workflow's session, and the messages that `ref` stands for.

        Raises:
            TranscriptMismatch: What the workflow and the record hold does not have the digest it gave.
        """
        run = CallingRun.of()
        thread = run.thread
        # Taken out while in use: a second attempt of the same call that overlaps this one builds its own.
        session = self._sessions.pop(thread, None)
        if session is not None:
            self._size -= session.size
        if session is None or not await _catch_up(run, session, ref):
            session = await self._rebuild(run, ref)
        self._sessions[thread] = session
        self._size += session.size
        while self._size > self._limit and len(self._sessions) > 1:
            self._size -= self._sessions.popitem(last=False)[1].size
        return session, session.messages[: ref.length]

    def replied(self, reply: AssistantMessage | None) -> None:
        """Keep what the LLM said to the calling run, for the next step."""
        if session := self._sessions.get(calling_thread()):
            session.reply, session.results = reply, {}

    def finished(self, call_id: str, result: str) -> None:
        """Keep the result of one of the calling run's tool calls, for the next step."""
        if session := self._sessions.get(calling_thread()):
            session.results[call_id] = result

    def forget(self) -> None:
        """Drop what is kept of the calling run, which waits: it is read again when it goes on."""
        if session := self._sessions.pop(calling_thread(), None):
            self._size -= session.size

    async def _rebuild(self, run: CallingRun, ref: TranscriptRef) -> Session:
        """Read the agent and all messages since the last fold."""
        told: dict[str, Any] = await run.ask("session")
        spec = shared(AgentSpec.model_validate(told["spec"]))
        session = Session(compactions=told["compactions"], spec=spec, prefix=request_prefix(spec))
        if told["first"]:
            older = Transcript()
            for position in told["pinned"]:
                for event in await read_thread(self._record, run.thread, position, position + 1):
                    assert isinstance(event, UserMessageReceived)
                    older.keep_original(position, event.content)
            for event in await read_thread(self._record, run.thread, told["since"], told["position"]):
                older.add(event)
            for message in older.messages:
                session.append(message)
        await _read_tail(run, session, ref)
        if not session.holds(ref):
            what = f"{ref.length} messages since fold {ref.compactions}"
            raise TranscriptMismatch(f"thread {run.thread}: {what} do not have the digest {ref.digest}")
        return session


async def _catch_up(run: CallingRun, session: Session, ref: TranscriptRef) -> bool:
    """Add what is missing; False where it does not fit: a fold, another agent, or a reset run that went another way."""
    known = len(session.messages)
    for message in session.foresee():
        session.append(message)
    session.reply, session.results = None, {}
    if session.holds(ref):
        return True
    session.truncate(known)
    if session.compactions == ref.compactions and known < ref.length:
        await _read_tail(run, session, ref)
    return session.holds(ref)


async def _read_tail(run: CallingRun, session: Session, ref: TranscriptRef) -> None:
    while len(session.messages) < ref.length:
        lines: bytes = await run.ask("transcript", len(session.messages))
        if not lines:
            break
        for line in lines.split(b"\n"):
            session.append(line)

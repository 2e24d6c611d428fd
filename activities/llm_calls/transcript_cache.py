"""A worker's cache of transcripts: the encoded messages and the encoded agent of each thread. Losing it is harmless.

1. The first call of a thread reads its transcript with queries, which leave no trace in history. Messages from before
   the current Temporal run, which the workflow no longer holds, are rebuilt from the permanent record, or are those
   that this worker kept when it loaded the thread.
2. Later calls append what this worker itself returned since: the LLM's reply and the results of its calls. If that is
   not all (another worker ran a call, a person denied one), they read the tail.
3. In either case, only a transcript with the digest that the workflow computed is sent to an LLM.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.activities.calling_run import CallingRun, InProcessAnswers, calling_thread
from holdfast.activities.record.thread_past import read_thread
from holdfast.core.agents.agent import AgentSpec, shared
from holdfast.core.base.canonical import GENESIS, chain
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, decode, encode
from holdfast.core.log.events import UserMessageReceived
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.stores import ThreadStore
from holdfast.core.transcript.transcript import Transcript, TranscriptRef, ref_digest
from holdfast.endpoints.endpoints import Route
from holdfast.errors import TranscriptMismatch

ChooseRoute = Callable[[AgentSpec], Route]

MAX_PREFIXES = 100
"""The most encoded agents to keep."""


MAX_LOADED = 4
"""The most threads whose messages are kept between the loading of the thread and its next LLM call."""


@dataclass
class CachedTranscript:
    """The messages of one thread since its last context compaction, as far as this worker has read them."""

    compactions: int
    spec: AgentSpec
    route: Route
    """The LLM that the messages are encoded for."""
    prefix: bytes
    """The encoded agent (`holdfast.core.transcript.prompt.request_prefix`)."""
    messages: list[bytes] = field(default_factory=list)
    """As the adapter encodes them."""
    heads: list[str] = field(default_factory=lambda: [GENESIS])
    """`heads[n]` is the digest of the first n messages' lines."""
    size: int = 0
    """Bytes of all messages."""
    call_ids: set[str] = field(default_factory=set)
    """The ids of all calls in the messages, and perhaps of some that were dropped."""
    reply: AssistantMessage | None = None
    """The LLM's last reply, if this worker returned it."""
    results: dict[str, ToolMessage] = field(default_factory=dict)
    """Results of that reply's calls that this worker returned, by call id."""
    run: CallingRun | None = None
    """The run that read it last, with the answers that it passed in process."""

    def matches(self, ref: TranscriptRef) -> bool:
        """Whether this holds the messages and the agent that `ref` refers to, by digest."""
        covered = self.compactions == ref.compactions and len(self.messages) >= ref.length
        return covered and ref_digest(self.heads[ref.length], self.spec.hash) == ref.digest

    def append(self, message: AnyMessage) -> None:
        """Add a message as if it was read from its line, in which a provider's 5.0 has become 5."""
        self.append_line(encode(message))

    def append_line(self, line: bytes) -> None:
        """Add a message, given as its line in the transcript."""
        message = decode(line)
        encoded = self.route.adapter.encode(message)
        self.messages.append(encoded)
        self.heads.append(chain(self.heads[-1], line))
        self.size += len(encoded)
        if isinstance(message, AssistantMessage):
            self.call_ids.update(call.id for call in message.tool_calls)

    def truncate(self, length: int) -> None:
        """Drop all messages after the first `length`."""
        self.size -= sum(map(len, self.messages[length:]))
        del self.messages[length:], self.heads[length + 1 :]

    def expected_messages(self) -> Iterator[AnyMessage]:
        """Yield the messages that should come next: this worker's last reply, and the results that it returned."""
        if self.reply is not None:
            yield self.reply
            for call in self.reply.tool_calls:
                if call.id not in self.results:
                    break
                yield self.results[call.id]


class TranscriptCache:
    """The cached transcripts of one worker process; the least recently used are dropped first.

    Args:
        record: The permanent record, for messages from before the calling Temporal run.
        in_process: Holds the pages that the worker's runs pass in process; None to query them instead.
        limit: The most bytes of messages to keep, over all threads.
    """

    def __init__(
        self,
        record: ThreadStore,
        *,
        in_process: InProcessAnswers | None = None,
        limit: int = 256_000_000,
    ) -> None:
        self._record = record
        self._in_process = in_process
        self._limit = limit
        self._size = 0
        self._transcripts: OrderedDict[str, CachedTranscript] = OrderedDict()
        self._prefixes: dict[tuple[str, str], bytes] = {}
        """The encoded agents by hash and LLM: a thousand runs that wake together share one."""
        self._loaded: OrderedDict[str, list[bytes]] = OrderedDict()
        """The lines of threads that this worker has loaded, by thread."""

    async def read(self, request: LLMRequest, choose: ChooseRoute) -> tuple[CachedTranscript, list[bytes]]:
        """Read the calling run's transcript, and the messages that the request refers to.

        Args:
            request: The request.
            choose: Chooses the LLM for an agent. The messages are read anew if it is not the one of the last call.

        Raises:
            TranscriptMismatch: The messages of the workflow and the record do not have the digest of the request.
        """
        run, ref = CallingRun.of(request, in_process=self._in_process), request.transcript
        thread = run.thread
        # Removed while in use: an overlapping second attempt of the same call builds its own.
        cached = self._transcripts.pop(thread, None)
        if cached is not None:
            self._size -= cached.size
            cached = cached if choose(cached.spec).reference == cached.route.reference else None
        if cached is None or not await _catch_up(run, cached, ref):
            cached = await self._rebuild(run, ref, choose)
        cached.run = run
        self._transcripts[thread] = cached
        self._size += cached.size
        while self._size > self._limit and len(self._transcripts) > 1:
            self._size -= self._transcripts.popitem(last=False)[1].size
        return cached, cached.messages[: ref.length]

    def add_reply(self, reply: AssistantMessage | None) -> None:
        """Keep the LLM's reply to the calling run, for the next step."""
        if cached := self._transcripts.get(calling_thread()):
            cached.reply, cached.results = reply, {}

    def add_result(self, result: ToolMessage) -> None:
        """Keep the result of one of the calling run's tool calls, for the next step."""
        if cached := self._transcripts.get(calling_thread()):
            cached.results[result.tool_call_id] = result

    def known_agent(self) -> str | None:
        """Return the name of the calling run's agent; None if its transcript is not cached."""
        cached = self._transcripts.get(calling_thread())
        return cached.spec.name if cached else None

    async def messages(self, length: int | None = None) -> list[AnyMessage]:
        """Read the messages that the calling run's LLM sees: the first `length`, or all."""
        run = CallingRun.of()
        lines = await self._older_lines(run, await run.query("session"))
        while (length is None or len(lines) < length) and (page := await run.query("transcript", len(lines))):
            lines += page.split(b"\n")
        return [decode(line) for line in lines[:length]]

    def forget(self) -> None:
        """Drop the calling run's transcript while the run pauses; its next call reads it again."""
        self._loaded.pop(calling_thread(), None)
        if cached := self._transcripts.pop(calling_thread(), None):
            self._size -= cached.size

    def keep(self, messages: list[bytes]) -> None:
        """Keep the lines of the calling run's thread, which this worker has just loaded from the permanent record."""
        self._loaded[calling_thread()] = messages
        while len(self._loaded) > MAX_LOADED:
            self._loaded.popitem(last=False)

    async def _rebuild(self, run: CallingRun, ref: TranscriptRef, choose: ChooseRoute) -> CachedTranscript:
        """Read the agent and all messages since the last context compaction."""
        session: dict[str, Any] = await run.query("session")
        spec = shared(AgentSpec.model_validate(session["spec"]))
        route = choose(spec)
        if (prefix := self._prefixes.get((spec.hash, route.reference))) is None:
            prefix = self._prefixes[spec.hash, route.reference] = route.prefix(spec)
            while len(self._prefixes) > MAX_PREFIXES:
                del self._prefixes[next(iter(self._prefixes))]
        empty = partial(CachedTranscript, session["compactions"], spec, route, prefix)
        loaded = self._loaded.pop(run.thread, [])[: session["first"]]
        if loaded and (cached := await _read(run, empty(), loaded, ref)).matches(ref):
            return cached
        cached = await _read(run, empty(), await self._older_lines(run, session), ref)
        if not cached.matches(ref):
            subject = f"{ref.length} messages since context compaction {ref.compactions}"
            raise TranscriptMismatch(f"thread {run.thread}: {subject} do not have the digest {ref.digest}")
        return cached

    async def _older_lines(self, run: CallingRun, session: dict[str, Any]) -> list[bytes]:
        """Rebuild the messages from before the calling Temporal run from the permanent record."""
        if not session["first"]:
            return []
        older = Transcript()
        for position in session["pinned"]:
            for event in await read_thread(self._record, run.thread, position, position + 1):
                assert isinstance(event, UserMessageReceived)
                older.keep_original(position, event.content)
        for event in await read_thread(self._record, run.thread, session["since"], session["position"]):
            older.add(event)
        return list(older.messages)


async def _catch_up(run: CallingRun, cached: CachedTranscript, ref: TranscriptRef) -> bool:
    """Add the missing messages; return whether the transcript matches `ref` then. It differs after a compaction, with
    another agent, or after a reset to another branch.
    """
    length = len(cached.messages)
    for message in cached.expected_messages():
        cached.append(message)
    cached.reply, cached.results = None, {}
    if cached.matches(ref):
        return True
    cached.truncate(length)
    if cached.compactions == ref.compactions and length < ref.length:
        await _read_tail(run, cached, ref)
    return cached.matches(ref)


async def _read(run: CallingRun, cached: CachedTranscript, older: list[bytes], ref: TranscriptRef) -> CachedTranscript:
    """Add the messages from before the calling Temporal run, and those since."""
    for line in older:
        cached.append_line(line)
    await _read_tail(run, cached, ref)
    return cached


async def _read_tail(run: CallingRun, cached: CachedTranscript, ref: TranscriptRef) -> None:
    while len(cached.messages) < ref.length:
        lines: bytes = await run.query("transcript", len(cached.messages))
        if not lines:
            break
        for line in lines.split(b"\n"):
            cached.append_line(line)

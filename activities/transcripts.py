"""What a worker has already read of each run: encoded messages and the encoded agent. Losing it is harmless.

1. The first call of a run reads its transcript with queries, which leave no trace in history.
2. Later calls add what this worker itself has sent back since: the LLM's reply and the results of its calls.
   Where that is not all (another worker ran a call, a person denied one), they read the tail.
3. Either way, nothing is sent to an LLM that does not have the digest which the workflow computed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import WorkflowHandle

from holdfast.agent import AgentSpec
from holdfast.errors import TranscriptMismatch
from holdfast.messages import AssistantMessage, ToolMessage, encode
from holdfast.model import GENESIS, chain
from holdfast.transcript import TranscriptRef, request_prefix


@dataclass
class Session:
    """One run, as far as this worker has read it."""

    spec: AgentSpec
    prefix: bytes
    """The encoded agent (`holdfast.transcript.request_prefix`)."""
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
        """Whether the messages that `ref` stands for are here, and are the very same."""
        return len(self.messages) >= ref.length and self.heads[ref.length] == ref.digest

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
        limit: Bytes of messages to keep, over all runs.
    """

    def __init__(self, *, limit: int = 256_000_000) -> None:
        self._limit = limit
        self._size = 0
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()

    async def read(self, ref: TranscriptRef, spec_hash: str) -> tuple[Session, list[bytes]]:
        """The calling workflow's session, and the messages that `ref` stands for.

        Raises:
            TranscriptMismatch: What the workflow answered does not have the digest it gave.
        """
        key = _calling_run()
        workflow = activity.client().get_workflow_handle(key[0], run_id=key[1])
        # Taken out while in use: a second attempt of the same call that overlaps this one builds its own.
        session = self._sessions.pop(key, None)
        if session is not None:
            self._size -= session.size
        if session is None or session.spec.hash != spec_hash:
            session = await _open(workflow, spec_hash)
        await _catch_up(workflow, session, ref)
        self._sessions[key] = session
        self._size += session.size
        while self._size > self._limit and len(self._sessions) > 1:
            self._size -= self._sessions.popitem(last=False)[1].size
        return session, session.messages[: ref.length]

    def replied(self, reply: AssistantMessage | None) -> None:
        """Keep what the LLM said to the calling run, for the next step."""
        if session := self._sessions.get(_calling_run()):
            session.reply, session.results = reply, {}

    def finished(self, call_id: str, result: str) -> None:
        """Keep the result of one of the calling run's tool calls, for the next step."""
        if session := self._sessions.get(_calling_run()):
            session.results[call_id] = result


def _calling_run() -> tuple[str, str]:
    info = activity.info()
    assert info.workflow_id is not None
    assert info.workflow_run_id is not None
    return info.workflow_id, info.workflow_run_id


async def _open(workflow: WorkflowHandle[object, object], spec_hash: str) -> Session:
    spec = AgentSpec.model_validate_json(await workflow.query("agent_spec", result_type=bytes))
    if spec.hash != spec_hash:
        raise TranscriptMismatch(f"run {workflow.id}: the agent has the digest {spec.hash}, expected {spec_hash}")
    return Session(spec=spec, prefix=request_prefix(spec))


async def _catch_up(workflow: WorkflowHandle[object, object], session: Session, ref: TranscriptRef) -> None:
    """Add what is missing; where it does not fit (a reset run went another way), read everything, once."""
    known = len(session.messages)
    for message in session.foresee():
        session.append(message)
    session.reply, session.results = None, {}
    if session.holds(ref):
        return
    session.truncate(known)
    if session.holds(ref):
        return
    if known >= ref.length:
        session.truncate(0)
    from_start = not session.messages
    while len(session.messages) < ref.length:
        lines: bytes = await workflow.query("transcript", len(session.messages), result_type=bytes)
        if not lines:
            break
        for line in lines.split(b"\n"):
            session.append(line)
    if not session.holds(ref):
        session.truncate(0)
        if from_start:
            raise TranscriptMismatch(f"run {workflow.id}: {ref.length} messages do not have the digest {ref.digest}")
        await _catch_up(workflow, session, ref)

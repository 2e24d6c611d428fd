"""What a worker has already read of each run: encoded messages and the encoded agent. Losing it is harmless.

The first call of a run reads its transcript with queries, which leave no trace in history; later calls read only
the tail. Every read is checked against the digest that the workflow computed.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import WorkflowHandle

from holdfast.agent import AgentSpec
from holdfast.errors import TranscriptMismatch
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

    def holds(self, ref: TranscriptRef) -> bool:
        """Whether the messages that `ref` stands for are here, and are the very same."""
        return len(self.messages) >= ref.length and self.heads[ref.length] == ref.digest

    def append(self, message: bytes) -> None:
        """Keep one more message."""
        self.messages.append(message)
        self.heads.append(chain(self.heads[-1], message))
        self.size += len(message)

    def clear(self) -> None:
        """Forget all messages."""
        self.messages, self.heads, self.size = [], [GENESIS], 0


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
        info = activity.info()
        assert info.workflow_id is not None
        assert info.workflow_run_id is not None
        key = (info.workflow_id, info.workflow_run_id)
        workflow = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
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


async def _open(workflow: WorkflowHandle[object, object], spec_hash: str) -> Session:
    spec = AgentSpec.model_validate_json(await workflow.query("agent_spec", result_type=bytes))
    if spec.hash != spec_hash:
        raise TranscriptMismatch(f"run {workflow.id}: the agent has the digest {spec.hash}, expected {spec_hash}")
    return Session(spec=spec, prefix=request_prefix(spec))


async def _catch_up(workflow: WorkflowHandle[object, object], session: Session, ref: TranscriptRef) -> None:
    """Read what is missing; where it does not fit (a reset run went another way), read everything, once."""
    if session.holds(ref):
        return
    if len(session.messages) >= ref.length:
        session.clear()
    from_start = not session.messages
    while len(session.messages) < ref.length:
        lines: bytes = await workflow.query("transcript", len(session.messages), result_type=bytes)
        if not lines:
            break
        for line in lines.split(b"\n"):
            session.append(line)
    if not session.holds(ref):
        session.clear()
        if from_start:
            raise TranscriptMismatch(f"run {workflow.id}: {ref.length} messages do not have the digest {ref.digest}")
        await _catch_up(workflow, session, ref)

"""What a worker keeps of a run's transcript: read by query, extended by its own work, verified by the digest."""

from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.transcript_cache import TranscriptCache
from holdfast.errors import TranscriptMismatch
from holdfast.llm.messages import AssistantMessage, ToolCall
from holdfast.log.events import ToolCallFinished, ToolCallRequested, UserMessageReceived
from holdfast.transcript.transcript import Transcript, TranscriptRef
from tests.unit.runs import agent_spec, calls

SPEC = agent_spec()


class NoRecord:
    """A permanent record that nothing is to be read from."""

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Refuse."""
        raise AssertionError("nothing is to be written")

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Refuse."""
        raise AssertionError("nothing is to be read")

    async def length(self, thread: str) -> int:
        """Nothing."""
        return 0


class Workflow:
    """A workflow that answers queries, and counts them; stands for client and handle both."""

    id = "t"

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.queries: list[str] = []

    def get_workflow_handle(self, _: str, *, run_id: str) -> "Workflow":
        """The handle."""
        return self

    async def query(self, name: str, *, args: tuple[int, ...] = (), **options: Any) -> Any:
        """Answer as AgentRunWorkflow does."""
        self.queries.append(name)
        if name == "transcript":
            return self.transcript.page(*args)
        spec = SPEC.model_dump(mode="json", exclude_defaults=True)
        base = self.transcript.base
        return {"spec": spec, "compactions": base.compactions, "first": 0, "since": base.since, "position": 0}

    def say(self, text: str) -> None:
        """A user message enters the transcript."""
        self.transcript.add(UserMessageReceived(content=text, position=1))

    def step(self, *results: str) -> AssistantMessage:
        """A reply with calls enters, and their results."""
        reply = calls(*["look"] * len(results), first=len(self.transcript.messages)).message
        assert reply is not None
        self._enter(reply)
        for number, (call, result) in enumerate(zip(reply.tool_calls, results, strict=True), 1):
            self.transcript.add(ToolCallRequested(number=number, call=call))
            self.transcript.add(ToolCallFinished(number=number, status="ok", content=result))
        return reply

    def _enter(self, reply: AssistantMessage) -> None:
        from holdfast.llm.messages import Usage
        from holdfast.log.events import LLMReplied

        replied = LLMReplied(message=reply, transcript_length=0, usage=Usage(), finish_reason="stop", llm="m")
        self.transcript.add(replied)


class Worker:
    """The transcript cache of one worker, used from within an activity."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.transcripts = TranscriptCache(NoRecord())

    async def read(self, ref: TranscriptRef | None = None) -> list[bytes]:
        """What `call_llm` would send."""
        environment = ActivityEnvironment(client=self.workflow)  # type: ignore[arg-type]
        _, messages = await environment.run(self.transcripts.read, ref or self.workflow.transcript.ref(SPEC.hash))
        return messages

    def did(self, reply: AssistantMessage, *results: str) -> None:
        """This worker made the call to the LLM, and the first of the tool calls."""
        environment: Any = ActivityEnvironment()
        environment.run(self.transcripts.add_reply, reply)
        for call, result in zip(reply.tool_calls, results, strict=False):
            environment.run(self.transcripts.add_result, call.id, result)


@pytest.fixture
def workflow() -> Workflow:
    """A run with its task."""
    workflow = Workflow()
    workflow.say("task")
    return workflow


async def test_a_new_worker_reads_everything_by_query(workflow: Workflow) -> None:
    """Losing a cache costs two queries."""
    workflow.step("a", "b")
    worker = Worker(workflow)
    assert await worker.read() == workflow.transcript.messages
    assert workflow.queries == ["session", "transcript"]


async def test_a_worker_that_did_it_all_asks_nothing(workflow: Workflow) -> None:
    """What it sent back itself needs no query, step after step, with several calls a step."""
    worker = Worker(workflow)
    await worker.read()
    for results in (("a", "b"), ("c",), ("d", "e", "f")):
        worker.did(workflow.step(*results), *results)
        assert await worker.read() == workflow.transcript.messages
    assert workflow.queries == ["session", "transcript"]


@pytest.mark.parametrize("known", [("a",), ("a", "other")])
async def test_what_it_did_not_do_it_reads(workflow: Workflow, known: tuple[str, ...]) -> None:
    """A result that another worker or a person gave is missing or differs: the digest tells, and the tail is read."""
    worker = Worker(workflow)
    await worker.read()
    worker.did(workflow.step("a", "b"), *known)
    assert await worker.read() == workflow.transcript.messages
    assert workflow.queries == ["session", "transcript", "transcript"]


async def test_a_run_that_was_reset_is_read_afresh(workflow: Workflow) -> None:
    """Messages that do not fit are dropped; the run's own are read instead."""
    worker = Worker(workflow)
    workflow.step("a")
    await worker.read()
    workflow.transcript = Transcript()
    workflow.say("another task")
    workflow.step("b")
    workflow.step("c")
    assert await worker.read() == workflow.transcript.messages
    workflow.transcript = Transcript()
    workflow.say("a third one")
    assert await worker.read() == workflow.transcript.messages


async def test_an_earlier_reference_still_means_what_it_meant(workflow: Workflow) -> None:
    """A second attempt of an older call gets the messages of its reference, no more."""
    worker = Worker(workflow)
    ref = workflow.transcript.ref(SPEC.hash)
    workflow.step("a")
    await worker.read()
    assert await worker.read(ref) == workflow.transcript.messages[:1]


async def test_messages_with_another_digest_are_never_sent(workflow: Workflow) -> None:
    """What cannot be verified is an error, not a prompt."""
    worker = Worker(workflow)
    with pytest.raises(TranscriptMismatch):
        await worker.read(TranscriptRef(length=1, digest="f" * 64))


async def test_a_small_cache_forgets_the_least_recently_used_run(workflow: Workflow) -> None:
    """Bytes are bounded over all runs; a forgotten run is read again."""
    worker = Worker(workflow)
    worker.transcripts = TranscriptCache(NoRecord(), limit=1)
    await worker.read()
    await worker.read()
    assert workflow.queries.count("session") == 1, "the run in use stays, however large"


def test_a_call_keeps_what_the_provider_sent_with_it() -> None:
    """The expected bytes are those of the recorded message, extra fields included."""
    call = ToolCall(id="c", name="look", arguments="{}", extra={"x": 1})
    assert ToolCall.model_validate_json(call.model_dump_json()) == call

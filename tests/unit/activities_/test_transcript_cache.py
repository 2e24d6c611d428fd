"""A worker's cache of a run's transcript: read by query, extended by the worker's own calls, verified by the digest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import openai
import pytest
from temporalio.testing import ActivityEnvironment

from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.llm.blocks import ProviderPart, ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage, decode
from holdfast.core.log.events import LLMReplied, ToolCallFinished, ToolCallRequested, UserMessageReceived
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.temporal.converter import data_converter
from holdfast.core.transcript.transcript import Transcript, TranscriptRef, tool_message
from holdfast.endpoints.endpoints import Endpoint, Route
from holdfast.errors import TranscriptMismatch
from tests.support.runs import ADAPTER, agent_spec, calls

SPEC = agent_spec()


class NoRecord:
    """A permanent record that must be neither read nor written."""

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Fail."""
        raise AssertionError("the record must not be written")

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Fail."""
        raise AssertionError("the record must not be read")

    async def length(self, thread: str) -> int:
        """Return 0."""
        return 0


class FakeWorkflow:
    """A workflow that answers queries and counts them; it stands in for both client and handle."""

    id = "t"
    data_converter = data_converter

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.queries: list[str] = []
        self.first = 0
        """Take the number of messages from before this Temporal run, which does not have them."""

    def get_workflow_handle(self, _: str, *, run_id: str) -> "FakeWorkflow":
        """Return the handle."""
        return self

    async def query(self, name: str, *, args: tuple[int, ...] = (), **options: Any) -> Any:
        """Answer as AgentRunWorkflow does."""
        self.queries.append(name)
        if name == "transcript":
            return self.transcript.page(*args) if args[0] >= self.first else b""
        spec = SPEC.model_dump(mode="json", exclude_defaults=True)
        base = self.transcript.base
        return {
            "spec": spec,
            "compactions": base.compactions,
            "first": self.first,
            "since": 0,
            "position": 9,
            "pinned": [],
        }

    def encoded(self) -> list[bytes]:
        """Return the messages as they are sent to the LLM."""
        return [ADAPTER.encode(decode(line)) for line in self.transcript.messages]

    def say(self, text: str) -> None:
        """Add a user message to the transcript."""
        self.transcript.add(UserMessageReceived(content=text, position=1))

    def step(self, *results: str) -> AssistantMessage:
        """Add a reply with calls, and their results, to the transcript."""
        reply = calls(*["look"] * len(results), first=len(self.transcript.messages)).message
        assert reply is not None
        self.enter(reply, *results)
        return reply

    def enter(self, reply: AssistantMessage, *results: str) -> None:
        """Add a reply and the results of its calls to the transcript."""
        replied = LLMReplied(message=reply, transcript_length=0, usage=Usage(), finish_reason="stop", llm="m")
        self.transcript.add(replied)
        for number, (call, result) in enumerate(zip(reply.tool_calls, results, strict=True), 1):
            self.transcript.add(ToolCallRequested(number=number, call=call))
            self.transcript.add(ToolCallFinished(number=number, status="ok", content=result))


def route_of(spec: AgentSpec) -> Route:
    """Return the route to the LLM of an agent, at an endpoint that nothing calls."""
    client = openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1")
    return Route("", spec.llm, Endpoint("chat", "chat", client), ADAPTER)


class FakeWorker:
    """The transcript cache of one worker, used from within an activity."""

    def __init__(self, workflow: FakeWorkflow) -> None:
        self.workflow = workflow
        self.transcripts = TranscriptCache(NoRecord())

    async def read(self, ref: TranscriptRef | None = None, *, thread: str = "test") -> list[bytes]:
        """Return the messages that `call_llm` would send, called by the run of that thread."""
        environment = self._environment()
        environment.info = replace(environment.info, workflow_id=thread)
        request = LLMRequest(transcript=ref or self.workflow.transcript.ref(SPEC.hash))
        _, messages = await environment.run(self.transcripts.read, request, route_of)
        return messages

    def load(self, messages: list[bytes]) -> None:
        """Store the messages of the thread, as loading it does."""
        self._environment().run(self.transcripts.keep, messages)

    def forget(self) -> None:
        """Drop the run's transcript."""
        self._environment().run(self.transcripts.forget)

    def _environment(self) -> ActivityEnvironment:
        return ActivityEnvironment(client=self.workflow)  # type: ignore[arg-type]

    def perform(self, reply: AssistantMessage, *results: str) -> None:
        """Add an LLM reply and the first tool results, as made by this worker."""
        environment: Any = ActivityEnvironment()
        environment.run(self.transcripts.add_reply, reply)
        for call, result in zip(reply.tool_calls, results, strict=False):
            environment.run(self.transcripts.add_result, tool_message(call.id, call.name, "ok", result))


@pytest.fixture
def workflow() -> FakeWorkflow:
    """Return a run with its task."""
    workflow = FakeWorkflow()
    workflow.say("task")
    return workflow


async def test_a_new_worker_reads_everything_by_query(workflow: FakeWorkflow) -> None:
    """After a cache loss, two queries read the transcript."""
    workflow.step("a", "b")
    worker = FakeWorker(workflow)
    assert await worker.read() == workflow.encoded()
    assert workflow.queries == ["session", "transcript"]


async def test_a_worker_that_made_all_calls_needs_no_query(workflow: FakeWorkflow) -> None:
    """The worker's own replies and results need no query, over several steps with several calls each."""
    worker = FakeWorker(workflow)
    await worker.read()
    for results in (("a", "b"), ("c",), ("d", "e", "f")):
        worker.perform(workflow.step(*results), *results)
        assert await worker.read() == workflow.encoded()
    assert workflow.queries == ["session", "transcript"]


@pytest.mark.parametrize("known", [("a",), ("a", "other")])
async def test_a_worker_queries_results_of_others(workflow: FakeWorkflow, known: tuple[str, ...]) -> None:
    """If another worker's or a person's result is missing or differs, the digest reveals it and the tail is queried."""
    worker = FakeWorker(workflow)
    await worker.read()
    worker.perform(workflow.step("a", "b"), *known)
    assert await worker.read() == workflow.encoded()
    assert workflow.queries == ["session", "transcript", "transcript"]


async def test_a_reset_run_is_read_again(workflow: FakeWorkflow) -> None:
    """Messages that do not match are dropped and replaced by the run's own."""
    worker = FakeWorker(workflow)
    workflow.step("a")
    await worker.read()
    workflow.transcript = Transcript()
    workflow.say("another task")
    workflow.step("b")
    workflow.step("c")
    assert await worker.read() == workflow.encoded()
    workflow.transcript = Transcript()
    workflow.say("a third one")
    assert await worker.read() == workflow.encoded()


async def test_an_earlier_reference_keeps_its_meaning(workflow: FakeWorkflow) -> None:
    """A retry of an older call gets only the messages of its reference."""
    worker = FakeWorker(workflow)
    ref = workflow.transcript.ref(SPEC.hash)
    workflow.step("a")
    await worker.read()
    assert await worker.read(ref) == workflow.encoded()[:1]


async def test_messages_with_another_digest_are_never_sent(workflow: FakeWorkflow) -> None:
    """Messages that cannot be verified raise an error."""
    worker = FakeWorker(workflow)
    with pytest.raises(TranscriptMismatch):
        await worker.read(TranscriptRef(length=1, digest="f" * 64))


async def test_a_full_cache_drops_the_least_recently_used_run(workflow: FakeWorkflow) -> None:
    """The limit in bytes covers all runs; a dropped run is read again."""
    worker = FakeWorker(workflow)
    worker.transcripts = TranscriptCache(NoRecord(), limit=1)
    await worker.read()
    await worker.read()
    assert workflow.queries.count("session") == 1, "the run in use stays, however large"
    await worker.read(thread="other")
    await worker.read(thread="other")
    assert workflow.queries.count("session") == 2
    await worker.read()
    assert workflow.queries.count("session") == 3


async def test_every_worker_encodes_a_reply_alike(workflow: FakeWorkflow) -> None:
    """The worker that got 5.0 from a provider sends the same bytes as one that reads 5 from the transcript."""
    part = ProviderPart(issuer=ADAPTER.issuer, data={"score": 5.0})
    call = ToolCall(id="c1", name="look", arguments="{}", provider=part)
    reply = AssistantMessage(content=(call,))
    own, other = FakeWorker(workflow), FakeWorker(workflow)
    await own.read()
    workflow.enter(reply, "seen")
    own.perform(reply, "seen")
    assert await own.read() == await other.read()
    assert workflow.queries.count("transcript") == 2, "the own worker needed no query for it"


async def test_the_worker_that_loaded_a_thread_has_its_messages(workflow: FakeWorkflow) -> None:
    """The first call after loading reads neither the thread nor the permanent record; the messages are counted once."""
    workflow.step("a")
    workflow.first = workflow.transcript.length
    worker = FakeWorker(workflow)
    worker.load(workflow.transcript.messages)
    workflow.step("b")
    assert await worker.read() == workflow.encoded()
    worker.forget()
    with pytest.raises(AssertionError, match="must not be read"):
        await worker.read()


async def test_an_agent_is_encoded_once(workflow: FakeWorkflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of an agent share its encoded form, even after their transcripts were dropped."""
    encoded: list[AgentSpec] = []

    def encode(_: Route, spec: AgentSpec) -> bytes:
        encoded.append(spec)
        return b"["

    monkeypatch.setattr(Route, "prefix", encode)
    worker = FakeWorker(workflow)
    for _ in range(2):
        await worker.read()
        worker.forget()
    assert encoded == [SPEC]


async def test_messages_that_were_loaded_are_verified(workflow: FakeWorkflow) -> None:
    """If the loaded messages are not those of the run, the permanent record is read."""
    workflow.step("a")
    workflow.first = workflow.transcript.length
    worker = FakeWorker(workflow)
    worker.load([*workflow.transcript.messages[:-1], workflow.transcript.messages[0]])
    with pytest.raises(AssertionError, match="must not be read"):
        await worker.read()

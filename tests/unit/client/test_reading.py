"""Reading a thread without a server, when Temporal's answers leave a gap."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading import reader as reader_module
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import Runs, retrying
from holdfast.core.log.upcasters import decode_event
from holdfast.core.stores import ThreadStore
from holdfast.errors import NoWorker, ServerUnreachable
from holdfast.testing.conformance import record

LINES = record("one", "two")


class FakeRuns:
    """An open run that continued as new and has recorded no event since."""

    async def describe(self, thread: str) -> Any:
        """Return its description."""
        return SimpleNamespace(id=thread, run_id="second", status=WorkflowExecutionStatus.RUNNING)

    async def newest(self, thread: str) -> Any:
        """Return the description of the newest run."""
        return await self.describe(thread)

    async def readable(self, found: Any, *, loops: bool = False) -> Any:
        """Return the run."""
        return found

    async def query(self, thread: str, name: str, *given: int, run_id: str | None = None) -> Any:
        """Return its state, which includes the events of the previous run."""
        return {"events": len(LINES)}


async def own(latest: Any) -> Any:
    """Treat the newest run of the id as the thread's own."""
    return latest


class FakeStore:
    """A permanent record with the events of the previous run."""

    async def length(self, thread: str) -> int:
        """Return their number."""
        return len(LINES)

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Return them."""
        return LINES[start:]


async def test_a_run_that_has_just_continued_as_new_is_read_without_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the new Temporal run has no events of its own, those of the earlier runs are read."""

    async def history(found: WorkflowExecutionDescription) -> Any:
        return SimpleNamespace(log=[])

    async def previous_of(*_: object) -> None:
        return None

    reader = Reader(cast(Runs, FakeRuns()), cast(ThreadStore, FakeStore()))
    monkeypatch.setattr(reader, "history", history)
    monkeypatch.setattr(reader.ownership, "own", own)
    monkeypatch.setattr(reader_module, "previous_of", previous_of)
    found = await reader.runs.describe("t")
    assert [line async for line in reader.lines("t", 0, found=found, note=None, use_worker=False)] == LINES


async def test_a_run_that_begins_while_it_is_read_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has no events at the first poll and has loaded the earlier ones by the second; the reader returns all of
    them.
    """
    looks = 0

    async def history(found: WorkflowExecutionDescription) -> Any:
        nonlocal looks
        looks += 1
        return SimpleNamespace(log=[] if looks == 1 else [decode_event(line) for line in LINES])

    reader = Reader(cast(Runs, FakeRuns()), cast(ThreadStore, FakeStore()))
    monkeypatch.setattr(reader, "history", history)
    found = await reader.runs.describe("t")
    assert [line async for line in reader.lines("t", 0, found=found, note=None, use_worker=False)] == LINES


async def test_a_run_that_begins_while_two_read_it_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader has seen the run's events before the other polls again; the other still returns all of them."""
    looks = 0

    async def history(found: WorkflowExecutionDescription) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            reader._begun.add(found.run_id)  # the other reader has read it since this answer
            return SimpleNamespace(log=[])
        return SimpleNamespace(log=[decode_event(line) for line in LINES])

    reader = Reader(cast(Runs, FakeRuns()), cast(ThreadStore, FakeStore()))
    monkeypatch.setattr(reader, "history", history)
    found = await reader.runs.describe("t")
    assert [line async for line in reader.lines("t", 0, found=found, note=None, use_worker=False)] == LINES


async def test_a_run_that_continues_as_new_while_it_is_read_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next Temporal run answers instead and has no events yet: those of the earlier runs are read."""

    class Empty(FakeRuns):
        async def query(self, thread: str, name: str, *given: int, run_id: str | None = None) -> Any:
            return b"" if name == "log" else {"events": 0}

    async def previous_of(*_: object) -> None:
        return None

    reader = Reader(cast(Runs, Empty()), cast(ThreadStore, FakeStore()))
    reader._begun.add("first")
    monkeypatch.setattr(reader.ownership, "own", own)
    monkeypatch.setattr(reader_module, "previous_of", previous_of)
    first: Any = SimpleNamespace(id="t", run_id="first", status=WorkflowExecutionStatus.RUNNING)
    assert [line async for line in reader.lines("t", 0, found=first, note=None)] == LINES


def test_the_reason_of_a_failure_for_a_missing_key_names_the_key() -> None:
    """The SDK names it only in the cause of an activity's failure; other failures have messages of their own."""
    cause = Failure(message="this was encrypted with the key '2026-01'")
    for message, reason in (("Failed decoding arguments", cause.message), ("503: overloaded", "503: overloaded")):
        failed = PendingActivityInfo(activity_id="1", attempt=2, last_failure=Failure(message=message, cause=cause))
        described = SimpleNamespace(raw_description=DescribeWorkflowExecutionResponse(pending_activities=[failed]))
        (each,) = retrying(cast(WorkflowExecutionDescription, described))
        assert each.reason == reason


@pytest.mark.parametrize("words", ["h2 protocol error: http2 error", "transport error", "tcp connect error"])
def test_a_connection_that_breaks_is_a_server_that_does_not_answer(words: str) -> None:
    """The wait continues. The gRPC library reports some broken connections with the status `UNKNOWN`."""
    client = SimpleNamespace(service_client=SimpleNamespace(config=SimpleNamespace(target_host="127.0.0.1:7233")))
    status = RPCStatusCode.UNAVAILABLE if "tcp" in words else RPCStatusCode.UNKNOWN
    error = Runs(cast(Any, client), answer_within=1).translate_error(RPCError(words, status, b""))
    assert isinstance(error, ServerUnreachable)
    assert words in str(error)


async def test_a_query_whose_connection_breaks_is_explained_like_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server still describes the run, it is the worker that did not answer."""

    async def broken(*_: Any, **__: Any) -> None:
        raise RPCError("h2 protocol error: http2 error", RPCStatusCode.UNKNOWN, b"")

    async def described(*_: Any, **__: Any) -> Any:
        begun = DescribeWorkflowExecutionResponse()
        return SimpleNamespace(id="t", task_queue="q", status=WorkflowExecutionStatus.RUNNING, raw_description=begun)

    service = SimpleNamespace(config=SimpleNamespace(target_host="127.0.0.1:7233"))
    handle = SimpleNamespace(query=broken)
    client = SimpleNamespace(service_client=service, get_workflow_handle=lambda *_, **__: handle)
    monkeypatch.setattr(Runs, "describe", described)
    with pytest.raises(NoWorker, match="no worker answered for thread 't'"):
        await Runs(cast(Any, client), answer_within=60).query("t", "state")

"""Following a run without a server: who is away for a moment throws nobody out."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError

from holdfast.errors import EventsMissing, NoWorker, QueryRefused, Refused, ServerUnreachable, ThreadNotFound
from holdfast.runtime.client import follow as follow_module
from holdfast.runtime.client.decisions import retry
from holdfast.runtime.client.follow import follow
from holdfast.runtime.reading import runs
from holdfast.runtime.reading.runs import QUERY_RETRIES, Runs

Answers = Iterable[Any]

REFUSED = QueryRefused("the worker that has thread 't' cannot answer: a divergence")
SILENT = NoWorker("no worker answered")
BEGUN, FINISHED = {"position": 0, "type": "run_started"}, {"position": 1, "type": "run_finished"}


@dataclass
class Found:
    """What Temporal knows of a run."""

    status: WorkflowExecutionStatus = WorkflowExecutionStatus.RUNNING


@dataclass
class FakeHandle:
    """Takes signals."""

    signals: list[str]

    async def signal(self, name: str, payload: Any, **options: Any) -> None:
        """Keep it."""
        self.signals.append(name)


@dataclass
class FakeThreads:
    """One thread that answers by a script: for each query the events it yields, or the error it ends with."""

    answers: Answers
    signals: list[str] = field(default_factory=list)
    asked: int = 0
    from_history: int = 0
    answer_within: float = 8.0
    ends_after: float = math.inf
    """How many answers there are before the run is over."""
    reopened: bool = False
    """Whether the thread goes on after a run of it has finished."""
    yielded: int = 0

    def __post_init__(self) -> None:
        self._answers = iter(self.answers)

    @property
    def runs(self) -> "FakeThreads":
        """As Temporal sees it."""
        return self

    @property
    def client(self) -> "FakeThreads":
        """The server's client."""
        return self

    def get_workflow_handle(self, thread: str) -> FakeHandle:
        """The run."""
        return FakeHandle(self.signals)

    @property
    def reader(self) -> "FakeThreads":
        """What reads it."""
        return self

    async def find(self, thread: str) -> Found:
        """It is running, or over."""
        return await self.describe(thread)

    async def describe(self, thread: str, *, loops: bool = False) -> Found:
        """It is running, or over."""
        return Found(WorkflowExecutionStatus.COMPLETED if self.asked >= self.ends_after else Found.status)

    async def query(self, thread: str, name: str) -> dict[str, Any]:
        """The state: over with the last event of the script, unless a later run has begun."""
        return {"status": "running" if self.reopened else "completed", "events": self.yielded}

    async def events(self, thread: str, *, after: int = -1, found: Found) -> AsyncIterator[dict[str, Any]]:
        """Yield what the script says, as far as it is not known yet."""
        self.asked += 1
        self.from_history += found.status is WorkflowExecutionStatus.COMPLETED
        for each in next(self._answers):
            if isinstance(each, Exception):
                raise each
            self.yielded = max(self.yielded, each["position"] + 1)
            if each["position"] > after:
                yield each

    async def state(self, thread: str) -> dict[str, Any]:
        """Answer what the script says."""
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return {"status": answer}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to wait between two polls."""
    monkeypatch.setattr(follow_module, "POLL_SECONDS", 0)
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0)


async def followed(threads: Any, **options: Any) -> tuple[list[int], list[str], int]:
    """The positions that were yielded, what was noted, and how often there was a pulse."""
    notes: list[str] = []
    pulses: list[None] = []
    async with asyncio.timeout(5):
        events = follow(threads, "t", note=notes.append, pulse=lambda: pulses.append(None), **options)
        return [event["position"] async for event in events], notes, len(pulses)


@pytest.mark.parametrize("error", [REFUSED, SILENT, ServerUnreachable("Temporal does not answer")])
async def test_who_has_read_something_waits(error: Exception) -> None:
    """After the first event a refused query passes like a server that is away: told once, and nothing is lost."""
    threads = FakeThreads([[BEGUN], [error], [error], [error], [BEGUN, FINISHED]])
    positions, notes, pulses = await followed(threads)
    assert positions == [0, 1]
    assert [str(error) in note for note in notes] == [True]
    assert pulses == 1  # what was noted is not taken back before somebody answers


async def test_a_refusal_in_the_middle_loses_no_event_and_repeats_none() -> None:
    """What was yielded before a worker refused is not yielded again."""
    positions, notes, _ = await followed(FakeThreads([[BEGUN, REFUSED], [BEGUN, FINISHED]]))
    assert positions == [0, 1]
    assert notes == [f"{REFUSED}. Retrying."]


async def test_a_reason_is_told_again_after_an_answer() -> None:
    """Each time that nobody answers is told, once for each reason."""
    _, notes, _ = await followed(
        FakeThreads([[BEGUN], [REFUSED], [SILENT], [SILENT], [BEGUN], [SILENT], [BEGUN, FINISHED]])
    )
    assert [str(SILENT) in note for note in notes] == [False, True, True]


async def test_who_has_read_nothing_is_told_at_once() -> None:
    """Where nothing was ever read, whatever keeps it from being read is raised."""
    for error in (REFUSED, SILENT, ThreadNotFound("no thread 't'")):
        threads = FakeThreads([[error], [error]])
        with pytest.raises(type(error)):
            await followed(threads)
        assert threads.asked == 1


async def test_what_came_before_and_is_gone_is_told_and_left_out() -> None:
    """Earlier events that are nowhere to be read do not keep anybody from following the rest."""
    gone = EventsMissing("events 0 to 6 are gone", stop=7)
    later = [{"position": 7, "type": "run_continued"}, {"position": 8, "type": "run_finished"}]
    positions, notes, _ = await followed(FakeThreads([[gone], later]))
    assert (positions, notes) == ([7, 8], ["events 0 to 6 are gone"])
    with pytest.raises(EventsMissing):
        await followed(FakeThreads([[EventsMissing("nobody knows how many", stop=None)]]))


async def test_the_end_of_an_earlier_run_is_not_the_end() -> None:
    """A thread that was continued is followed to the end of its latest run."""
    answers = [[BEGUN, FINISHED], [], [{"position": 2, "type": "run_started"}], *[[]] * 20]
    threads = FakeThreads(answers, reopened=True)
    threads.ends_after = 3
    positions, _, _ = await followed(threads)
    assert positions == [0, 1, 2]


async def test_the_patient_wait_from_the_first_moment() -> None:
    """With `patient`, refusals have no limit, and are told."""
    positions, notes, _ = await followed(FakeThreads([*[[REFUSED]] * 9, [BEGUN, FINISHED]]), patient=True)
    assert (positions, len(notes)) == ([0, 1], 1)


async def test_a_run_that_ends_while_its_worker_refuses_is_read_to_its_end() -> None:
    """Where no worker can replay a run, its last events come from the history as soon as it is over."""
    threads = FakeThreads([[BEGUN], [REFUSED], [REFUSED], [BEGUN, FINISHED]], ends_after=3)
    positions, _, _ = await followed(threads)
    assert (positions, threads.from_history) == ([0, 1], 1)
    cut_short = FakeThreads([[BEGUN], [], [BEGUN]], ends_after=2)  # terminated: there is no last event
    positions, _, _ = await followed(cut_short)
    assert (positions, cut_short.from_history) == ([0], 1)


async def test_a_run_that_nobody_can_read_any_more_is_told() -> None:
    """Nobody waits for ever for a run that is over, and that neither history nor worker can tell."""
    with pytest.raises(QueryRefused):
        await followed(FakeThreads([[BEGUN], *[[REFUSED]] * 100], ends_after=2))


class FakeRuns(Runs):
    """A run whose worker answers a query by a script."""

    def __init__(self, answers: Answers) -> None:
        self.answers = iter(answers)
        self.asked = 0
        self.answer_within = 1.0

    @property
    def client(self) -> Any:
        """The server's client, and the handle it gives."""
        return self

    @client.setter
    def client(self, client: Any) -> None: ...

    def get_workflow_handle(self, thread: str) -> Any:
        """The run, and what Temporal knows of it."""
        return Handle(self)

    async def describe(self, thread: str, *, loops: bool = False) -> Any:
        """Its last workflow task did not fail."""
        return None

    async def _check_stuck(self, found: Any) -> None: ...


@dataclass
class Handle:
    """A run to be asked."""

    runs: FakeRuns

    async def query(self, name: str, **options: Any) -> Any:
        """Answer what the script says."""
        self.runs.asked += 1
        answer = next(self.runs.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_query_that_was_refused_is_asked_again() -> None:
    """Refusals pass for about a second, after which they are told; every other error goes through."""
    refused = WorkflowQueryFailedError("a divergence")
    passing = FakeRuns([*[refused] * QUERY_RETRIES, {"status": "running"}])
    assert await passing.query("t", "state") == {"status": "running"}
    lasting = FakeRuns([refused] * 100)
    with pytest.raises(QueryRefused, match="a divergence"):
        await lasting.query("t", "state")
    assert lasting.asked == QUERY_RETRIES + 1
    other = FakeRuns([ValueError("something else")])
    with pytest.raises(ValueError, match="something else"):
        await other.query("t", "state")


async def test_a_retry_is_left_with_temporal_where_the_worker_cannot_answer() -> None:
    """Who has mended the cause need not come back: the run itself knows whether there is something to retry."""
    refused: Any = FakeThreads([REFUSED])
    sent = await retry(refused, "t", by="ann")
    assert (sent.outcome, sent.counts, refused.signals) == ("sent", True, ["retry"])
    blocked: Any = FakeThreads(["blocked"])
    assert (await retry(blocked, "t", by="ann")).outcome == "accepted"
    running: Any = FakeThreads(["running"])
    with pytest.raises(Refused):
        await retry(running, "t", by="ann")
    assert running.signals == []

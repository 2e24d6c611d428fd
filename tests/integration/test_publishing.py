"""The client, the command line and HTTP deliver an event to every run that waits for it."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Policy, allow
from holdfast.client import publishing
from holdfast.client.publishing import Publication, are_processed, publish
from holdfast.client.searching import search
from holdfast.client.sending import send_signal
from holdfast.client.threads import Threads
from holdfast.core.log.events import SignalRejected, WakeReceived
from holdfast.errors import Refused, ServerUnreachable
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Token
from holdfast.gateway.http.limits import ANSWER_SECONDS
from holdfast.gateway.routes import publications as of_gateway
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import PATIENCE, Rig, StartRig, check_thread, events_of, eventually, status_of
from tests.support.serving import served, sha256

Run = WorkflowHandle[Any, Any]
SLEEPER = Catalog(
    agents=[Agent(name="a", instructions="Work.", tools=(), policy=Policy(rules=(allow(),)), dormancy=True)]
)
TOKENS = CallersFile(
    tokens=(
        Token(name="ci", sha256=sha256("of-ci"), scopes=("publish",)),
        Token(name="acme", sha256=sha256("of-acme"), scopes=("publish",), threads=("acme-",)),
        Token(name="reader", sha256=sha256("of-reader"), scopes=("read", "say")),
    )
)


def waits(conversation: Conversation) -> Reply:
    """Wait for the event and the service that the task names."""
    if conversation.replies:
        return say(conversation.results[0])
    event, _, service = conversation.last_user_message.partition(" ")
    return call("wait_for_event", name=event, **({"match": {"service": service}} if service else {}))


async def asleep(rig: Rig, event: str, count: int, *, prefix: str = "") -> list[Run]:
    """Start runs that wait for an event; return once all sleep, visibility lists them, and nothing is due.

    A run that archives its events while asleep binds itself to its worker again when that ends.
    """
    runs = [await rig.start(event, thread=f"{prefix}{uuid4().hex[:8]}") for _ in range(count)]
    for run in runs:
        await status_of(run, "dormant")
    name = event.partition(" ")[0]

    async def listed() -> set[str]:
        executions = rig.client.list_workflows(f"HoldfastWaitsFor = '{name}' AND ExecutionStatus = 'Running'")
        return {each.id async for each in executions}

    async def is_quiet(run: Run) -> bool:
        described = (await run.describe()).raw_description
        return not described.pending_activities and not described.HasField("pending_workflow_task")

    await eventually(listed, lambda found: {run.id for run in runs} <= found)
    for run in runs:
        await eventually(partial(is_quiet, run), bool)
    return runs


def ids(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return their ids as a publication lists them."""
    return tuple(sorted(run.id for run in runs))


def a_name() -> str:
    """Return a new event name: the tests share a server."""
    return f"built.{uuid4().hex[:8]}"


@asynccontextmanager
async def gateway(rig: Rig) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the rig's threads over HTTP."""
    app = build_app(Threads(rig.client, task_queue=rig.task_queue), Callers(TOKENS))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        yield http


def bearer(name: str) -> dict[str, str]:
    """Return a caller's authorization header."""
    return {"Authorization": f"Bearer of-{name}"}


async def test_an_event_wakes_every_waiting_run_once(rig: StartRig) -> None:
    """Each waiting run wakes once, even if the event is published twice under one id; other runs sleep on."""
    event, other = a_name(), a_name()
    async with rig(SLEEPER, waits) as r:
        waiting, others = await asleep(r, event, 3), await asleep(r, other, 1)
        threads = Threads(r.client, task_queue=r.task_queue)
        first = await publish(threads, event, by="ci", data={"service": "web"}, id="4711")
        again = await publish(threads, event, by="ci", data={"service": "web"}, id="4711")

        assert (first.sent, first.unreached) == (ids(waiting), {})
        assert again.sent == ()
        for run in waiting:
            assert '{"service":"web"}' in (await status_of(run, "completed"))["result"]
            assert len([each for each in await check_thread(r.client, run) if isinstance(each, WakeReceived)]) == 1
        assert (await others[0].query("state"))["status"] == "dormant"


async def test_a_run_that_waits_for_other_data_sleeps_on_and_keeps_nothing(rig: StartRig) -> None:
    """A run that waits for other data is not woken, and does not keep the event for its next wait."""
    event = a_name()
    async with rig(SLEEPER, waits) as r:
        (run,) = await asleep(r, f"{event} web", 1)
        threads = Threads(r.client, task_queue=r.task_queue)
        assert (await publish(threads, event, by="ci", data={"service": "db"})).sent == (run.id,)

        async def refused() -> list[SignalRejected]:
            return [each for each in await events_of(run) if isinstance(each, SignalRejected)]

        (rejected,) = await eventually(refused, bool)
        assert (rejected.signal, rejected.outcome) == ("wake", "wrong_event")
        state = await status_of(run, "dormant")
        assert state["dormancy"]["buffered"] == []
        await publish(threads, event, by="ci", data={"service": "web"})
        await status_of(run, "completed")


@pytest.mark.extended
async def test_a_run_that_falls_asleep_just_before_the_event_is_woken(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second search finds runs that the first one missed because visibility lags."""
    event = a_name()
    searches: list[str] = []

    async def lagging(threads: Threads, query: str) -> Any:
        searches.append(query)
        return await search(threads, query) if len(searches) > 1 else []

    monkeypatch.setattr(publishing, "search", lagging)
    async with rig(SLEEPER, waits) as r:
        (run,) = await asleep(r, event, 1)
        published = await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci")
        assert published.sent == (run.id,)


@pytest.mark.extended
async def test_runs_that_could_not_be_reached_are_named(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure affects only its own run, is retried with the second search, and then reported."""
    event, tries = a_name(), list[str]()

    async def failing(runs: Any, thread: str, *rest: Any) -> Any:
        tries.append(thread)
        if thread == lost.id:
            raise ServerUnreachable("no answer")
        return await send_signal(runs, thread, *rest)

    async with rig(SLEEPER, waits) as r:
        lost, reached = await asleep(r, event, 2)
        monkeypatch.setattr(publishing, "send_signal", failing)
        published: Publication = await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci")
        assert (published.sent, {thread: str(why) for thread, why in published.unreached.items()}) == (
            (reached.id,),
            {lost.id: "no answer"},
        )
        assert tries.count(lost.id) == 2


@pytest.mark.extended
async def test_signals_are_sent_as_fast_as_workers_process_them(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """More signals are sent only once a worker has completed the workflow tasks of all but the last ones."""
    event, before = a_name(), list[str]()
    monkeypatch.setattr(publishing, "FIRST", 1)
    monkeypatch.setattr(publishing, "NEXT", 1)
    monkeypatch.setattr(publishing, "TAKEN_WITHIN", PATIENCE)

    async def watched(runs: Any, thread: str, *rest: Any) -> Any:
        for earlier in before[:-1]:
            history = await r.client.get_workflow_handle(earlier).fetch_history()
            kinds = [each.event_type for each in history.events]
            since = kinds[kinds.index(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED) :]
            assert EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in since
        before.append(thread)
        return await send_signal(runs, thread, *rest)

    async with rig(SLEEPER, waits) as r:
        waiting = await asleep(r, event, 4)
        monkeypatch.setattr(publishing, "send_signal", watched)
        published = await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci")
        assert tuple(before) == published.sent == ids(waiting)


@pytest.mark.extended
async def test_tasks_of_many_waiting_runs_go_to_any_worker(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run beyond the first few is unbound from its worker's sticky queue, in which its task would time out."""
    event = a_name()
    monkeypatch.setattr(publishing, "FIRST", 1)
    async with rig(SLEEPER, waits) as r:
        waiting = {run.id: run for run in await asleep(r, event, 3)}
        await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci")
        queues = []
        for thread in sorted(waiting):
            await status_of(waiting[thread], "completed")
            woken = False
            async for each in waiting[thread].fetch_history_events():
                woken = woken or each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
                if woken and each.HasField("workflow_task_scheduled_event_attributes"):
                    queues.append(each.workflow_task_scheduled_event_attributes.task_queue.name == r.task_queue)
                    break
        assert queues == [False, True, True]


@pytest.mark.extended
async def test_slow_workers_are_awaited_as_long_as_they_make_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the last run of a batch lags, others are polled; waiting ends once no more tasks are completed."""
    looks: list[int] = []

    async def taken(threads: Any, thread: str) -> bool:
        looks.append(int(thread))
        return int(thread) < min(-(-len(looks) // 4), 3)  # one more each time that all are polled, but not the last

    monkeypatch.setattr(publishing, "TAKEN_WITHIN", 0.0)
    monkeypatch.setattr(publishing, "is_processed", taken)
    threads: Any = None
    assert not await are_processed(threads, ["0", "1", "2", "3"], until=float("inf"))
    assert looks == [0, 1, 2, 3] * 4


@pytest.mark.extended
async def test_a_long_publication_does_not_wait_for_workers_until_its_end(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time limit, the rest is sent as without a worker; over HTTP, that limit is shorter."""
    event, looks = a_name(), list[str]()

    async def never(threads: Threads, thread: str) -> bool:
        looks.append(thread)
        return False

    monkeypatch.setattr(publishing, "FIRST", 1)
    monkeypatch.setattr(publishing, "NEXT", 1)
    monkeypatch.setattr(of_gateway, "PACED_SECONDS", 0.0)
    monkeypatch.setattr(publishing, "is_processed", never)
    async with rig(SLEEPER, waits) as r, gateway(r) as http:
        waiting = await asleep(r, event, 3)
        published = await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci", paced_seconds=0.0)
        assert published.sent == ids(waiting)
        waiting = await asleep(r, event, 3)
        answer = await http.post(f"/events/{event}", headers=bearer("ci"))
        assert answer.json()["sent"] == list(ids(waiting))
        assert looks == []


@pytest.mark.extended
async def test_without_a_worker_the_signals_are_sent_anyway(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal keeps the signals for the next worker: publishing waits for one once, and no longer."""
    event, waited = a_name(), list[str]()
    wait = publishing.are_processed

    async def counted(threads: Threads, batch: Sequence[str], *, until: float) -> bool:
        waited.extend(batch)
        return await wait(threads, batch, until=until)

    monkeypatch.setattr(publishing, "FIRST", 1)
    monkeypatch.setattr(publishing, "NEXT", 1)
    monkeypatch.setattr(publishing, "TAKEN_WITHIN", 0.2)
    monkeypatch.setattr(publishing, "are_processed", counted)
    async with rig(SLEEPER, waits) as r:
        waiting = await asleep(r, event, 4)
    published = await publish(Threads(r.client, task_queue=r.task_queue), event, by="ci")
    assert published.sent == ids(waiting)
    assert tuple(waited) == ids(waiting)[:1]
    async with rig(SLEEPER, waits, task_queue=r.task_queue):
        for run in waiting:
            await status_of(run, "completed")


def test_a_publication_over_http_responds_in_time() -> None:
    """The remaining signals, sent at once, get as much time as those that were paced by workers."""
    assert of_gateway.PACED_SECONDS <= ANSWER_SECONDS / 2


@pytest.mark.parametrize(
    ("event", "more"),
    [
        ("", {}),
        ("built' OR HoldfastStatus = 'dormant", {}),
        ("built\n", {}),
        ("b" * 101, {}),
        ("built", {"id": "x" * 101}),
        ("built", {"data": {"text": "x" * 16_384}}),
        ("built", {"data": {"number": float("nan")}}),
    ],
)
async def test_an_event_that_no_run_could_accept_is_rejected_before_it_is_sent(
    client: Any, event: str, more: dict[str, Any]
) -> None:
    """A name that would alter the search, and an id or data that runs reject, send nothing."""
    with pytest.raises(Refused, match="was not published"):
        await publish(Threads(client, task_queue="none"), event, by="ci", **more)


@pytest.mark.extended
async def test_an_event_over_http_wakes_only_the_callers_threads(rig: StartRig) -> None:
    """A caller restricted to a thread prefix wakes no others; repeating with the same key wakes nobody again."""
    event = a_name()
    async with rig(SLEEPER, waits) as r, gateway(r) as http:
        own, others = await asleep(r, event, 1, prefix="acme-"), await asleep(r, event, 1, prefix="other-")
        key = {"Idempotency-Key": "build-4711"}
        body = {"data": {"service": "web"}}
        answer = await http.post(f"/events/{event}", json=body, headers=bearer("acme") | key)
        assert answer.status_code == 202
        assert {**answer.json(), "id": ""} == {
            "event": event,
            "id": "",
            "sent": [own[0].id],
            "unreached": [],
            "by": "acme",
        }
        await status_of(own[0], "completed")
        assert (await others[0].query("state"))["status"] == "dormant"

        again = await http.post(f"/events/{event}", headers=bearer("ci") | key)
        assert again.json()["sent"] == [others[0].id]
        assert again.json()["id"] != answer.json()["id"]  # the same key of two callers is two events
        await status_of(others[0], "completed")
        assert (await http.post(f"/events/{event}", headers=bearer("ci") | key)).json()["sent"] == []


async def test_publishing_over_http_needs_its_own_scope(rig: StartRig) -> None:
    """No other scope suffices, and an invalid name or body is rejected."""
    async with rig(SLEEPER, waits) as r, gateway(r) as http:
        assert (await http.post("/events/built", headers=bearer("reader"))).status_code == 403
        assert (await http.post("/events/built")).status_code == 401
        for name in ("built'", "%27%20OR%201", "x" * 101):
            assert (await http.post(f"/events/{name}", headers=bearer("ci"))).status_code == 422
        wrong: list[Any] = [{"data": "text"}, {"data": {}, "by": "alice"}, [], {"data": {"text": "x" * 17_000}}]
        for body in wrong:
            answer = await http.post("/events/built", json=body, headers=bearer("ci"))
            assert answer.status_code in (409, 422), answer.text

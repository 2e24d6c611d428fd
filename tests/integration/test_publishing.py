"""An event for every run that waits for it: by the client, the command line and HTTP."""

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
    """Wait for the event that the task names, and for the service that it names."""
    if conversation.replies:
        return say(conversation.results[0])
    event, _, service = conversation.last_user_message.partition(" ")
    return call("wait_for_event", name=event, **({"match": {"service": service}} if service else {}))


async def asleep(rig: Rig, event: str, count: int, *, prefix: str = "") -> list[Run]:
    """Start runs that wait for an event, and wait until all of them sleep, visibility lists them, and nothing is due.

    A run that archives its events after it has begun to sleep binds itself to its worker again when that ends.
    """
    runs = [await rig.start(event, thread=f"{prefix}{uuid4().hex[:8]}") for _ in range(count)]
    for run in runs:
        await status_of(run, "dormant")
    name = event.partition(" ")[0]

    async def listed() -> set[str]:
        found = rig.client.list_workflows(f"HoldfastWaitsFor = '{name}' AND ExecutionStatus = 'Running'")
        return {each.id async for each in found}

    async def is_quiet(run: Run) -> bool:
        described = (await run.describe()).raw_description
        return not described.pending_activities and not described.HasField("pending_workflow_task")

    await eventually(listed, lambda found: {run.id for run in runs} <= found)
    for run in runs:
        await eventually(partial(is_quiet, run), bool)
    return runs


def ids(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return their ids, as a publication lists them."""
    return tuple(sorted(run.id for run in runs))


def a_name() -> str:
    """Return a new name for an event: the tests share a server."""
    return f"built.{uuid4().hex[:8]}"


@asynccontextmanager
async def gateway(rig: Rig) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the rig's threads over HTTP."""
    app = build_app(Threads(rig.client, task_queue=rig.task_queue), Callers(TOKENS))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        yield http


def bearer(name: str) -> dict[str, str]:
    """Return the header of a caller."""
    return {"Authorization": f"Bearer of-{name}"}


async def test_an_event_wakes_all_who_wait_for_it_once(rig: StartRig) -> None:
    """Those who wait for it wake once, also where it is published twice under one id; those who do not sleep on."""
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
    """What is published is for those who wait for it: no other run is woken, or keeps it for its next wait."""
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


async def test_a_run_that_falls_asleep_just_before_is_woken(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visibility lags: what the first search misses, the second one finds."""
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


async def test_who_could_not_be_reached_is_named(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure costs only its own run, is tried again with the second search, and then reported."""
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


async def test_signals_follow_each_other_as_fast_as_workers_take_them(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before more signals are sent, a worker has completed the workflow tasks of all but the last ones."""
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


async def test_where_many_wait_their_tasks_wait_for_any_worker(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run beyond the first few is unbound from its worker's own queue, in which its task would time out."""
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


async def test_slow_workers_are_waited_for_as_long_as_they_take_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last of a group waits for too long, others are looked at; it is waited for until no more are taken."""
    looks: list[int] = []

    async def taken(threads: Any, thread: str) -> bool:
        looks.append(int(thread))
        return int(thread) < min(-(-len(looks) // 4), 3)  # one more each time that all are looked at, but not the last

    monkeypatch.setattr(publishing, "TAKEN_WITHIN", 0.0)
    monkeypatch.setattr(publishing, "is_processed", taken)
    threads: Any = None
    assert not await are_processed(threads, ["0", "1", "2", "3"], until=float("inf"))
    assert looks == [0, 1, 2, 3] * 4


async def test_a_long_publication_does_not_wait_for_workers_to_its_end(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time, the rest is sent as it would be without a worker; over HTTP, that time is shorter."""
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


async def test_where_no_worker_runs_the_signals_are_sent_all_the_same(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal keeps them for the next worker: publishing waits once for one, and no longer."""
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


def test_a_publication_over_http_is_answered_in_time() -> None:
    """The rest that is sent at once has as long as what was sent as fast as workers took it."""
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
async def test_what_no_run_could_take_is_refused_before_it_is_sent(
    client: Any, event: str, more: dict[str, Any]
) -> None:
    """A name that would change the search, an id or data that a run refuses: nothing is sent."""
    with pytest.raises(Refused, match="was not published"):
        await publish(Threads(client, task_queue="none"), event, by="ci", **more)


async def test_an_event_over_http_wakes_the_callers_threads_only(rig: StartRig) -> None:
    """A caller whose threads have a prefix wakes no others; a repetition with the same key wakes nobody again."""
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
        assert again.json()["id"] != answer.json()["id"]  # keys of two callers are two events
        await status_of(others[0], "completed")
        assert (await http.post(f"/events/{event}", headers=bearer("ci") | key)).json()["sent"] == []


async def test_publishing_over_http_takes_its_own_scope(rig: StartRig) -> None:
    """No other scope suffices; a name that cannot be one and a body that is none are refused."""
    async with rig(SLEEPER, waits) as r, gateway(r) as http:
        assert (await http.post("/events/built", headers=bearer("reader"))).status_code == 403
        assert (await http.post("/events/built")).status_code == 401
        for name in ("built'", "%27%20OR%201", "x" * 101):
            assert (await http.post(f"/events/{name}", headers=bearer("ci"))).status_code == 422
        wrong: list[Any] = [{"data": "text"}, {"data": {}, "by": "alice"}, [], {"data": {"text": "x" * 17_000}}]
        for body in wrong:
            answer = await http.post("/events/built", json=body, headers=bearer("ci"))
            assert answer.status_code in (409, 422), answer.text

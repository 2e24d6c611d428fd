"""Threads over HTTP for programs in any language: start, wait, read, change; a real gateway and worker."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest
from pydantic import BaseModel
from temporalio.service import RPCError

from holdfast import Agent, Cannot, Catalog, Context, Policy, allow, ask, tool
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.evidence.anchors import Anchors
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Approver, Terms
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.node_seals import make_seal
from holdfast.encryption.codec import EncryptionCodec
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.gateway.routes import exports
from holdfast.portable.format.seals import FileCheckpoints
from holdfast.portable.verify import verify_file
from holdfast.storage.artifacts import FolderArtifacts
from holdfast.testing import Conversation, Reply, call, say
from tests.integration.test_gateway import approval, bearer
from tests.support.rig import PATIENCE, Rig, StartRig, eventually
from tests.support.serving import served, sha256

JSON = dict[str, Any]
LONG = "<script>alert(1)</script>" + "long " * 20_000


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="read")
def page() -> str:
    """Read a long page."""
    return LONG


@tool(effect="read")
def fetch() -> Cannot:
    """Fail to fetch a locked page."""
    return Cannot("it is locked", scope="everywhere")


class Account(BaseModel):
    """The context of the teller's runs."""

    number: str


@tool(effect="read")
def balance(account: Context[Account]) -> str:
    """Return the balance."""
    return f"{account.number} has 5 cents"


POLICY = Policy(
    rules=(ask("pay"), allow()),
    approvers=(Approver(name="alice"), Approver(name="bob")),
    terms=Terms(by=("alice", "bob")),
)
RUNS: tuple[Scope, ...] = (
    "start",
    "list",
    "read",
    "transcript",
    "artifacts",
    "cancel",
    "retry",
    "say",
    "decide",
    "delegate",
    "pause",
    "refine",
    "extend",
    "wake",
    "fork",
)
FILE = CallersFile(
    tokens=(
        Token(name="alice", sha256=sha256("of-alice"), scopes=RUNS),
        Token(name="bob", sha256=sha256("of-bob"), scopes=RUNS),
        Token(name="billing", sha256=sha256("of-billing"), scopes=RUNS, threads=("billing-",)),
        Token(name="talker", sha256=sha256("of-talker"), scopes=("say", "list", "transcript", "artifacts")),
        Token(name="decider", sha256=sha256("of-decider"), scopes=("decide", "read")),
        Token(name="refiner", sha256=sha256("of-refiner"), scopes=("refine", "read")),
        Token(name="old", sha256=sha256("of-old"), scopes=("decide", "say", "read")),
    )
)


def script(conversation: Conversation) -> Reply:
    """Pay or read if asked to; otherwise echo the message."""
    if conversation.messages[-1]["role"] == "tool":
        return say("Done.")
    message = conversation.last_user_message.strip()
    calls = {"pay": call("pay", amount=7), "read": call("page"), "fetch": call("fetch")}
    calls |= {"balance": call("balance")}
    calls |= {"wait": call("wait_for_event", name="built"), "delegate": call("run_agent", agent="clerk", task="pay")}
    return calls.get(message) or say(f"You said: {message}")


@asynccontextmanager
async def http_site(rig: StartRig, folder: Any, **options: Any) -> AsyncIterator[tuple[httpx2.AsyncClient, Rig]]:
    """Run a worker and a gateway, and yield a client with Alice's token and the worker."""
    catalog = Catalog(
        agents=[
            Agent(name="clerk", instructions="Work.", policy=POLICY, tools=[pay, page, fetch]),
            Agent(name="sleeper", instructions="Wait.", tools=(), dormancy=True),
            Agent(name="teller", instructions="Tell.", policy=POLICY, tools=[balance], context=Account),
            Agent(name="desk", instructions="Delegate.", tools=(), policy=POLICY, subagents=("clerk",)),
        ],
        tools=[pay, page, fetch, balance],
        artifacts=FolderArtifacts(folder / "artifacts"),
    )
    async with rig(catalog, script) as worker, gateway_of(worker, artifacts=catalog.artifacts, **options) as http:
        yield http, worker
        # Other tests list open requests, and would wait for this worker.
        open_runs = f"TaskQueue = '{worker.task_queue}' AND ExecutionStatus = 'Running'"
        async for run in worker.client.list_workflows(open_runs):
            with suppress(RPCError):
                await worker.client.get_workflow_handle(run.id).terminate()


@asynccontextmanager
async def gateway_of(worker: Rig, *, queue: str = "", **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway for a task queue, by default the worker's, and yield a client with Alice's token."""
    within = options.pop("answer_within", 60.0)
    record = worker.threads if options.pop("recorded", False) else None
    threads = Threads(worker.client, task_queue=queue or worker.task_queue, answer_within=within, record=record)
    async with (
        served(build_app(threads, Callers(FILE, POLICY), **options)) as url,
        httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE, trust_env=False, headers=bearer()) as http,
    ):
        yield http


def named(prefix: str = "order") -> str:
    """Return a new thread id."""
    return f"{prefix}-{uuid4().hex[:8]}"


async def settled(http: httpx2.AsyncClient, thread: str, until: str = "attention") -> JSON:
    """Wait until a run ends or needs attention, and return it."""

    async def ask() -> httpx2.Response:
        return await http.get(f"/threads/{thread}/result", params={"wait": 10, "until": until})

    found: JSON = (await eventually(ask, lambda answer: answer.status_code == 200)).json()
    return found


async def test_a_run_from_start_to_result(rig: StartRig, tmp_path: Any) -> None:
    """A program starts a run, waits for its request, approves, waits for the result, and reads the messages."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        started = await http.put(f"/threads/{thread}", json={"task": "pay", "agent": "clerk"})
        assert (started.status_code, started.json()) == (201, {"thread": thread, "by": "alice"})
        assert started.headers["Location"] == f"/threads/{thread}"
        asking = await settled(http, thread)
        assert asking["status"] == "waiting_approval"
        open_run = await http.get(f"/threads/{thread}/result")
        assert (open_run.status_code, open_run.json()["status"]) == (202, "waiting_approval")
        decided = await http.post(f"/threads/{thread}/decisions", json=approval(asking["pending"][0]))
        assert decided.status_code == 200, decided.text
        result = await settled(http, thread, "end")
        assert (result["status"], result["text"], result["steps"]) == ("completed", "Done.", 2)

        messages = (await http.get(f"/threads/{thread}/messages")).json()
        assert [each["role"] for each in messages["messages"]] == ["user", "assistant", "tool", "assistant"]
        pages: list[JSON] = []
        after: int | None = -1
        while after is not None:
            page = (await http.get(f"/threads/{thread}/messages", params={"after": after, "limit": 3})).json()
            pages.append(page["messages"])
            after = page["next"]
        assert [len(each) for each in pages] == [3, 1]
        assert messages["messages"] == [each for part in pages for each in part]


@pytest.mark.extended
async def test_a_result_reports_the_sub_agent_that_needs_a_person(rig: StartRig, tmp_path: Any) -> None:
    """With `attention`, the wait for a tree ends with the sub-agent's request, whose thread takes the decision. With
    `end`, there is no result yet, and the answer says whom it waits for.
    """
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "delegate", "agent": "desk"})
        asking = await settled(http, thread)
        assert asking["status"] == "waiting_approval"
        assert [each["thread"] for each in asking["attention"]] == [f"{thread}.1"]
        (request,) = asking["pending"]
        assert request["path"] == [thread, f"{thread}.1"]
        none = await http.get(f"/threads/{thread}/result")
        assert (none.status_code, none.json()["status"]) == (202, "running")
        assert [each["cause"] for each in none.json()["attention"]] == ["ApprovalRequired"]
        decided = await http.post(f"/threads/{request['path'][-1]}/decisions", json=approval(request))
        assert decided.status_code == 200, decided.text
        assert (await settled(http, thread, "end"))["status"] == "completed"


@pytest.mark.extended
async def test_an_unattended_start_fails_with_the_cause(rig: StartRig, tmp_path: Any) -> None:
    """The result has the cause at once; the same start with another `when_blocked` is another start."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        body = {"task": "pay", "agent": "clerk", "when_blocked": "fail"}
        assert (await http.put(f"/threads/{thread}", json=body)).status_code == 201
        failed = await settled(http, thread, "end")
        assert (failed["status"], failed["cause"], failed["pending"]) == ("failed", "ApprovalRequired", [])
        assert (await http.put(f"/threads/{thread}", json=body)).status_code == 200
        for other in ({"when_blocked": None}, {"when_blocked": "wait"}):
            assert (await http.put(f"/threads/{thread}", json=body | other)).status_code == 409
        assert (await http.put(f"/threads/{named()}", json=body | {"when_blocked": "die"})).status_code == 422


@pytest.mark.extended
async def test_a_start_has_a_typed_context(rig: StartRig, tmp_path: Any) -> None:
    """Tools get it; another one is another start; one that does not fit ends the run with the field, not its value."""
    async with http_site(rig, tmp_path) as (http, _):
        thread, body = named(), {"task": "balance", "agent": "teller", "context": {"number": "4711"}}
        assert (await http.put(f"/threads/{thread}", json=body)).status_code == 201
        assert (await settled(http, thread, "end"))["status"] == "completed"
        messages = (await http.get(f"/threads/{thread}/messages")).json()["messages"]
        assert "4711 has 5 cents" in str(messages)
        assert (await http.put(f"/threads/{thread}", json=body | {"context": {"number": "1"}})).status_code == 409
        for wrong, field in (
            ({"numero": "secret-1"}, "numero"),
            ({"number": ["secret-1"]}, "number"),
            (None, "number"),
        ):
            other = named()
            assert (await http.put(f"/threads/{other}", json=body | {"context": wrong})).status_code == 201
            failed = await settled(http, other, "end")
            assert (failed["status"], failed["cause"]) == ("failed", "ContextInvalid")
            assert field in failed["text"]
            assert "secret-1" not in failed["text"]


async def test_a_start_happens_once_through_any_gateway(rig: StartRig, tmp_path: Any) -> None:
    """The same key and body get the same thread and answer from any gateway; another body is rejected."""
    async with http_site(rig, tmp_path) as (http, worker), gateway_of(worker) as other:
        key = {"Idempotency-Key": f'"{uuid4()}"'}
        bare = {"Idempotency-Key": key["Idempotency-Key"].strip('"')}
        body = {"task": "Hello", "idle_limit": 0}
        answers = await asyncio.gather(
            *(gateway.post("/threads", json=body, headers=key) for gateway in (http, other) for _ in range(4))
        )
        (thread,) = {answer.json()["thread"] for answer in answers}
        assert {201} == {answer.status_code for answer in answers}
        await settled(http, thread, "end")
        again = await other.post("/threads", json=body, headers=bare)
        assert (again.status_code, again.json()) == (201, answers[0].json())
        for differs in ({"task": "Goodbye"}, {"agent": "clerk"}, {"idle_limit": 5}):
            refused = await http.post("/threads", json={**body, **differs}, headers=key)
            assert (refused.status_code, refused.json()["outcome"]) == (422, "key_reused"), refused.text
        bobs = await http.post("/threads", json=body, headers={**key, **bearer("of-bob")})
        assert bobs.status_code == 201
        assert bobs.json()["thread"] != thread

        path = f"/threads/{named()}"
        puts = [await gateway.put(path, json=body) for gateway in (http, other)]
        conflicts = [
            await http.put(path, json={"task": "Goodbye"}),
            await http.put(path, json=body, headers=bearer("of-bob")),
        ]
        assert [answer.status_code for answer in puts] == [201, 200]
        assert puts[0].json() == puts[1].json()
        assert [(answer.status_code, answer.json()["outcome"]) for answer in conflicts] == [(409, "exists")] * 2


@pytest.mark.extended
async def test_a_start_needs_no_worker(rig: StartRig, tmp_path: Any) -> None:
    """Without a worker a start is durable and idempotent, and state, events and messages are read from history."""
    async with http_site(rig, tmp_path) as (_, worker):
        async with gateway_of(worker, queue=named("nobody"), answer_within=0.3) as http:
            thread = named()
            answers = [await http.put(f"/threads/{thread}", json={"task": "Hello"}) for _ in range(2)]
            paths = (f"/threads/{thread}{rest}" for rest in ("", "/result", "/pending", "/events", "/messages"))
            reads = await asyncio.gather(*(http.get(path, headers={"Accept": "application/json"}) for path in paths))
            cancelled = await http.post(f"/threads/{thread}/cancellations")

        assert [answer.status_code for answer in answers] == [201, 200]
        assert [answer.status_code for answer in reads] == [200, 202, 200, 200, 200]
        assert cancelled.status_code == 202


@pytest.mark.slow
async def test_the_list_has_pages(rig: StartRig, tmp_path: Any) -> None:
    """Every thread is listed once on pages of any size, also if it continued; filters and tokens restrict the list."""
    async with http_site(rig, tmp_path) as (http, _):
        names = [f"billing-{uuid4().hex[:8]}" for _ in range(5)]
        for name in names:
            assert (await http.put(f"/threads/{name}", json={"task": "Hello"})).status_code == 201
            await settled(http, name, "end")
        said = await http.post(f"/threads/{names[0]}/messages", json={"message": "And now?"})
        assert said.json()["outcome"] == "reopened"
        await settled(http, names[0], "end")
        other = named("other")
        assert (await http.put(f"/threads/{other}", json={"task": "pay"})).status_code == 201

        async def pages(**query: Any) -> list[str]:
            threads: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                answer = await http.get("/threads", params={"limit": 2, **query, "cursor": cursor}, headers=headers)
                assert answer.status_code == 200, answer.text
                assert len(answer.json()["threads"]) <= 2
                threads += [row["thread"] for row in answer.json()["threads"]]
                cursor = answer.json()["next"]
            return [name for name in threads if name in (*names, other)]

        headers = bearer()
        latest_first = [names[0], *reversed(names[1:])]
        await eventually(lambda: pages(agent="clerk"), lambda found: found == [other, *latest_first])
        assert latest_first == await pages(status="completed")
        assert await pages(agent="nobody") == []
        headers = bearer("of-billing")
        assert latest_first == await pages()
        for cursor in ("x", "AAAAAAAAAAAA", "%", "e30"):
            assert (await http.get("/threads", params={"cursor": cursor})).status_code == 422


@pytest.mark.extended
async def test_a_wait_is_bounded_and_follows_prefer(rig: StartRig, tmp_path: Any) -> None:
    """`Prefer: wait` is applied up to the limit, a longer `wait` is malformed, and concurrent waits are limited."""
    async with http_site(rig, tmp_path, wait_seconds=1, followers_each=2) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "pay"})
        await settled_approval(http, path)
        preferred = await http.get(f"{path}/result", headers={"Prefer": "respond-async, wait=999999"})
        assert (preferred.status_code, preferred.headers["Preference-Applied"]) == (202, "wait=1")
        for wrong in ("2", "-1", "x", "9" * 30):
            assert (await http.get(f"{path}/result", params={"wait": wrong})).status_code == 422
        ignored = await http.get(f"{path}/result", headers={"Prefer": "wait=soon"})
        assert (ignored.status_code, "Preference-Applied" in ignored.headers) == (202, False)
        crowd = await asyncio.gather(*(http.get(f"{path}/result", params={"wait": 1}) for _ in range(4)))
        assert sorted(answer.status_code for answer in crowd) == [202, 202, 429, 429]


async def settled_approval(http: httpx2.AsyncClient, path: str) -> JSON:
    """Wait until a run asks for approval, and return the request."""

    async def pending() -> list[JSON]:
        requests: list[JSON] = (await http.get(f"{path}/pending")).json()["pending"]
        return requests

    (request,) = await eventually(pending, bool)
    return dict(request)


async def test_events_come_as_pages_or_as_a_stream(rig: StartRig, tmp_path: Any) -> None:
    """`Accept: application/json` gets pages with every event once; any other type follows the run."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "Hello"})
        await settled(http, path.rpartition("/")[2], "end")
        positions: list[int] = []
        after: int | None = -1
        while after is not None:
            params = {"after": after, "limit": 2}
            page = await http.get(f"{path}/events", params=params, headers={"Accept": "application/json"})
            positions += [each["position"] for each in page.json()["events"]]
            after = page.json()["next"]
        stream = await http.get(f"{path}/events", params={"after": 1})

        assert positions == list(range(len(positions)))
        assert positions
        ids = [int(line[4:]) for line in stream.text.splitlines() if line.startswith("id: ")]
        assert ids == positions[2:]


async def test_a_run_is_paused_and_resumed_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """The state reports who paused a run, why and until when; a call that changes nothing is a conflict."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        path = f"/threads/{thread}"
        await http.put(path, json={"task": "pay"})
        await settled(http, thread)
        early = await http.post(f"{path}/resume")
        body = {"reason": "look", "seconds": 3_600}
        first = await http.post(f"{path}/pause", json=body)
        waited = await http.get(f"{path}/result", params={"wait": 5})
        state = (await http.get(path)).json()
        found = partial(http.get, "/threads", params={"status": "paused"})
        await eventually(found, lambda answer: thread in answer.text)
        forever = [await http.post(f"{path}/pause", json={"reason": "look"}) for _ in range(2)]
        resumed = await http.post(f"{path}/resume", json={"reason": "seen"})

        assert (early.status_code, early.json()["outcome"]) == (409, "not_paused")
        assert (first.status_code, first.json()["by"]) == (200, "alice")
        assert waited.json()["status"] == state["status"] == "paused"
        assert (state["paused"]["by"], state["paused"]["reason"]) == ("alice", "look")
        assert state["paused"]["until"]
        assert [answer.status_code for answer in forever] == [200, 409]
        assert (resumed.status_code, (await http.get(path)).json()["paused"]) == (200, None)


async def test_a_budget_is_set_and_extended_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """A start's budget applies; an extension's id counts once; a token without the new scope may not extend."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        path = f"/threads/{thread}"
        await http.put(path, json={"task": "pay", "budget": {"steps": 5, "usd": None}})
        await settled(http, thread)
        answers = [await http.post(f"{path}/extensions", json={"steps": 2, "id": "more"}) for _ in range(2)]
        state = (await http.get(path)).json()
        wrong = [
            await http.post(f"{path}/extensions", json=body)
            for body in (
                {},
                {"steps": 0},
                {"steps": "1"},
                {"usd": 1},
                {"usd": "NaN"},
                {"usd": "0"},
                {"steps": 1, "by": "x"},
            )
        ]
        other = await http.post(f"{path}/extensions", json={"tokens": 5})
        old = await http.post(f"{path}/extensions", json={"steps": 1}, headers=bearer("of-old"))
        refused = await http.put(f"/threads/{named()}", json={"task": "pay", "budget": {"steps": -1}})

        assert [answer.status_code for answer in answers] == [200, 409], answers[0].text
        assert (answers[0].json()["outcome"], answers[1].json()["outcome"]) == ("accepted", "duplicate")
        (steps,) = state["budget"]["limits"]
        assert (steps["limit"], steps["allowed"], steps["spent"]) == ("steps", "7", "1")
        assert [answer.status_code for answer in wrong] == [422] * len(wrong)
        assert (other.status_code, other.json()["outcome"]) == (409, "no_budget")
        assert (old.status_code, "scope extend" in old.json()["detail"]) == (403, True)
        assert refused.status_code == 422


async def test_a_task_is_refined_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """A refinement's id counts once; older tokens lack its scope; a closed thread explains how to continue it."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        path = f"/threads/{thread}"
        await http.put(path, json={"task": "pay"})
        request = (await settled(http, thread))["pending"][0]
        body = {"kind": "narrow", "text": "only half", "id": "half"}
        answers = [await http.post(f"{path}/refinements", json=body) for _ in range(2)]
        state = (await http.get(path)).json()
        wrong = [
            await http.post(f"{path}/refinements", json={**body, **more})
            for more in (
                {"kind": "widen"},
                {"text": " "},
                {"text": "x" * 9_000},
                {"id": ""},
                {"by": "bob"},
                {"text": 7},
            )
        ]
        long = await http.post(f"{path}/refinements", json={"kind": "narrow", "text": 'ä"' * 3_000})
        old = await http.post(f"{path}/refinements", json={"kind": "narrow", "text": "less"}, headers=bearer("of-old"))
        decision = {"decision": "approve", "request": "1", "digest": request["digest"]}
        approved = await http.post(f"{path}/decisions", json=decision)
        await settled(http, thread, "end")
        late = await eventually(
            partial(http.post, f"{path}/refinements", json={"kind": "narrow", "text": "less"}),
            lambda answer: answer.status_code == 409,
        )

        assert [answer.status_code for answer in answers] == [202, 409], answers[0].text
        assert (answers[0].json()["outcome"], answers[0].json()["by"]) == ("queued", "alice")
        assert answers[1].json()["outcome"] == "duplicate"
        (refinement,) = state["refinements"]
        assert (state["task"], refinement["text"], refinement["by"]) == ("pay", "only half", "alice")
        assert [answer.status_code for answer in wrong] == [422] * len(wrong)
        assert long.status_code == 413
        assert old.status_code == 403
        assert "scope refine" in old.json()["detail"]
        assert approved.status_code == 200, "the digest that was shown before the refinement is still valid"
        assert late.json()["outcome"] == "too_late"


async def test_a_dormant_run_gets_events_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """An early event is kept, a matching one wakes the run, and a call that changes nothing is a conflict."""
    async with http_site(rig, tmp_path) as (http, _):
        thread, awake = named(), named()
        path = f"/threads/{thread}"
        await http.put(path, json={"task": "wait", "agent": "sleeper"})
        await http.put(f"/threads/{awake}", json={"task": "pay"})
        waited = await http.get(f"{path}/result", params={"wait": 5})
        await settled(http, awake)
        event = {"event": "other", "id": "1", "data": {"order": 2**60}}
        kept, again = [await http.post(f"{path}/wake", json=event) for _ in range(2)]
        wrong = [
            await http.post(f"{path}/wake", json=body)
            for body in ({"event": "no spaces"}, {"id": "é"}, {"data": [1]}, {"data": {"a": 1}}, {"call": 0})
        ]
        nothing = await http.post(f"/threads/{awake}/wake", json={"event": "built"})
        state = (await http.get(path)).json()
        woken = await http.post(f"{path}/wake", json={"event": "built", "data": {"ok": True}})
        events = await eventually(lambda: http.get(f"{path}/events"), lambda answer: "run_finished" in answer.text)

        assert waited.json()["status"] == "dormant"
        assert (kept.status_code, kept.json()["outcome"], kept.json()["by"]) == (202, "buffered", "alice")
        assert (again.status_code, again.json()["outcome"]) == (409, "duplicate")
        assert {answer.status_code for answer in wrong} == {422}
        assert (nothing.status_code, nothing.json()["outcome"]) == (409, "not_waiting")
        assert [wait["event"] for wait in state["dormancy"]["waits"]] == ["built"]
        assert [each["event"] for each in state["dormancy"]["buffered"]] == ["other"]
        assert (woken.status_code, woken.json()["outcome"]) == (200, "delivered")
        assert str(2**60) in events.text


async def test_cancel_ends_a_run_and_retry_needs_a_blocked_one(rig: StartRig, tmp_path: Any) -> None:
    """A cancellation ends the run, and Temporal's history names the caller; a late request is a conflict."""
    async with http_site(rig, tmp_path) as (http, worker):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "pay"})
        await settled(http, thread)
        retried = await http.post(f"/threads/{thread}/retries", json={"reason": "x"})
        cancelled = await http.post(f"/threads/{thread}/cancellations", json={"reason": "a mistake"})
        result = await settled(http, thread, "end")
        # A run that has ended is open until it has been archived.
        await eventually(worker.client.get_workflow_handle(thread).describe, lambda run: run.close_time is not None)
        late = [await http.post(f"/threads/{thread}/{what}") for what in ("cancellations", "retries")]
        history = await worker.client.get_workflow_handle(thread).fetch_history()

        assert (retried.status_code, retried.json()["outcome"]) == (409, "refused")
        assert (cancelled.status_code, cancelled.json()["by"]) == (202, "alice")
        assert result["status"] == "cancelled"
        assert [(each.status_code, each.json()["outcome"]) for each in late] == [(409, "too_late")] * 2
        asked = [
            each.workflow_execution_cancel_requested_event_attributes
            for each in history.events
            if each.HasField("workflow_execution_cancel_requested_event_attributes")
        ]
        assert asked[0].cause == "alice: a mistake"


async def test_authority_is_delegated_and_revoked(rig: StartRig, tmp_path: Any) -> None:
    """A delegation is in the name of the token's owner, and its revocation takes effect."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "pay"})
        await settled(http, thread)
        path = f"/threads/{thread}"
        delegated = await http.post(f"{path}/delegations", json={"to": "bob", "seconds": 60})
        (delegation,) = (await http.get(path)).json()["delegated"]
        revoked = await http.post(f"{path}/revocations", json={"delegated_to": "bob"})
        both = await http.post(f"{path}/revocations", json={"delegated_to": "bob", "remembered": "1"})

        assert (delegated.status_code, revoked.status_code, both.status_code) == (200, 200, 422), delegated.text
        assert (delegation["by"], delegation["to"]) == ("alice", "bob")
        assert (await http.get(path)).json().get("delegated", []) == []


@pytest.mark.extended
async def test_a_thread_reports_what_it_waits_for_and_what_follows(rig: StartRig, tmp_path: Any) -> None:
    """`GET` of a thread returns what `show --json` prints: now, next, last event, errors, and how it continues."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "pay"})
        await settled(http, thread)
        shown = (await http.get(f"/threads/{thread}")).json()
        assert (shown["lifecycle"], shown["now"]) == ("dormant", "waits for a decision on request 1")
        assert {"when": "request 1 is approved", "then": "pay runs"} in shown["next"]
        assert shown["last_event"]["type"] == "approval_requested"
        assert (shown["errors"], shown["running"]) == ([], [])
        assert shown["continue"]["why"] == "a person has to decide"


@pytest.mark.extended
async def test_a_constraint_is_read_and_removed(rig: StartRig, tmp_path: Any) -> None:
    """The thread's state lists its constraints; a removal is in the token owner's name, and counts once."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "fetch", "idle_limit": 60})
        await settled(http, path.rpartition("/")[2])
        (constraint,) = (await http.get(path)).json()["constraints"]
        assert (constraint["constraint"], constraint["reason"]) == (1, "it is locked")
        answers = [await http.post(f"{path}/lifts", json={"constraint": number}) for number in (1, 1, 0, "1")]
        assert [answer.status_code for answer in answers] == [200, 404, 404, 422], answers[0].text
        assert (await http.get(path)).json().get("constraints", []) == []
        page = await http.get(f"{path}/events", headers={"Accept": "application/json"})
        (lifted,) = (event for event in page.json()["events"] if event["type"] == "constraint_lifted")
        assert lifted["by"] == "alice"


@pytest.mark.extended
async def test_a_lift_continues_a_closed_thread_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """It needs a message, and the scope to send one; the log has the lift before the agent reads the message."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "fetch"})
        await settled(http, path.rpartition("/")[2], until="end")
        alone = await http.post(f"{path}/lifts", json={"constraint": 1})
        unknown = await http.post(f"{path}/lifts", json={"constraint": 9, "say": "fetch"})
        bobs = await http.post(f"{path}/lifts", json={"constraint": 1, "say": "fetch"}, headers=bearer("of-decider"))
        assert [each.status_code for each in (alone, unknown, bobs)] == [409, 404, 403]
        lifted = await http.post(f"{path}/lifts", json={"constraint": 1, "say": "once more", "reason": "unlocked"})
        assert (lifted.status_code, lifted.json()["outcome"], lifted.json()["by"]) == (200, "reopened", "alice")
        await settled(http, path.rpartition("/")[2], until="end")
        page = await http.get(f"{path}/events", headers={"Accept": "application/json"})
        (event,) = (event for event in page.json()["events"] if event["type"] == "constraint_lifted")
        assert (event["by"], event["reason"]) == ("alice", "unlocked")


@pytest.mark.extended
async def test_another_agent_continues_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """A reclassification is recorded with its caller; one that changes nothing, or is too generous, is rejected."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{(thread := named())}"
        await http.put(path, json={"task": "read", "idle_limit": 60})
        await settled(http, thread, until="answer")
        answers = [
            await http.post(f"{path}/reclassifications", json=body)
            for body in ({}, {"trust": "person"}, {"agent": "desk", "reason": "it delegates"})
        ]
        assert [each.status_code for each in answers] == [422, 422, 200], [each.text for each in answers]
        page = await http.get(f"{path}/events", headers={"Accept": "application/json"})
        (event,) = (event for event in page.json()["events"] if event["type"] == "run_reclassified")
        assert (event["agent"], event["by"], event["reason"]) == ("desk", "alice", "it delegates")


@pytest.mark.extended
async def test_a_run_adopts_a_policy_in_the_callers_name(rig: StartRig, tmp_path: Any) -> None:
    """The body names a digest and no policy; without both scopes, nothing is recorded; what no worker has, fails."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{(thread := named())}"
        await http.put(path, json={"task": "read", "idle_limit": 60})
        await settled(http, thread, until="answer")
        body = {"policy": "0" * 64, "reason": "any day"}
        given = (bearer("of-decider"), bearer("of-refiner"))
        strangers = [await http.post(f"{path}/policy-adoptions", json=body, headers=each) for each in given]
        wrong: tuple[dict[str, Any], ...] = ({}, {"policy": "0" * 63}, {"policy": {"rules": []}}, {**body, "by": "bob"})
        answers = [await http.post(f"{path}/policy-adoptions", json=each) for each in (*wrong, body)]
        assert [each.status_code for each in strangers] == [403, 403]
        assert [each.status_code for each in answers] == [422, 422, 422, 422, 200], [each.text for each in answers]
        events: list[Any] = []
        while not (events and events[-1]["type"] == "policy_change_failed"):
            page = await http.get(f"{path}/events", headers={"Accept": "application/json"})
            events = [each for each in page.json()["events"] if each["type"].startswith("policy_change")]
        asked, failed = events
        assert (asked["policy"], asked["by"], asked["reason"]) == ("0" * 64, "alice", "any day")
        assert (failed["policy"], "0000000000000000…" in failed["problem"]) == ("0" * 64, True)


async def test_an_artifact_is_read_whole_and_in_ranges(rig: StartRig, tmp_path: Any) -> None:
    """The full text of a long result is a download that resumes at any byte."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "read"})
        await settled(http, thread, "end")
        path = f"/threads/{thread}/artifacts"
        listed = (await http.get(path)).json()
        (artifact,) = listed["artifacts"]
        whole = await http.get(f"{path}/{artifact['address']}")
        content = whole.content

        assert (whole.status_code, listed["next"]) == (200, None)
        assert LONG in content.decode()
        for wanted, part in {
            "bytes=0-9": content[:10],
            "bytes=100-": content[100:],
            "bytes=-5": content[-5:],
            f"bytes={len(content) - 1}-{10**14}": content[-1:],
        }.items():
            answer = await http.get(f"{path}/{artifact['address']}", headers={"Range": wanted})
            assert (answer.status_code, answer.content) == (206, part), wanted
        beyond = await http.get(f"{path}/{artifact['address']}", headers={"Range": f"bytes={len(content)}-"})
        assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(content)}")


async def test_a_thread_is_exported_as_a_file(rig: StartRig, tmp_path: Any) -> None:
    """The file verifies with the gateway's key; it has the artifacts that the caller may read, or none if redacted."""

    async def asides(thread: str) -> list[str]:
        return []

    key = encode_key(b"gateway" * 4 + b"key!")
    evidence = Evidence(None, asides, FolderArtifacts(tmp_path / "artifacts"))
    async with http_site(rig, tmp_path, key=key, evidence=evidence, recorded=True) as (http, _):
        thread = named("order/7 ä")
        path = f"/threads/{quote(thread, safe='')}/export"
        await http.put(path.removesuffix("/export"), json={"task": "read"})
        await settled(http, thread=quote(thread, safe=""), until="end")
        found = [
            await http.get(path),
            await http.get(path, params={"artifacts": False}),
            await http.get(path, params={"redact": True}),
            await http.get(path, headers=bearer("of-old")),
        ]
        assert [(each.status_code, each.headers["Content-Type"]) for each in found] == [(200, "application/zip")] * 4
        names = []
        for each in found:
            assert int(each.headers["Content-Length"]) == len(each.content)
            (file := tmp_path / "thread.holdfast").write_bytes(each.content)
            verified = await verify_file(file, signer=public_key(key))
            assert (verified.ok, verified.thread) == (True, thread), verified.reason
            assert each.headers["Holdfast-Signed"] == "true"
            names.append(("artifacts" in {one.what for one in verified.unchecked}, verified.redacted))
        assert names == [(False, False), (True, False), (True, True), (True, False)]
        assert found[1].content == found[3].content, "the scope read alone has no artifacts"
        assert LONG not in found[3].text
        assert LONG in found[0].text
        assert b"long long" not in found[2].content
        disposition = found[0].headers["Content-Disposition"]
        assert disposition == f"attachment; filename*=UTF-8''{quote(thread, safe='')}.holdfast"
        assert (await http.get(f"/threads/{named()}/export")).status_code == 404


@pytest.mark.extended
async def test_a_file_over_http_has_the_seals_that_the_gateway_can_read(rig: StartRig, tmp_path: Path) -> None:
    """The header reports the number of seals; an unreadable anchor adds none, and the file is sent anyway."""
    anchor = tmp_path / "anchor"
    anchor.mkdir()
    async with http_site(rig, tmp_path, anchors=Anchors([anchor])) as (http, worker):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "read"})
        await settled(http, thread=thread, until="end")
        path, file = f"/threads/{thread}/export", tmp_path / "thread.holdfast"
        bare = await http.get(path)
        file.write_bytes(bare.content)
        report = await verify_file(file)
        seal = make_seal(
            encode_key(bytes([7]) * 32),
            namespace=worker.client.namespace,
            thread=thread,
            events=report.events,
            head=report.head,
            at=datetime.now(UTC),
        )
        await FolderAnchor(anchor).put(seal)
        sealed = await http.get(path)
        file.write_bytes(sealed.content)
        assert (await verify_file(file)).seals == 1
        anchor.rename(tmp_path / "moved")
        unread = await http.get(path)
    assert [each.headers["Holdfast-Seals"] for each in (bare, sealed, unread)] == ["0", "1", "0"]
    assert unread.content == bare.content


@pytest.mark.extended
async def test_readers_cannot_keep_the_gateway_busy_with_seals(
    rig: StartRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seals are read for one export at a time; an export that stops waiting for them is sent without."""
    reading, most, free, guard = [0], [0], threading.Event(), threading.Lock()

    def slow(*_: object) -> FileCheckpoints:
        with guard:
            reading[0] += 1
            most[0] = max(most[0], reading[0])
        free.wait(PATIENCE)
        with guard:
            reading[0] -= 1
        return FileCheckpoints()

    monkeypatch.setattr(exports, "read_seals", slow)
    async with http_site(rig, tmp_path, anchors=Anchors([tmp_path])) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "read"})
        await settled(http, thread=thread, until="end")
        monkeypatch.setattr(exports, "SEALS_SECONDS", 0.5)
        try:
            answers = [await http.get(f"/threads/{thread}/export") for _ in range(3)]
        finally:
            free.set()
    assert [(each.status_code, each.headers["Holdfast-Seals"]) for each in answers] == [(200, "0")] * 3
    assert most == [1]


@pytest.mark.extended
async def test_a_failed_run_has_a_result_that_says_why(rig: StartRig, tmp_path: Any) -> None:
    """An unknown agent is the cause of a failed run, not an error of the request."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "Hello", "agent": "nobody"})
        result = await settled(http, thread, "end")

        assert (result["status"], result["cause"]) == ("failed", "AgentNotFound")


@pytest.mark.extended
async def test_code_generators_get_names_and_examples(rig: StartRig, tmp_path: Any) -> None:
    """Each operation has a unique id, each body an example, and each problem an example of its status."""
    async with http_site(rig, tmp_path, codec=EncryptionCodec(), ui="http://ui.example") as (http, _):
        described = (await http.get("/openapi.json")).json()
        operations = [each for path in described["paths"].values() for each in path.values()]

        ids = [each["operationId"] for each in operations]
        assert sorted(set(ids)) == sorted(ids)
        bodies = [
            each["requestBody"]["content"]["application/json"]["schema"]
            for each in operations[1:]
            if "requestBody" in each
        ]
        assert all(body["examples"] for body in bodies)
        problems = {
            (status, answer["content"]["application/problem+json"]["example"]["status"])
            for each in operations
            for status, answer in each["responses"].items()
            if "application/problem+json" in answer.get("content", {})
        }
        assert problems
        assert all(int(status) == example for status, example in problems)

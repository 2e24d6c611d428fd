"""Attacks on the HTTP API: others' threads, forged ids, colliding keys, pages in a browser, huge waits."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from holdfast import Agent, Catalog, ImageBlock, Policy, allow, tool
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.core.log.references import left_out
from holdfast.gateway import app
from holdfast.gateway.http import limits
from holdfast.gateway.http.limits import BODY_BYTES, URL_BYTES, Message, Receive, Send
from holdfast.gateway.http.quotas import Quota, Slots
from holdfast.gateway.routes import exports
from holdfast.portable import export
from holdfast.portable.format.manifest import Exported
from holdfast.storage.artifacts import FolderArtifacts
from holdfast.testing import Conversation, Reply, call, say
from tests.integration.test_gateway import bearer
from tests.integration.test_http_api import LONG, gateway_of, http_site, named, settled
from tests.integration.test_http_api import POLICY as CLERKS
from tests.support.rig import StartRig, eventually

JSON = dict[str, Any]


async def test_an_old_token_gains_no_scope(rig: StartRig, tmp_path: Any) -> None:
    """A token to decide, say and read starts nothing, lists nothing, and reads neither transcript nor artifacts."""
    async with http_site(rig, tmp_path) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "read"})
        old = bearer("of-old")
        refused = [
            await http.post("/threads", json={"task": "Hello"}, headers=old),
            await http.put(path, json={"task": "read"}, headers=old),
            *[
                await http.get(each, headers=old)
                for each in ("/threads", f"{path}/messages", f"{path}/artifacts", f"{path}/artifacts/sha256:{'0' * 64}")
            ],
            *[
                await http.post(f"{path}/{what}", json={}, headers=old)
                for what in ("cancellations", "retries", "pause", "resume", "wake", "delegations", "revocations")
            ],
        ]
        async with httpx2.AsyncClient(trust_env=False) as stranger:
            strangers = [await stranger.request(each.request.method, each.request.url) for each in refused]

        assert {403} == {answer.status_code for answer in refused}
        assert {401} == {answer.status_code for answer in strangers}


async def test_a_restricted_token_reaches_no_other_thread(rig: StartRig, tmp_path: Any) -> None:
    """For a token with `threads`, another's thread looks like a missing one on every route."""
    async with http_site(rig, tmp_path) as (http, _):
        theirs, nothing = named("hr"), named("hr")
        await http.put(f"/threads/{theirs}", json={"task": "pay"})
        await settled(http, theirs)
        mine = bearer("of-billing")
        gets = (
            "",
            "/result",
            "/pending",
            "/events",
            "/messages",
            "/artifacts",
            f"/artifacts/sha256:{'0' * 64}",
            "/export",
        )
        posts: dict[str, JSON] = {
            "decisions": {"decision": "deny", "request": "1", "digest": "0" * 64},
            "messages": {"message": "x"},
            "delegations": {"to": "bob", "seconds": 1},
            "revocations": {"remembered": "1"},
            "retries": {},
            "pause": {},
            "resume": {},
            "wake": {"event": "deploy.finished"},
            "cancellations": {},
            "forks": {"at": 1},
            "restart": {},
        }

        async def answers(thread: str) -> list[tuple[int, str]]:
            responses = [await http.get(f"/threads/{thread}{rest}", headers=mine) for rest in gets]
            responses += [
                await http.post(f"/threads/{thread}/{what}", json=body, headers=mine) for what, body in posts.items()
            ]
            return [(answer.status_code, answer.text.replace(thread, "it")) for answer in responses]

        assert await answers(theirs) == await answers(nothing)
        assert {404} == {status for status, _ in await answers(theirs)}
        assert theirs not in (await http.get("/pending", headers=mine)).text
        assert theirs not in (await http.get("/threads", headers=mine)).text
        billed = named("billing")
        await http.put(f"/threads/{billed}", json={"task": "pay"}, headers=mine)
        await settled(http, billed)
        for what in ("forks", "restart"):  # of its own thread, for one with another's name
            away = await http.post(f"/threads/{billed}/{what}", json={"id": f"hr-{billed}"}, headers=mine)
            derived = await http.post(
                f"/threads/{billed}/{what}", json={"say": "on"} if what == "forks" else {}, headers=mine
            )
            assert (away.status_code, derived.status_code) == (403, 201)
            assert derived.json()["thread"].startswith(billed)
        taken = await http.put(f"/threads/{nothing}", json={"task": "x"}, headers=mine)
        own = await http.post("/threads", json={"task": "Hello"}, headers={**mine, "Idempotency-Key": "k"})
        also = await http.post("/threads", json={"task": "Hello"}, headers=mine)
        assert (taken.status_code, own.status_code) == (403, 201)
        assert own.json()["thread"].startswith("billing-once-")
        assert also.json()["thread"].startswith("billing-")


async def test_nobody_takes_the_thread_id_of_anothers_key(rig: StartRig, tmp_path: Any) -> None:
    """The id that another caller's key will map to cannot be chosen, even if the key can be guessed."""
    async with http_site(rig, tmp_path) as (http, _):
        key = {"Idempotency-Key": named("invoice")}
        alices = (await http.post("/threads", json={"task": "Hello"}, headers=key)).json()["thread"]
        guessed = alices[:-1] + ("0" if alices[-1] != "0" else "1")
        for thread in (alices, guessed, f"x/{guessed}", f"billing-{guessed}", f"a\u00e4{guessed}"):
            taken = await http.put(
                f"/threads/{quote(thread, safe='')}", json={"task": "Hello"}, headers=bearer("of-bob")
            )
            assert taken.status_code == 403, thread
        for wrong in ("", '"', '""', 'a"b', '"a', "x" * 256, "a b", "~\x7f"):
            answer = await http.post("/threads", json={"task": "Hello"}, headers={"Idempotency-Key": wrong})
            assert answer.status_code == 422, wrong


FORGED = ("..", "%2e%2e", "..%2F..%2Fetc%2Fpasswd", "x" * 9_000, "order~reset-1", "%00", "%ff", "~1", "a%0d%0aX:%20y")


async def test_forged_ids_are_not_found(rig: StartRig, tmp_path: Any) -> None:
    """A forged thread or artifact id is not found; the path is never decoded into another one."""
    async with http_site(rig, tmp_path) as (http, _):
        thread = named()
        await http.put(f"/threads/{thread}", json={"task": "Hello"})
        for forged in FORGED:
            for path in (f"/threads/{forged}/result", f"/threads/{forged}", f"/threads/{thread}/artifacts/{forged}"):
                reader, writer = await asyncio.open_connection("127.0.0.1", http.base_url.port)
                head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer of-alice\r\n\r\n"
                writer.write(head.encode())
                answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                body = await reader.readexactly(int(answer.partition("content-length: ")[2].split()[0]))
                assert int(answer.split()[1]) == (414 if len(forged) > URL_BYTES else 404), path
                assert "\r\nx: y" not in answer, path
                assert b"Traceback" not in body, path
                assert b"127.0.0.1" not in body, path
                writer.close()


async def test_a_start_claims_neither_a_forged_id_nor_identity_nor_context(rig: StartRig, tmp_path: Any) -> None:
    """`PUT` reports what is wrong with the id, and starts nothing. The requester comes from the token; the worker's
    folders and other threads' pasts are out of reach.
    """
    async with http_site(rig, tmp_path) as (http, _):
        for forged in ("order~reset-1", "%00", "%ff", "a%0d%0aX:%20y", "x" * 300, "%20"):
            refused = await http.put(f"/threads/{forged}", json={"task": "Hello"})
            assert (refused.status_code, refused.json()["title"]) == (422, "Malformed"), forged
            assert "id" in refused.json()["detail"], forged
            assert "GET /threads" not in refused.json()["detail"], forged
            assert "X" not in refused.headers, forged
        for claim in ("by", "workspace", "by_proven", "resume", "thread", "previous_run", "trust"):
            answer = await http.post("/threads", json={"task": "Hello", claim: "/etc"})
            assert (answer.status_code, claim in answer.json()["detail"]) == (422, True), claim


async def test_text_of_a_tool_refers_to_no_artifact(rig: StartRig, tmp_path: Any) -> None:
    """Only a thread's events name its artifacts, so a tool's text opens none.

    The tool knows the digest of another thread's artifact, and imitates the placeholder of an omitted image.
    """
    secret = ImageBlock(data="AAAA" * 130_000, media_type="image/png")
    known: list[str] = []

    @tool(effect="read")
    def camera(real: bool) -> list[str | ImageBlock]:
        """Take a picture, or claim to."""
        return ["as seen:", secret] if real else ["as seen:", left_out("image", 390_000, known[0])]

    catalog = Catalog(
        agents=[Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[camera])],
        artifacts=FolderArtifacts(tmp_path / "artifacts"),
    )

    def films(conversation: Conversation) -> Reply:
        return say("done") if conversation.replies else call("camera", real=conversation.last_user_message == "real")

    async with rig(catalog, films) as worker, gateway_of(worker, artifacts=catalog.artifacts) as http:
        owner, thief = named(), named()
        await http.put(f"/threads/{owner}", json={"task": "real"})
        await settled(http, owner, "end")
        (artifact,) = (await http.get(f"/threads/{owner}/artifacts")).json()["artifacts"]
        known.append(artifact["address"])
        assert (await http.get(f"/threads/{owner}/artifacts/{known[0]}")).status_code == 200

        await http.put(f"/threads/{thief}", json={"task": "claimed"})
        await settled(http, thief, "end")
        assert known[0] in (await http.get(f"/threads/{thief}/messages")).text
        assert (await http.get(f"/threads/{thief}/artifacts")).json()["artifacts"] == []
        assert (await http.get(f"/threads/{thief}/artifacts/{known[0]}")).status_code == 404


async def test_an_artifact_belongs_to_its_threads_and_a_browser_runs_nothing_of_it(
    rig: StartRig, tmp_path: Any
) -> None:
    """An address gives access only through a thread whose own events refer to it. HTML that a tool returned is an
    untyped download, which runs no script and cannot be embedded by another site.
    """
    async with http_site(rig, tmp_path) as (http, _):
        owner, other = named(), named()
        await http.put(f"/threads/{owner}", json={"task": "read"})
        await http.put(f"/threads/{other}", json={"task": "Hello"})
        await settled(http, owner, "end")
        await settled(http, other, "end")
        (artifact,) = (await http.get(f"/threads/{owner}/artifacts")).json()["artifacts"]
        address = artifact["address"]
        unreal = [
            await http.get(f"/threads/{thread}/artifacts/{each}")
            for thread, each in (
                (other, address),
                (other, f"sha256:{'0' * 64}"),
                (owner, address.upper()),
                (owner, address.removeprefix("sha256:")),
                (owner, f"{address}%00"),
            )
        ]
        assert {404} == {answer.status_code for answer in unreal}

        answer = await http.get(f"/threads/{owner}/artifacts/{address}", headers={"Accept": "text/html"})
        assert (answer.status_code, LONG in answer.text) == (200, True)
        wanted = {
            "Content-Type": "application/octet-stream",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        assert wanted == {name: answer.headers[name] for name in wanted}
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{address[7:]}"'
        events = await http.get(f"/threads/{owner}/events", headers={"Accept": "application/json, text/html"})
        assert (events.headers["Content-Type"], events.headers["X-Content-Type-Options"]) == (
            "application/json",
            "nosniff",
        )


async def test_a_page_in_a_browser_achieves_nothing(rig: StartRig, tmp_path: Any) -> None:
    """A page of another site has no token, even after DNS rebinding: its forms and scripts start and read nothing."""
    async with http_site(rig, tmp_path) as (http, _):
        for origin in ("https://evil.example", "null", "http://127.0.0.1"):
            foreign = {"Origin": origin, "Host": "evil"}
            async with httpx2.AsyncClient(base_url=http.base_url, trust_env=False, headers=foreign) as page:
                form = {"Content-Type": "text/plain"}
                body = b'{"task": "Hello"}'
                answers = [
                    await page.post("/threads", content=body, headers=form),
                    await page.post("/threads/x/cancellations", content=body, headers=form),
                    await page.get("/threads", headers={"Cookie": "Authorization=Bearer of-alice"}),
                    await page.get("/threads?access_token=of-alice"),
                    await page.get("/threads", headers={"Authorization": "Basic b2Y6b2YtYWxpY2U="}),
                ]
                asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
                preflight = await page.options("/threads", headers=asks)

            assert {401} == {answer.status_code for answer in answers}, origin
            assert preflight.status_code == 405, origin
            every = [name for each in (*answers, preflight) for name in each.headers]
            assert not [name for name in every if name.startswith("access-control")], origin


@pytest.mark.extended
async def test_huge_waits_and_pages_are_bounded(rig: StartRig, tmp_path: Any) -> None:
    """No caller chooses how long the gateway waits or how much it reads."""
    async with http_site(rig, tmp_path, wait_seconds=1) as (http, _):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "pay"})
        began = time.monotonic()
        for prefer in (f"wait={10**8}", 'wait="999999999"', "wait=1, wait=999"):
            answer = await http.get(f"{path}/result", headers={"Prefer": prefer})
            assert answer.headers["Preference-Applied"] == "wait=1"
        assert time.monotonic() - began < 60  # it could be years
        wrong = [
            await http.get(f"{path}/{rest}", headers={"Accept": "application/json"})
            for rest in (
                f"events?limit={10**6}",
                f"events?after={2**53}",
                f"messages?after={2**63}",
                "messages?limit=0",
                "artifacts?limit=-1",
                f"result?wait={10**9}",
            )
        ]
        assert {422} == {answer.status_code for answer in wrong}
        long = await http.post("/threads", content=b'{"task": "' + b"x" * BODY_BYTES + b'"}')
        assert long.status_code == 413


async def test_a_fork_over_http_is_judged_no_less_strictly(rig: StartRig, tmp_path: Any) -> None:
    """With another agent, the original's policy judges, too, and a policy of the caller is only added to it.

    No caller selects an LLM. Invalid and costly policies are rejected, and so is a position without the original's
    policy.
    """
    async with http_site(rig, tmp_path) as (http, worker):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "Hello", "agent": "clerk"})
        await settled(http, path.removeprefix("/threads/"), "end")
        loose = Policy(rules=(allow(),))
        body = {"say": "on", "agent": "sleeper", "policy": loose.model_dump(mode="json")}
        made = await http.post(f"{path}/forks", json=body)
        assert made.status_code == 201, made.text
        threads = Threads(worker.client, record=worker.threads)
        read = partial(threads.state, made.json()["thread"], use_worker=False)
        state = await eventually(read, lambda state: state["fork"])
        assert state["fork"]["policies"] == [CLERKS.hash, loose.hash]
        wrong: JSON
        for wrong in (
            {"llm": "dear"},
            {"policy": {"rules": [{"verdict": "perhaps"}]}},
            {"policy": {"rules": [{"verdict": "allow", "when": "import os"}]}},
            {"policy": {"rules": [{"verdict": "deny", "when": "args.a.exists(x, args.a.exists(y, x == y))"}]}},
            {"policy": {"rules": [{"verdict": "deny"}] * 2_000}},
            {"policy": {"approvers": [{"name": f"a{number}"} for number in range(10_000)]}},
            {"at": 1, "agent": "sleeper"},
            {"policies": []},
            {"keeps_policy": False},
        ):
            assert (await http.post(f"{path}/forks", json={"say": "on", **wrong})).status_code == 422, wrong


def exporting(http: httpx2.AsyncClient, path: str) -> Callable[[], Awaitable[int]]:
    """Return a function that exports once and returns the status: 429 for a moment after a previous export."""

    async def get() -> int:
        return (await http.get(path)).status_code

    return get


async def test_an_export_is_bounded_and_needs_permission_to_read(
    rig: StartRig, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing export files needs permission to read events, is bounded, and leaves nothing on disk.

    A stranger gets no file either, and whether an export succeeds or fails, nothing of it stays.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(app, "EXPORTS_EACH", 0)
    async with http_site(rig, tmp_path / "none") as (http, worker):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "Hello"})
        await settled(http, path.removeprefix("/threads/"), "end")
        assert (await http.get(f"{path}/export")).status_code == 429
        monkeypatch.setattr(app, "EXPORTS_EACH", 1)
        async with gateway_of(worker) as other:
            for _ in range(3):  # each frees its slot
                await eventually(exporting(other, f"{path}/export"), lambda status: status == 200)
                await eventually(exporting(other, f"/threads/{named()}/export"), lambda status: status == 404)
            assert (await other.get(f"{path}/export", headers=bearer("of-talker"))).status_code == 403
            assert (await other.get(f"{path}/export", headers=bearer("of-nobody"))).status_code == 401
    assert list((tmp_path / "temporary").iterdir()) == []


async def test_an_export_costs_the_gateway_little(
    rig: StartRig, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No artifact is wholly in memory, no request waits for a disk, and a full disk fails only that export."""

    async def asides(thread: str) -> list[str]:
        return []

    limits, store = list[int | None](), FolderArtifacts(tmp_path / "artifacts")
    get = store.get

    async def counted(address: str, offset: int = 0, limit: int | None = None) -> bytes:
        limits.append(limit)
        return await get(address, offset, limit)

    monkeypatch.setattr(store, "get", counted)
    monkeypatch.setattr(export, "PART_BYTES", 1_000)
    monkeypatch.setattr(export, "new_file", lambda path: pytest.fail("it waits until the file is on the disk"))
    monkeypatch.setattr(app, "EXPORTS_EACH", 1)
    async with (
        http_site(rig, tmp_path) as (http, worker),
        gateway_of(worker, evidence=Evidence(None, asides, store)) as other,
    ):
        path = f"/threads/{named()}"
        await http.put(path, json={"task": "read"})
        await settled(http, path.removeprefix("/threads/"), "end")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        for _ in range(2):  # it frees its slot
            refused = await other.get(f"{path}/export")
            assert (refused.status_code, "no room" in refused.text) == (503, True)
            assert str(tmp_path) not in refused.text
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        exported = await other.get(f"{path}/export")
        assert exported.status_code == 200
        assert LONG in exported.text
        assert len(limits) > 1
        assert set(limits) == {1_000}


Pass = Callable[[float], Awaitable[None]]


@pytest.fixture
async def elapse(monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Return a function that advances the event loop's clock at once: due timers run."""
    loop, skipped = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + skipped)

    async def elapse(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds
        for _ in range(3):  # one round finds the due timers, the next runs what they wake
            await asyncio.sleep(0)

    return elapse


async def test_a_caller_that_does_not_read_its_export_loses_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elapse: Pass
) -> None:
    """A caller who reads, however slowly, gets the whole file; one who stops reading keeps neither slot nor file."""
    monkeypatch.setattr(exports, "PART_BYTES", 10)
    exported = Exported("t", 1, "0" * 64, 100, signed=False, redacted=False, left_out=())
    slots, sent = Slots("exports", 1, 1), list[bytes]()

    async def slowly(message: Message) -> None:
        await elapse(exports.STALL_SECONDS * 0.8)
        sent.append(message.get("body", b""))

    async def never(message: Message) -> None:
        await elapse(exports.STALL_SECONDS)
        await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    for send, fails in ((slowly, False), (never, True), (slowly, False)):
        (path := tmp_path / "file").write_bytes(b"x" * 100)
        file = path.open("rb")
        slots.acquire("alice")
        response = exports.ExportResponse(file, exported, slots=slots, caller="alice")
        sent.clear()
        (ended,) = await asyncio.gather(response({"type": "http"}, receive, send), return_exceptions=True)
        assert (file.closed, isinstance(ended, Exception)) == (True, fails)
        assert fails or b"".join(sent) == b"x" * 100
        with slots.slot("alice"):
            pass


async def test_a_response_may_take_long_as_long_as_it_makes_progress(elapse: Pass) -> None:
    """An export that takes long to write is sent while it makes progress; one that stalls is a 503."""

    async def writing(scope: Message, receive: Receive, send: Send) -> None:
        scope["state"]["caller"] = "alice"
        for _ in range(int(scope["path"].removeprefix("/"))):
            await elapse(limits.ANSWER_SECONDS * 0.8)
            scope["state"]["progress"]()
        if scope["path"] == "/0":
            await elapse(limits.ANSWER_SECONDS)
            await asyncio.Event().wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        scope["state"]["progress"]()  # a response that has begun has its own time limit
        await elapse(limits.ANSWER_SECONDS * 2)
        await send({"type": "http.response.body", "body": b""})

    async def sent_for(path: str) -> list[int]:
        statuses = list[int]()

        async def send(message: Message) -> None:
            statuses.append(message.get("status", 0))

        async def receive() -> Message:
            return {"type": "http.request"}

        scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"authorization", b"x")]}
        await limits.Limits(writing)(scope, receive, send)
        return statuses

    assert (await sent_for("/0"))[0] == 503
    assert await sent_for("/12") == [200, 0], "all of it is sent"


@pytest.mark.extended
async def test_starts_count_against_the_quota(rig: StartRig, tmp_path: Any) -> None:
    """One caller's starts use up only that caller's share."""
    async with http_site(rig, tmp_path, each_caller=Quota(at_once=4, a_second=0.01, burst=3)) as (http, _):
        key = {"Idempotency-Key": named()}
        mine = [(await http.post("/threads", json={"task": "Hello"}, headers=key)).status_code for _ in range(4)]
        theirs = await http.get("/threads", headers=bearer("of-bob"))

        assert (mine, theirs.status_code) == ([201, 201, 201, 429], 200)

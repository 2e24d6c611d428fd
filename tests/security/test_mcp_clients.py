"""An MCP client, or the LLM that uses it, reaches the exposed agents and its own tasks, and nothing else."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from holdfast.api.request_views import PendingRequest
from holdfast.core.authority.policy import Approver, Terms
from holdfast.errors import SettingsError
from holdfast.gateway.callers import Caller
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Quota
from holdfast.gateway.mcp.decisions import SHOWN_CHARS, OpenRequest, decision_of, form, shown
from holdfast.gateway.mcp.exposed import expose
from holdfast.gateway.mcp.ids import is_own, key_of, task_id
from holdfast.gateway.mcp.resources import wanted
from holdfast.gateway.mcp.stdio import Lines, within
from holdfast.testing import say, steps
from tests.support.exposed import POLICY, Site, catalog, site
from tests.support.mcp_clients import TASKS, accept, over_http
from tests.support.rig import StartRig

JSON = dict[str, Any]
ALICE, BOB = Caller("alice", ("start", "read")), Caller("bob", ("start", "read"))
NO_TASK = "there is no such task"
VERSION = "2026-07-28"


def asked(**fields: Any) -> OpenRequest:
    """Return an open request."""
    plain: JSON = {
        "request": "1",
        "kind": "approval",
        "tool": "pay",
        "arguments": {"amount": 7},
        "digest": "d" * 64,
        "spec_hash": "",
        "effect_key": "",
        "epoch": 0,
        "why": "rule",
        "edited_by": "",
        "asked_at": "2026-01-01T00:00:00Z",
        "expires_at": None,
        "answers": ("approve", "deny", "respond"),
        "who": (),
        "on_expiry": "deny",
        "veto": (),
        "quorum": 1,
        "votes": (),
    }
    return OpenRequest("t", "clerk", PendingRequest.model_validate(plain | fields))


def request(method: str, params: JSON | None = None, *, tasks: bool = True) -> JSON:
    """Return a request as a client of the newest specification sends it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}} if tasks else {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}


async def post(gateway: Site, body: bytes | JSON, *, token: str = "of-alice", **headers: str) -> httpx2.Response:
    """Send a body to the server as a client does, with other headers in place of its own."""
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    method = body["method"] if isinstance(body, dict) else "tools/list"
    own = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
    }
    sent = {
        name: value for name, value in (own | {k.replace("_", "-"): v for k, v in headers.items()}).items() if value
    }
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.post(f"{gateway.url}/mcp", content=given, headers=sent)


def test_a_task_id_belongs_to_one_caller() -> None:
    """An id is unguessable and its caller's own; an altered one, or another caller's, is nobody's."""
    made = task_id(ALICE, "")
    assert is_own(ALICE, made)
    assert made != task_id(ALICE, "")
    assert not is_own(BOB, made)
    assert not is_own(ALICE, made[:-1] + ("0" if made[-1] != "0" else "1"))
    assert not is_own(ALICE, "task-" + "0" * 64)
    assert not is_own(ALICE, "once-" + "0" * 32)
    assert not is_own(ALICE, "x" * 10**6)
    tenant = Caller("tenant", ("start",), ("tenant-",))
    assert is_own(tenant, task_id(tenant, ""))
    assert not is_own(tenant, task_id(Caller("tenant", ("start",)), ""))


@pytest.mark.parametrize("key", ["short", "with a space in it", "x" * 256, 7, {}, "größer-als-sechzehn"])
def test_a_key_that_could_be_guessed_is_no_key(key: Any) -> None:
    """A key is long enough, bounded and visible."""
    with pytest.raises(HTTPProblem):
        key_of({"holdfast/effect-key": key})


@pytest.mark.parametrize("names", [["nobody"], [""], ["clerk", "clerk "]])
def test_only_agents_of_the_catalog_can_be_exposed(names: list[str]) -> None:
    """A name that the catalog lacks is an error at the start, and exposes nothing."""
    with pytest.raises(SettingsError):
        expose(catalog(), names)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "holdfast://tasks/t/transcript/../artifacts",
        "holdfast://tasks/t/artifacts/sha256:00",
        "holdfast://tasks/t/transcript?after=-1",
        "holdfast://tasks/t/transcript?after=1&after=2",
        "holdfast://tasks/t/transcript?offset=1",
        "holdfast://other/t/transcript",
        "holdfast://[",
        "holdfast://tasks/" + "t" * 300 + "/transcript",
        "holdfast://tasks/t/transcript?after=" + "9" * 5_000,
    ],
)
def test_other_uris_are_no_resources(uri: str) -> None:
    """A URI outside the three forms is not found."""
    with pytest.raises(HTTPProblem):
        wanted(uri)


def test_a_form_hides_nothing_and_controls_no_display() -> None:
    """What could reorder or hide text is escaped, in arguments, claims and names."""
    text = shown(asked(arguments={"to": "eve\u202egro.knab\u200b"}, claim="safe\x1b[2K", why="x\u2066"))
    assert not {"\u202e", "\u200b", "\x1b", "\u2066"} & set(text)
    assert '"eve\\u202egro.knab\\u200b"' in text


def test_a_call_that_is_not_shown_whole_cannot_be_approved() -> None:
    """The form offers no way to run it, and a response that approves it anyway is rejected."""
    long = asked(arguments={"script": "x" * SHOWN_CHARS})
    params = form(long).model_dump(mode="json", by_alias=True)["params"]
    assert params["requestedSchema"]["properties"]["decision"]["enum"] == ["deny", "respond"]
    with pytest.raises(HTTPProblem):
        decision_of(long, accept("approve"))


@pytest.mark.parametrize(
    "response",
    [
        accept("happened"),
        accept("approve", arguments='{"amount": 8}'),
        accept("approve", by="bob"),
        accept("approve", reason="x" * 3_000),
        {"action": "accept"},
        {"action": "approve"},
        {"content": {"decision": "approve"}},
        {"action": "accept", "content": {"decision": ["approve"]}},
    ],
)
def test_a_response_is_one_of_the_offered_decisions(response: JSON) -> None:
    """Another decision, a claimed name, other arguments or a malformed response is rejected."""
    with pytest.raises(HTTPProblem):
        decision_of(asked(), response)


def test_a_decision_is_bound_to_what_was_shown() -> None:
    """A decision has the number and the digest of the request whose key it answers; keys differ below sub-agents."""
    decision = decision_of(asked(), accept("approve"))
    assert decision is not None
    assert (decision.request, decision.digest) == ("1", "d" * 64)
    below = OpenRequest("t.1", "helper", asked().request)
    assert asked().key("t") == f"1-{'d' * 64}"
    assert below.key("t") == f"1:1-{'d' * 64}"


async def lines_of(*chunks: bytes, limit: int = 100) -> tuple[list[str], list[str]]:
    """Return the messages that are read of a stream, and why others were rejected."""
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    lines, rejected = Lines(reader, limit), []

    async def reject(why: str) -> None:
        rejected.append(why)

    lines.reject = reject
    return [line async for line in lines], rejected


async def test_no_part_of_an_overlong_message_is_a_message() -> None:
    """The rest of a message after the limit is not read as another one, wherever the client cuts it."""
    smuggled = b'{"method": "tasks/update"}'
    for size in (101, 200, 65_536, 65_536 * 2 - 1, 65_536 * 3):
        read, rejected = await lines_of(b"x" * size, smuggled + b"\n", b'{"id": 1}\n')
        assert (read, len(rejected)) == (['{"id": 1}'], 1), size


async def test_rubbish_on_stdin_is_rejected_and_the_next_message_read() -> None:
    """No JSON, JSON that parsers read differently, deep JSON and other encodings are rejected."""
    deep = b"[" * 300 + b"]" * 300
    read, rejected = await lines_of(
        b"rubbish\n", b'{"a": 1, "a": 2}\n', deep + b"\n", b'"\xff"\n', b"\n\n", b'{"a": NaN}\n', b"{}\n", limit=1_000
    )
    assert read == ["{}"]
    assert len(rejected) == 5


async def test_a_flood_over_stdio_is_limited() -> None:
    """Requests beyond the quota are rejected before anything else happens."""
    calls = []

    async def proceed(_: Any) -> None:
        calls.append(1)

    limited = within(Quota(at_once=1, a_second=0.001, burst=3), "dana")
    outcomes = await asyncio.gather(*(limited(None, proceed) for _ in range(10)), return_exceptions=True)  # type: ignore[arg-type]
    assert len(calls) == 3
    assert sum(isinstance(each, HTTPProblem) for each in outcomes) == 7


async def test_a_task_of_another_caller_does_not_exist(rig: StartRig) -> None:
    """Reading, answering, cancelling it and its resources give the same error as an id that nobody has."""
    async with (
        site(rig) as gateway,
        over_http(gateway.url, "of-alice") as alice,
        over_http(gateway.url, "of-bob") as bob,
    ):
        created = await alice.start("clerk", task="Pay.")
        asking = await alice.until(created.task_id, "input_required")
        (key,) = asking["inputRequests"]
        nobodys = task_id(BOB, "")
        for task in (created.task_id, nobodys, "task-" + "0" * 64, "run-1", "x" * 900):
            for method, responses in (
                ("tasks/get", None),
                ("tasks/update", {key: accept("approve")}),
                ("tasks/cancel", None),
            ):
                with pytest.raises(MCPError) as refused:
                    await bob.send(method, task, responses)
                assert (refused.value.code, refused.value.message) == (-32602, NO_TASK)
        for kind in ("transcript", "artifacts"):
            with pytest.raises(MCPError) as refused:
                await bob.sdk.session.read_resource(f"holdfast://tasks/{created.task_id}/{kind}")
            assert (refused.value.code, refused.value.message) == (-32602, NO_TASK)
        assert (await alice.get(created.task_id))["status"] == "input_required"
        await alice.send("tasks/cancel", created.task_id)
        await alice.until(created.task_id, "cancelled")


async def test_a_decision_needs_the_scope_the_right_and_the_shown_request(rig: StartRig) -> None:
    """Without the scope there is no form; without the right, the run refuses; with another key, nothing happens."""
    policy = POLICY.model_copy(update={"approvers": (Approver(name="bob"),), "terms": Terms(by=("bob",))})
    async with (
        site(rig, policy) as gateway,
        over_http(gateway.url, "of-alice") as alice,
        over_http(gateway.url, "of-starter") as starter,
    ):
        created = await alice.start("clerk", task="Pay.")
        asking = await alice.until(created.task_id, "input_required")
        (key,) = asking["inputRequests"]
        with pytest.raises(MCPError, match="not_entitled"):
            await alice.send("tasks/update", created.task_id, {key: accept("approve")})
        for other in ("1-" + "0" * 64, "2" + key[1:], "1"):
            await alice.send("tasks/update", created.task_id, {other: accept("approve")})
        assert (await alice.get(created.task_id))["status"] == "input_required"

        theirs = await starter.start("clerk", task="Pay.")
        waiting = await alice_status(starter, theirs.task_id)
        assert (waiting["status"], "inputRequests" in waiting) == ("working", False)
        with pytest.raises(MCPError, match="scope decide"):
            await starter.send("tasks/update", theirs.task_id, {key: accept("approve")})
        with pytest.raises(MCPError, match="scope cancel"):
            await starter.send("tasks/cancel", theirs.task_id)
        with pytest.raises(MCPError, match="scope transcript"):
            await starter.sdk.session.read_resource(f"holdfast://tasks/{theirs.task_id}/transcript")
        for task in (created.task_id, theirs.task_id):
            await gateway.rig.client.get_workflow_handle(task).cancel()
        await alice.until(created.task_id, "cancelled")
        await starter.until(theirs.task_id, "cancelled")


async def alice_status(client: Any, task: str) -> JSON:
    """Return a task once it says what it waits for."""
    while True:
        found: JSON = await client.get(task)
        if found.get("statusMessage"):
            return found
        await asyncio.sleep(0.05)


async def test_an_agent_that_is_not_exposed_is_no_tool(rig: StartRig) -> None:
    """Its name gives the same error as one that does not exist; a caller without `start` sees no agents at all."""
    async with site(rig, replies=steps([say("Done.")])) as gateway:
        async with over_http(gateway.url, "of-alice") as alice:
            errors = set()
            for name in ("private", "nobody", "result"):
                with pytest.raises(MCPError) as refused:
                    await alice.call(name, task="Work.")
                errors.add((refused.value.code, refused.value.message))
            assert len(errors) == 1
        async with over_http(gateway.url, "of-reader", tasks=False) as reader:
            assert [each.name for each in (await reader.sdk.session.list_tools()).tools] == ["result"]
            with pytest.raises(MCPError, match="scope start"):
                await reader.call("clerk", task="Work.")


async def test_messages_are_bounded_whole_and_of_this_site(rig: StartRig) -> None:
    """Tokens, sizes, JSON, hosts, origins and headers are checked before anything is done."""
    listing = request("tools/list")
    async with site(rig, body_bytes=100_000) as gateway:
        assert (await post(gateway, listing)).status_code == 200
        assert (await post(gateway, listing, token="of-nobody")).status_code == 401
        assert (await post(gateway, listing, authorization="")).status_code == 401
        assert (await post(gateway, listing, host="evil.example")).status_code == 421
        assert (await post(gateway, listing, host="127.0.0.1.evil.example:80")).status_code == 421
        assert (await post(gateway, listing, host="gateway.example")).status_code == 200
        for origin in ("http://evil.example", "null", "http://gateway.example.evil", "https://gateway.example"):
            assert (await post(gateway, listing, origin=origin)).status_code == 403, origin
        assert (await post(gateway, listing, origin="http://gateway.example")).status_code == 200
        assert (await post(gateway, b" " * 100_001)).status_code == 413
        for body in (b"", b"rubbish", b"[" * 5_000, b'{"id": 1, "id": 2}', b"\xff", b'{"a": 1e999}'):
            refused = await post(gateway, body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32700), body
        for shape in (b"[]", b"1", b"null", b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', b"{}"):
            assert (await post(gateway, shape)).status_code == 400, shape
        many = request(
            "tasks/update", {"taskId": task_id(ALICE, ""), "inputResponses": {str(n): {} for n in range(101)}}
        )
        assert (await post(gateway, many)).json()["error"]["code"] == -32602
        own = task_id(ALICE, "")
        named = request("tasks/get", {"taskId": own})
        codes = [(await post(gateway, named, mcp_name=name)).json()["error"]["code"] for name in ("another", "", own)]
        assert codes == [-32020, -32020, -32602]
        without = request("tasks/get", {"taskId": task_id(ALICE, "")}, tasks=False)
        assert (await post(gateway, without)).json()["error"]["code"] == -32021
        async with httpx2.AsyncClient(trust_env=False) as http:
            headers = {"authorization": "Bearer of-alice"}
            assert (await http.get(f"{gateway.url}/mcp", headers=headers)).status_code == 405
            occupied = f"{gateway.url}/threads/{task_id(BOB, '')}"
            starts = {"authorization": "Bearer of-alice"}
            assert (await http.put(occupied, json={"task": "x"}, headers=starts)).status_code == 403

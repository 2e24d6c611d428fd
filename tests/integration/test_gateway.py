"""Threads over HTTP, with a real gateway on loopback and a real worker behind it."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import quote, urlencode
from uuid import uuid4

import httpx2
import pytest
from google.protobuf.json_format import MessageToJson
from temporalio.api.common.v1 import Payload, Payloads

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.client.signed_requests import NONCE, SIGNATURE, TIMESTAMP, SignedParts, digest_of, sign_request
from holdfast.client.threads import Threads
from holdfast.config.encryption_keys import parse_keys
from holdfast.core.authority.policy import Approver, Gateway, Terms
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.run.contracts.record import FEEDBACK_INPUT
from holdfast.encryption.codec import EncryptionCodec
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.gateway.routes import slack
from holdfast.testing import call, say, steps
from tests.support.rig import PATIENCE, Rig, StartRig, events_of, eventually, status_of
from tests.support.serving import served, sha256

JSON = dict[str, Any]
AUDIENCE = "https://gateway.example"
GATEWAY_KEY, ALICE_KEY, BOB_KEY, STRANGERS_KEY = (encode_key(bytes([n]) * 32) for n in (1, 2, 3, 4))


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


VOUCHED = Policy(
    rules=(allow("look"),),
    approvers=(Approver(name="alice", keys=(public_key(ALICE_KEY),)), Approver(name="bob")),
    gateways=(Gateway(name="web", keys=(public_key(GATEWAY_KEY),)),),
    signatures="required",
)
TRUSTING = Policy(rules=(allow("look"),))
CALLERS = CallersFile(
    slack={"U02ABCDEF": "alice"},
    tokens=(
        Token(name="alice", sha256=sha256("of-alice"), scopes=("decide", "say", "read")),
        Token(name="ops", sha256=sha256("of-ops"), scopes=tuple(each for each in get_args(Scope) if each != "codec")),
        Token(name="bob", sha256=sha256("of-bob"), scopes=("decide",)),
        Token(name="carol", sha256=sha256("of-carol"), scopes=("decide", "read")),
        Token(name="ui", sha256=sha256("of-ui"), scopes=("codec",)),
        Token(name="dashboard", sha256=sha256("of-dashboard"), scopes=("read",)),
    ),
)


def catalog(policy: Policy) -> Catalog:
    """Return an agent that pays after approval."""
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", policy=policy, tools=[pay, look])])


@dataclass
class Site:
    """A gateway, the worker behind it, and a client."""

    rig: Rig
    http: httpx2.AsyncClient

    def path(self, thread: str, rest: str = "") -> str:
        """Return the path of a thread."""
        return f"/threads/{quote(thread, safe='')}{rest}"

    async def waiting(self, thread: str | None = None) -> tuple[Any, JSON]:
        """Start a run that waits for an approval, and return the request."""
        run = await self.rig.start(thread=thread)
        (request,) = (await status_of(run, "waiting_approval"))["pending"]
        return run, request

    async def decide(self, thread: str, body: JSON, token: str = "of-alice") -> httpx2.Response:
        """Send a decision."""
        return await self.http.post(self.path(thread, "/decisions"), json=body, headers=bearer(token))


def bearer(token: str = "of-alice") -> dict[str, str]:
    """Return the authorization header for a token."""
    return {"Authorization": f"Bearer {token}"}


def approval(request: JSON, **more: Any) -> JSON:
    """Return a decision that approves a request."""
    return {"decision": "approve", "request": request["request"], "digest": request["digest"], **more}


PAYS = steps([call("pay", amount=7), say("Paid.")])


@asynccontextmanager
async def site(
    rig: StartRig,
    policy: Policy = VOUCHED,
    script: Any = PAYS,
    *,
    key: str | None = GATEWAY_KEY,
    audience: str | None = AUDIENCE,
    **options: Any,
) -> AsyncIterator[Site]:
    """Run a gateway and a worker."""
    async with rig(catalog(policy), script) as worker:
        threads = Threads(worker.client, task_queue=worker.task_queue, answer_within=options.pop("answer_within", 60.0))
        app = build_app(threads, Callers(CALLERS, policy), key=key, audience=audience, **options)
        async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE, trust_env=False) as http:
            yield Site(worker, http)


async def test_a_token_decides_in_its_owners_name_with_the_gateways_signature(rig: StartRig) -> None:
    """With `signatures: required`, the run accepts a decision signed by the gateway, and records the principal."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting()
        answer = await gateway.decide(run.id, approval(request, reason="in the budget"))

        assert (answer.status_code, answer.json()) == (200, {"outcome": "accepted", "explanation": "", "by": "alice"})
        assert (await status_of(run, "completed"))["status"] == "completed"
        received = next(event for event in await events_of(run) if event.type == "decision_received")
        assert ("alice", "vouched", public_key(GATEWAY_KEY), "in the budget") == (
            received.by,
            received.proof,
            received.key,
            received.reason,
        )


@pytest.mark.extended
async def test_the_signature_covers_the_whole_decision(rig: StartRig) -> None:
    """The gateway's signature covers every field of a decision, for any numbers and characters."""
    async with site(rig, script=steps([call("pay", amount=7), call("pay", amount=10**15), say("Paid.")])) as gateway:
        run, request = await gateway.waiting()
        edited = approval(request, arguments={"amount": 10**15}, remember=True, reason="  größer ✓ ")
        answer = await gateway.decide(run.id, edited)

        assert answer.status_code == 200, answer.text
        assert (await status_of(run, "completed"))["status"] == "completed"


async def test_an_approver_signs_a_request_with_a_key(rig: StartRig) -> None:
    """A request signed by a key of the policy decides in its owner's name, without a token."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting("with a / slash")
        path, body = gateway.path(run.id, "/decisions"), json.dumps(approval(request)).encode()
        answer = await gateway.http.post(
            path, content=body, headers=sign_request(ALICE_KEY, "POST", path, body, audience=AUDIENCE)
        )

        assert (answer.status_code, answer.json()["by"]) == (200, "alice")


async def test_a_signed_request_counts_once(rig: StartRig) -> None:
    """A captured request cannot be replayed."""
    async with site(rig) as gateway:
        headers = sign_request(ALICE_KEY, "GET", "/threads/none", audience=AUDIENCE)
        first = await gateway.http.get("/threads/none", headers=headers)
        again = await gateway.http.get("/threads/none", headers=headers)

        assert (first.status_code, again.status_code) == (404, 401)
        assert "used before" in again.json()["detail"]


def _stale(headers: dict[str, str], seconds: int) -> dict[str, str]:
    """Return the same request, signed at another time."""
    timestamp = str(int(headers[TIMESTAMP]) + seconds)
    message = SignedParts(AUDIENCE, "GET", "/pending", digest_of(b"")).signed_bytes(timestamp, headers[NONCE])
    return {**headers, TIMESTAMP: timestamp, SIGNATURE: sign(ALICE_KEY, message)}


async def test_a_signature_is_valid_for_five_minutes(rig: StartRig) -> None:
    """A timestamp too far from the gateway's clock is rejected, in the past and in the future."""
    async with site(rig) as gateway:
        for seconds in (-301, 302):
            headers = _stale(sign_request(ALICE_KEY, "GET", "/pending", audience=AUDIENCE), seconds)
            answer = await gateway.http.get("/pending", headers=headers)
            assert (answer.status_code, "clock" in answer.json()["detail"]) == (401, True), seconds


@pytest.mark.slow
async def test_a_signature_covers_method_path_query_and_body(rig: StartRig) -> None:
    """A signature of one request is invalid for any other request, and so is one of an unknown key."""
    async with site(rig) as gateway:
        body = b'{"message": "hello"}'

        def signed(method: str = "GET", path: str = "/pending", key: str = ALICE_KEY) -> dict[str, str]:
            return sign_request(key, method, path, b"" if method == "GET" else body, audience=AUDIENCE)

        refused = [
            await gateway.http.get("/pending?a=1", headers=signed()),
            await gateway.http.get("/threads/x", headers=signed()),
            await gateway.http.post("/threads/x/messages", content=body, headers=signed(path="/threads/x/messages")),
            await gateway.http.post(
                "/threads/x/messages", content=body + b" ", headers=signed("POST", "/threads/x/messages")
            ),
            await gateway.http.get("/pending", headers=signed(key=STRANGERS_KEY)),
            await gateway.http.get("/pending", headers={**signed(), SIGNATURE: "x"}),
            await gateway.http.get("/pending", headers={SIGNATURE: "x"}),
        ]
        taken = await gateway.http.get("/pending?a=1", headers=signed(path="/pending?a=1"))

        assert [401] * len(refused) == [answer.status_code for answer in refused]
        assert taken.status_code == 200


async def test_a_body_cannot_claim_an_identity(rig: StartRig) -> None:
    """A field that claims an identity is rejected, and nothing is decided."""
    async with site(rig, TRUSTING) as gateway:
        run, request = await gateway.waiting()
        for claim in ("by", "signature", "right", "proof"):
            answer = await gateway.decide(run.id, approval(request, **{claim: "bob"}))

            assert answer.status_code == 422, claim
            assert claim in answer.json()["detail"]
            assert (await run.query("state"))["status"] == "waiting_approval"


async def test_a_decision_names_the_digest_of_its_request(rig: StartRig) -> None:
    """A decision without the digest is malformed, and one with another digest a conflict; neither decides anything."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting()
        without = {name: value for name, value in approval(request).items() if name != "digest"}
        answers = [
            await gateway.decide(run.id, without),
            await gateway.decide(run.id, approval(request) | {"digest": "0" * 64}),
        ]

        assert [answer.status_code for answer in answers] == [422, 409]
        assert answers[1].json()["outcome"] == "digest_mismatch"
        assert (await run.query("state"))["status"] == "waiting_approval"


@pytest.mark.extended
async def test_each_outcome_has_its_own_status(rig: StartRig) -> None:
    """The status alone tells the caller the outcome of a decision."""
    policy = VOUCHED.model_copy(update={"terms": Terms(quorum=2, by=("alice", "bob"))})
    async with site(rig, policy) as gateway:
        run, request = await gateway.waiting()
        answers = [
            await gateway.decide(run.id, approval(request), "of-carol"),
            await gateway.decide(run.id, approval(request) | {"request": "9"}),
            await gateway.decide(run.id, approval(request) | {"decision": "happened"}),
            await gateway.decide(run.id, approval(request, arguments={"amount": "much"})),
            await gateway.decide(run.id, approval(request)),
            await gateway.decide(run.id, approval(request)),
            await gateway.decide(run.id, approval(request), "of-bob"),
        ]
        await status_of(run, "completed")
        answers.append(await gateway.decide(run.id, approval(request), "of-bob"))

        expected = [
            (403, "not_entitled"),
            (404, "unknown_request"),
            (409, "wrong_kind"),
            (422, "malformed"),
            (202, "waiting_for_quorum"),
            (409, "duplicate"),
            (200, "accepted"),
            (409, "duplicate"),  # after the run's end, too: a client that lost the answer learns it
        ]
        assert expected == [(answer.status_code, answer.json()["outcome"]) for answer in answers]


@pytest.mark.slow
async def test_a_policy_may_reject_a_gateway_that_cannot_sign(rig: StartRig) -> None:
    """Without a key that the policy lists, the gateway vouches for nobody."""
    for key, outcome in ((None, "unsigned"), (STRANGERS_KEY, "bad_signature")):
        async with site(rig, key=key) as gateway:
            run, request = await gateway.waiting()
            answer = await gateway.decide(run.id, approval(request))

            assert (403, outcome) == (answer.status_code, answer.json()["outcome"])
            assert "gateway" in answer.json()["detail"]


@pytest.mark.extended
async def test_an_unlisted_gateway_key_decides_if_no_signature_is_required(rig: StartRig) -> None:
    """An unlisted key does no harm: the decision counts as an unsigned one in the caller's name."""
    taking = VOUCHED.model_copy(update={"signatures": "optional", "gateways": ()})
    async with site(rig, policy=taking, key=STRANGERS_KEY) as gateway:
        run, request = await gateway.waiting()
        answer = await gateway.decide(run.id, approval(request))
        assert (answer.status_code, answer.json()["outcome"]) in ((200, "accepted"), (202, "waiting_for_quorum"))


async def test_tokens_are_needed_and_have_scopes(rig: StartRig) -> None:
    """A missing or wrong token gets 401; one without the scope gets 403."""
    async with site(rig) as gateway:
        paths = ["/pending", "/threads/x", "/threads/x/pending", "/threads/x/events"]
        strangers = [await gateway.http.get(path, headers=headers) for path in paths for headers in ({}, bearer("x"))]
        posts = [await gateway.http.post(f"/threads/x/{what}", content=b"{") for what in ("decisions", "messages")]
        narrow = [await gateway.http.get(path, headers=bearer("of-bob")) for path in paths]
        reader = await gateway.decide("x", {}, "of-dashboard")

        assert {401} == {answer.status_code for answer in strangers + posts}
        assert {"Bearer"} == {answer.headers["WWW-Authenticate"] for answer in strangers}
        assert {403} == {answer.status_code for answer in [*narrow, reader]}


@pytest.mark.extended
async def test_any_thread_id_can_be_in_a_path(rig: StartRig) -> None:
    """A percent-encoded path segment is one thread id, with any characters."""
    async with site(rig) as gateway:
        for thread in ("a/b", "a%2Fb", "x/decisions", "ä ö?#&", "."):
            name = f"{thread}{uuid4().hex[:6]}"
            run, request = await gateway.waiting(name)
            state = await gateway.http.get(gateway.path(name), headers=bearer())
            pending = await gateway.http.get(gateway.path(name, "/pending"), headers=bearer())
            answer = await gateway.decide(run.id, approval(request))

            assert name == state.json()["thread"]
            assert [request["digest"]] == [each["digest"] for each in pending.json()["pending"]], name
            assert answer.status_code == 200, name


@pytest.mark.extended
async def test_an_unknown_thread_is_not_found(rig: StartRig) -> None:
    """A missing thread is a 404 for every caller on every route."""
    async with site(rig, answer_within=5.0) as gateway:
        for thread in ("nobody-knows-this", "a/b", "%FF", "%00", " ", "x" * 300, "\u202e", "..%2F.."):
            path = f"/threads/{quote(thread, safe='%')}"
            decision = {"decision": "approve", "request": "1", "digest": "0" * 64}
            answers = [
                *[await gateway.http.get(path + rest, headers=bearer()) for rest in ("", "/pending", "/events")],
                await gateway.http.post(f"{path}/decisions", json=decision, headers=bearer()),
                await gateway.http.post(f"{path}/messages", json={"message": "hello"}, headers=bearer()),
            ]

            assert [answer.status_code for answer in answers] == [404] * 5, thread
            assert all(answer.headers["Content-Type"] == "application/problem+json" for answer in answers)


@pytest.mark.extended
async def test_pending_lists_the_requests_of_all_threads(rig: StartRig) -> None:
    """Every open request is listed with the digest that a decision must name."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting()

        async def digests() -> list[str]:
            answer = await gateway.http.get("/pending", headers=bearer("of-dashboard"))
            return [each["digest"] for each in answer.json()["pending"] if each["thread"] == run.id]

        await eventually(digests, lambda found: found == [request["digest"]])


@pytest.mark.extended
async def test_a_message_reaches_the_agent_in_the_token_owners_name(rig: StartRig) -> None:
    """A message goes to the open run, and re-opens a closed thread."""
    async with site(rig, TRUSTING, steps([say("Hello."), say("Goodbye.")])) as gateway:
        run = await gateway.rig.start()
        await run.result()
        path = gateway.path(run.id, "/messages")
        answer = await gateway.http.post(path, json={"message": "And now?"}, headers=bearer())
        assert (answer.status_code, answer.json()["outcome"]) == (200, "reopened")
        latest = gateway.rig.client.get_workflow_handle(run.id)
        await latest.result()

        messages = [event for event in await events_of(latest) if event.type == "user_message_received"]
        assert [(event.content, event.by) for event in messages[-1:]] == [("And now?", "alice")]
        wrong: list[Any] = [{"message": " "}, {"message": "x", "by": "bob"}, {"message": ["x"]}, {}, [], "x"]
        for body in wrong:
            refused = await gateway.http.post(path, json=body, headers=bearer())
            assert refused.status_code == 422, body
        assert (await gateway.http.post(path, json={"message": "ü" * 120_000}, headers=bearer())).status_code == 413


@pytest.mark.extended
async def test_an_invalid_body_is_malformed(rig: StartRig) -> None:
    """An invalid body gets an error with the reason, and does no harm."""
    bodies = (
        b"",
        b"{",
        b"null",
        b'{"a": NaN}',
        b'"\\ud800"',
        b"[" * 100_000,
        b'{"arguments": {"a": 1e999}}',
        b"\xff\xfe",
        b'{"decision": "approve", "request": "1", "digest": "0", "arguments": ' + b'{"a":' * 150 + b"1" + b"}" * 151,
    )
    async with site(rig) as gateway:
        for body in bodies:
            answer = await gateway.http.post("/threads/x/decisions", content=body, headers=bearer())

            assert answer.status_code == 422, body
            assert "Traceback" not in answer.text


@pytest.mark.extended
async def test_a_body_has_a_limit(rig: StartRig) -> None:
    """A body over the limit is rejected, whether its length is declared or it arrives in endless chunks."""
    async with site(rig, body_bytes=10_000, body_seconds=5) as gateway:

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 1_000

        sized = await gateway.http.post("/threads/x/messages", content=b"x" * 10_001, headers=bearer())
        chunked = await gateway.http.post("/threads/x/messages", content=chunks(), headers=bearer())
        fits = await gateway.http.post("/threads/x/messages", content=b"x" * 10_000, headers=bearer())

        assert [answer.status_code for answer in (sized, chunked, fits)] == [413, 413, 422]


@pytest.mark.extended
async def test_a_slow_body_times_out(rig: StartRig) -> None:
    """A client that sends its body too slowly does not block the gateway."""
    async with site(rig, body_seconds=0.2) as gateway:
        port = gateway.http.base_url.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = "POST /threads/x/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer of-alice\r\n"
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()

        assert answer.startswith(b"HTTP/1.1 408")


async def _events(answer: httpx2.Response) -> AsyncIterator[tuple[str, int | None, JSON]]:
    """Parse server-sent events: name, id and content."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif line == "" and "event" in fields:
            yield fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])
            fields = {}


async def test_a_follower_gets_every_event_once_and_can_resume(rig: StartRig) -> None:
    """Events arrive live, each once; a client that reconnects with `Last-Event-ID` gets the rest."""
    async with site(rig) as gateway:
        run, request = await gateway.waiting()
        path = gateway.path(run.id, "/events")
        positions: list[int | None] = []
        async with gateway.http.stream("GET", path, headers=bearer()) as answer:
            assert "text/event-stream" in answer.headers["Content-Type"]
            async for name, position, _ in _events(answer):
                positions.append(position)
                if name == "approval_requested":
                    break
        again = {**bearer(), "Last-Event-ID": str(positions[-1])}
        async with gateway.http.stream("GET", path, headers=again) as answer:
            names = []
            assert (await gateway.decide(run.id, approval(request))).status_code == 200
            async for name, position, content in _events(answer):
                names.append(name)
                if position is not None:
                    positions.append(position)
                    assert (name, position) == (content["type"], content["position"])
        events = await events_of(run)

        assert [event.position for event in events] == positions
        assert names[-2:] == ["run_finished", "end"]
        over = {**bearer(), "Last-Event-ID": str(positions[-1])}
        assert (await gateway.http.get(path, headers=over)).status_code == 204
        for wrong in ("x", "-2", "9" * 40):
            assert (await gateway.http.get(path, headers={**bearer(), "Last-Event-ID": wrong})).status_code == 422


@pytest.mark.extended
async def test_followers_are_bounded_and_leave_no_trace(rig: StartRig) -> None:
    """A follower over the limit must retry later; one that leaves frees its slot; history records neither."""
    async with site(rig, followers=2) as gateway:
        run, request = await gateway.waiting()
        path = gateway.path(run.id, "/events")

        async def status() -> int:
            async with gateway.http.stream("GET", path, headers=bearer()) as answer:
                return answer.status_code

        async with (
            gateway.http.stream("GET", path, headers=bearer()) as one,
            gateway.http.stream("GET", path, headers=bearer()) as two,
        ):
            refused = await gateway.http.get(path, headers=bearer())
            assert [one.status_code, two.status_code, refused.status_code] == [200, 200, 503]
            assert "Retry-After" in refused.headers
            assert (await gateway.decide(run.id, approval(request))).status_code == 200
        await eventually(status, lambda answer: answer in (200, 204))
        events = (await run.fetch_history()).events
        assert sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in events) == 1


async def test_without_a_worker_nothing_is_decided_and_the_caller_may_retry(rig: StartRig) -> None:
    """Without a worker, a decision gets 503 with `Retry-After`, and no signal is sent; history serves the state."""
    async with site(rig, answer_within=0.5) as gateway:
        thread = f"idle-{uuid4().hex[:8]}"
        threads = Threads(gateway.rig.client, task_queue="nobody-listens-here")
        await threads.start("wait", thread=thread)
        decision = {"decision": "approve", "request": "1", "digest": "0" * 64}
        refused = await gateway.decide(thread, decision)
        read = [await gateway.http.get(gateway.path(thread, rest), headers=bearer()) for rest in ("", "/pending")]
        history = await gateway.rig.client.get_workflow_handle(thread).fetch_history()
        await gateway.rig.client.get_workflow_handle(thread).terminate()

        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        assert [answer.status_code for answer in read] == [200, 200]
        assert (read[0].json()["status"], read[1].json()["pending"]) == ("running", [])
        assert not [event for event in history.events if event.HasField("workflow_execution_signaled_event_attributes")]


async def test_health_and_openapi_need_no_token(rig: StartRig) -> None:
    """Load balancers and tools can read both without a token."""
    async with site(rig) as gateway:
        health = await gateway.http.get("/health")
        described = (await gateway.http.get("/openapi.json")).json()

        assert (health.status_code, health.json()) == (200, {"temporal": "ok", "record": "none"})
        assert {"decision", "request", "digest"} == set(
            described["paths"]["/threads/{thread}/decisions"]["post"]["requestBody"]["content"]["application/json"][
                "schema"
            ]["required"]
        )
        nothing = await gateway.http.get("/nothing")
        assert (nothing.status_code, nothing.headers["Content-Type"]) == (404, "application/problem+json")
        assert (await gateway.http.delete("/pending", headers=bearer())).status_code == 405


async def test_a_button_in_slack_decides_in_its_users_name(rig: StartRig) -> None:
    """Slack's signature proves who pressed the button; a wrong or stale one, or an unknown user, decides nothing."""
    secret = "of the Slack app"
    async with site(rig, slack_secret=secret) as gateway:
        run, request = await gateway.waiting()

        async def press(user: str, signed_with: str = secret, late: int = 0) -> int:
            value = json.dumps({"thread": run.id, **approval(request)})
            payload = {"type": "block_actions", "user": {"id": user}, "actions": [{"value": value}]}
            body = urlencode({"payload": json.dumps(payload)}).encode()
            timestamp = str(int(time.time()) - late)
            headers = {slack.TIMESTAMP: timestamp, slack.SIGNATURE: slack.slack_signature(signed_with, timestamp, body)}
            return (await gateway.http.post("/slack/actions", content=body, headers=headers)).status_code

        refused = [await press("U02ABCDEF", "x"), await press("U02ABCDEF", late=400), await press("U0STRANGER")]
        taken = [await press("U02ABCDEF"), await press("U02ABCDEF")]

        assert (refused, taken) == ([401, 401, 403], [200, 409])
        received = next(event for event in await events_of(run) if event.type == "decision_received")
        assert (received.by, received.proof) == ("alice", "vouched")


@pytest.mark.extended
async def test_text_beside_a_button_in_slack_is_feedback(rig: StartRig) -> None:
    """The agent reads it with the approved call's result; the gateway vouches for it. Malformed text is refused."""
    secret = "of the Slack app"
    async with site(rig, slack_secret=secret) as gateway:
        run, request = await gateway.waiting()

        async def press(state: Any) -> int:
            value = json.dumps({"thread": run.id, **approval(request)})
            pressed = {"user": {"id": "U02ABCDEF"}, "actions": [{"value": value}], "state": state}
            body = urlencode({"payload": json.dumps(pressed)}).encode()
            timestamp = str(int(time.time()))
            headers = {slack.TIMESTAMP: timestamp, slack.SIGNATURE: slack.slack_signature(secret, timestamp, body)}
            return (await gateway.http.post("/slack/actions", content=body, headers=headers)).status_code

        def typed(text: Any) -> Any:
            return {"values": {FEEDBACK_INPUT: {FEEDBACK_INPUT: {"value": text}}}}

        refused = [await press(typed("x" * 2_001)), await press("state"), await press({"values": [1]})]
        assert (refused, await press(typed(" Once only. "))) == ([422, 422, 422], 200)
        received = next(event for event in await events_of(run) if event.type == "decision_received")
        assert (received.say, received.reason, received.proof) == ("Once only.", "", "vouched")


async def test_the_web_ui_may_decrypt_with_its_own_token(rig: StartRig) -> None:
    """`/codec` has its own scope, accepts only the Web UI's origin, and longer bodies than the other routes."""
    codec = EncryptionCodec(parse_keys(f"one:{base64.b64encode(bytes(32)).decode()}"))
    (sealed,) = await codec.encode([Payload(metadata={"encoding": b"json/plain"}, data=b'"hello"' + b" " * 300_000)])
    body = MessageToJson(Payloads(payloads=[sealed]))
    async with site(rig, codec=codec, ui="http://ui.example:8233/base") as gateway:
        opened = await gateway.http.post("/codec/decode", content=body, headers=bearer("of-ui"))
        closed = [await gateway.http.post("/codec/decode", content=body, headers=h) for h in ({}, bearer())]
        preflight = await gateway.http.options("/codec/decode", headers={"Origin": "http://ui.example:8233"})

        assert opened.status_code == 200
        assert base64.b64decode(opened.json()["payloads"][0]["data"]).startswith(b'"hello"')
        assert opened.headers["Access-Control-Allow-Origin"] == "http://ui.example:8233"
        assert [answer.status_code for answer in closed] == [401, 403]
        assert preflight.status_code == 204

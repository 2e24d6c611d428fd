"""Threads as AG-UI and as UI messages of the AI SDK, over a real gateway."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Approver, Gateway
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import Decision
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.testing import call, say, steps
from tests.support.rig import PATIENCE, Rig, StartRig, events_of
from tests.support.serving import served, sha256
from tests.support.streamed import Seen, streamed

JSON = dict[str, Any]
ALICE_KEY, GATEWAY_KEY, STRANGERS_KEY = (encode_key(bytes([n]) * 32) for n in (1, 2, 3))
ALL: tuple[Scope, ...] = ("start", "say", "decide", "read", "transcript")
CALLERS = CallersFile(tokens=(Token(name="alice", sha256=sha256("of-alice"), scopes=ALL),))
HEADERS = {"Authorization": "Bearer of-alice"}


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def catalog(policy: Policy | None = None) -> Catalog:
    """Return an agent that pays after approval, and waits for messages."""
    policy = policy or Policy(rules=(allow("look"),))
    return Catalog(
        agents=[Agent(name="clerk", instructions="Work.", policy=policy, tools=[pay], limits=Limits(idle_limit=3_600))]
    )


@asynccontextmanager
async def gateway_of(worker: Rig, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway."""
    threads = Threads(worker.client, task_queue=worker.task_queue)
    app = build_app(threads, Callers(CALLERS), **options)
    async with (
        served(app) as url,
        httpx2.AsyncClient(base_url=url, timeout=2 * PATIENCE, trust_env=False, headers=HEADERS) as http,
    ):
        yield http


async def events_in(answer: Any) -> AsyncIterator[tuple[str, JSON]]:
    """Yield the events of a stream, each with its id."""
    id = ""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        id = value if name == "id" else id
        if name == "data" and value != "[DONE]":
            yield id, json.loads(value)


async def posted(http: httpx2.AsyncClient, path: str, body: JSON) -> list[JSON]:
    """Post a body, and return the events of the stream that follows."""
    async with http.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for _, event in events_in(answer)]


def run_input(thread: str, *messages: JSON, resume: list[JSON] | None = None) -> JSON:
    """Return what a client of AG-UI posts."""
    more = {"resume": resume} if resume else {}
    return {"threadId": thread, "runId": "run-1", "messages": list(messages), "tools": [], "context": [], **more}


def user(text: str, id: str = "m1") -> JSON:
    """Return a person's message."""
    return {"id": id, "role": "user", "content": text}


async def test_a_client_of_ag_ui_starts_decides_and_continues(rig: StartRig) -> None:
    """The first message starts the thread, once; an open request is an interrupt, whose answer is a decision like any
    other; the next message continues the thread, and counts once.
    """
    script = steps([call("pay", cents=7), say("Paid."), say("You are welcome.")])
    async with rig(catalog(), script) as worker, gateway_of(worker) as http:
        thread = f"feed-{uuid4().hex[:8]}"
        path = f"/threads/{thread}/ag-ui"
        first = run_input(thread, user("Pay 7 cents."))
        events = await posted(http, path, first)
        assert [each["type"] for each in events] == [
            "RUN_STARTED",
            "CUSTOM",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "CUSTOM",
            "RUN_FINISHED",
        ]
        assert await posted(http, path, first) == events
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        request = interrupt["metadata"]["holdfast"]
        assert interrupt["id"] == f"{request['request']}.{request['digest']}"

        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"decision": "approve"}}]
        events = await posted(http, path, run_input(thread, user("Pay 7 cents."), resume=resume))
        kinds = [each["type"] for each in events]
        assert (kinds[0], kinds[1], kinds[-1]) == ("RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED")
        assert (events[1]["content"], events[-1]["outcome"]) == ("paid 7", {"type": "success"})
        assert events[-1]["result"] == "Paid."

        thanks = run_input(thread, user("Pay 7 cents."), user("Thanks!", "m2"))
        events = await posted(http, path, thanks)
        assert events[-1]["result"] == "You are welcome."
        assert await posted(http, path, thanks) == events
        run = worker.client.get_workflow_handle(thread)
        recorded = await events_of(run)
        messages = [each.content for each in recorded if each.type == "user_message_received"]
        assert messages == ["Pay 7 cents.", "Thanks!"]
        decision = next(each for each in recorded if each.type == "decision_received")
        assert (decision.by, decision.digest_given) == ("alice", request["digest"])
        await run.cancel()


async def test_a_signature_in_the_metadata_is_the_approvers_own(rig: StartRig) -> None:
    """A run that requires signatures counts the one that the client made, and the gateway adds none."""
    policy = Policy(
        approvers=(Approver(name="alice", keys=(public_key(ALICE_KEY),)),),
        gateways=(Gateway(name="web", keys=(public_key(GATEWAY_KEY),)),),
        signatures="required",
    )
    script = steps([call("pay", cents=7), say("Paid.")])
    async with rig(catalog(policy), script) as worker, gateway_of(worker, key=GATEWAY_KEY) as http:
        thread = f"feed-{uuid4().hex[:8]}"
        path = f"/threads/{thread}/ag-ui"
        (interrupt,) = (await posted(http, path, run_input(thread, user("Pay."))))[-1]["outcome"]["interrupts"]
        request, _, digest = interrupt["id"].rpartition(".")
        decision = Decision(decision="approve", request=request, digest=digest, by="alice")
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        forged = {**answer, "metadata": {"signature": sign(STRANGERS_KEY, decision.signed_bytes(thread))}}
        refused = await http.post(path, json=run_input(thread, resume=[forged]))
        assert (refused.status_code, refused.json()["outcome"]) == (403, "bad_signature")
        signed = {**answer, "metadata": {"signature": sign(ALICE_KEY, decision.signed_bytes(thread))}}
        await posted(http, path, run_input(thread, resume=[signed]))
        run = worker.client.get_workflow_handle(thread)
        received = [each for each in await events_of(run) if each.type == "decision_received"]
        assert [(each.outcome, each.proof) for each in received] == [("accepted", "signed")]
        await run.cancel()


async def test_a_chat_of_the_ai_sdk_denies_and_reconnects(rig: StartRig) -> None:
    """An approval's response in the agent's message is a decision; a chat that reconnects gets its last turn from the
    beginning, and 204 if the agent waits for a person.
    """
    script = steps([call("pay", cents=7), say("Not paid.")])
    async with rig(catalog(), script) as worker, gateway_of(worker) as http:
        thread = f"feed-{uuid4().hex[:8]}"
        path = f"/threads/{thread}/ui-messages"
        asks = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Pay."}]}
        body = {"id": thread, "messages": [asks], "trigger": "submit-message"}
        events = await posted(http, path, body)
        (approval,) = [each for each in events if each["type"] == "tool-approval-request"]
        assert events[-1]["finishReason"] == "tool-calls"
        assert (await http.get(path)).status_code == 204

        given = {"id": approval["approvalId"], "approved": False, "reason": "too much"}
        part = {"type": "dynamic-tool", "toolCallId": "call-1", "state": "approval-responded", "approval": given}
        answers = {"id": "m2", "role": "assistant", "parts": [part]}
        events = await posted(http, path, {**body, "messages": [asks, answers]})
        kinds = [each["type"] for each in events]
        assert kinds == ["start", "tool-output-denied", "text-start", "text-delta", "text-end", "finish"]
        run = worker.client.get_workflow_handle(thread)
        decision = next(each for each in await events_of(run) if each.type == "decision_received")
        assert (decision.decision, decision.by, decision.reason) == ("deny", "alice", "too much")
        await run.cancel()


@pytest.mark.extended
async def test_a_feed_that_is_cut_while_the_agent_writes_continues(rig: StartRig) -> None:
    """Each connection brings one event of a reply that is being written, and the next continues after it."""
    seen, text = Seen(), "These words come one by one."
    async with (
        streamed(rig, catalog(), steps([seen.reply(say(text))])) as (worker, hub),
        gateway_of(worker, hub=hub) as http,
    ):
        run = await worker.start(thread=f"feed-{uuid4().hex[:8]}")
        path, last, events = f"/threads/{run.id}/ag-ui", "", list[tuple[str, JSON]]()
        while not (events and events[-1][1]["type"] == "RUN_FINISHED"):
            async with http.stream("GET", path, headers={"Last-Event-ID": last} if last else {}) as answer:
                async for last, event in events_in(answer):
                    events.append((last, event))
                    seen.add("", "text", event.get("delta", ""))
                    break
        ids = [id for id, _ in events]
        pieces = [each["delta"] for _, each in events if each["type"] == "TEXT_MESSAGE_CONTENT"]
        assert ("".join(pieces), len(set(ids))) == (text, len(ids))
        assert (await http.get(path, headers={"Last-Event-ID": last})).status_code == 204
        await run.cancel()

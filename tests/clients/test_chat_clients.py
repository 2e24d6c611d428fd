"""Published clients of AG-UI and of Vercel's AI SDK: `make test-clients` installs them; without, these are skipped."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Approver, Gateway
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.testing import Reply, call, say, steps, together
from tests.support.rig import PATIENCE, Rig, StartRig, events_of
from tests.support.serving import served, sha256
from tests.support.streamed import streamed

HERE = Path(__file__).parent
ALICE, GATEWAY = bytes([1]) * 32, bytes([2]) * 32
ALL: tuple[Scope, ...] = ("start", "say", "decide", "read", "transcript")
CALLERS = CallersFile(tokens=(Token(name="alice", sha256=sha256("of-alice"), scopes=ALL),))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (HERE / "node_modules" / "ai").is_dir(),
        reason="the clients are not installed: `make test-clients` installs and runs them",
    ),
]


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def pays(cents: int) -> Reply:
    """Return a reply with a text and a call."""
    return together(call("pay", cents=cents), text="I will pay.")


@asynccontextmanager
async def site(rig: StartRig, policy: Policy, *replies: Reply) -> AsyncIterator[tuple[Rig, str]]:
    """Run a worker that streams, and a gateway; yield the gateway's URL."""
    agent = Agent(name="clerk", instructions="Work.", policy=policy, tools=[pay], limits=Limits(idle_limit=3_600))
    async with streamed(rig, Catalog(agents=[agent]), steps([*replies])) as (worker, hub):
        app = build_app(
            Threads(worker.client, task_queue=worker.task_queue), Callers(CALLERS), hub=hub, key=encode_key(GATEWAY)
        )
        async with served(app) as url:
            yield worker, url


async def run_client(program: str, *arguments: str) -> None:
    """Run a program of a client, and fail with its output if it fails."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(HERE / program), *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, output.decode()) == (0, "ok\n"), output.decode()


async def test_a_client_of_ag_ui_answers_an_interrupt_with_a_signature(rig: StartRig) -> None:
    """`@ag-ui/client` accepts every event, answers an interrupt with the approver's own signature, continues the thread
    over connections that are cut after each event, and reads the whole thread into the same messages.
    """
    policy = Policy(
        rules=(allow("look"),),
        approvers=(Approver(name="alice", keys=(public_key(encode_key(ALICE)),)),),
        gateways=(Gateway(name="web", keys=(public_key(encode_key(GATEWAY)),)),),
        signatures="required",
    )
    replies = pays(7), say("Paid 7 cents."), say("You are welcome.")
    async with site(rig, policy, *replies) as (worker, url):
        thread = f"chat-{uuid4().hex[:8]}"
        await run_client("ag_ui.mjs", url, "of-alice", thread, ALICE.hex())
        run = worker.client.get_workflow_handle(thread)
        recorded = await events_of(run)
        decisions = [each for each in recorded if each.type == "decision_received"]
        assert [(each.outcome, each.by, each.proof) for each in decisions if each.outcome == "accepted"] == [
            ("accepted", "alice", "signed")
        ]
        messages = [each.content for each in recorded if each.type == "user_message_received"]
        assert messages == ["Pay 7 cents.", "Thanks!"]
        await run.cancel()


async def test_a_chat_of_the_ai_sdk_approves_denies_and_resumes(rig: StartRig) -> None:
    """The chat behind `useChat` shows text and calls, sends an approval and a denial by itself, reads a turn over
    connections that are cut after each event, and keeps messages that are valid.
    """
    replies = pays(7), say("Paid 7 cents."), call("pay", cents=8), say("Not paid."), say("You are welcome.")
    async with site(rig, Policy(rules=(allow("look"),)), *replies) as (worker, url):
        thread = f"chat-{uuid4().hex[:8]}"
        await run_client("ai_sdk.mjs", url, "of-alice", thread)
        run = worker.client.get_workflow_handle(thread)
        decisions = [each for each in await events_of(run) if each.type == "decision_received"]
        assert [(each.decision, each.by, each.reason) for each in decisions] == [
            ("approve", "alice", "agreed"),
            ("deny", "alice", "too much"),
        ]
        await run.cancel()

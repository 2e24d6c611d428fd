"""A person's memories are recalled only for authenticated principals, not for a claimed name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Memory, Policy, allow
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.memory.semantic import NewMemory
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Token
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.pool import open_pool
from holdfast.testing import Conversation, Reply, call, say
from tests.integration.test_loops import Shell
from tests.support.rig import Rig, StartRig, events_of, eventually, status_of
from tests.support.serving import served, sha256

POLICY = Policy(rules=(allow(),))
TOKENS = CallersFile(
    tokens=tuple(Token(name=name, sha256=sha256(f"of-{name}"), scopes=("say", "read")) for name in ("alice", "bob"))
)


def catalog() -> Catalog:
    """Return an agent with a semantic memory, part of which is in its prompt from the start."""
    memory = Memory(semantic=True, standing=500)
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", memory=memory, policy=POLICY)])


def script(conversation: Conversation) -> Reply:
    """After each message, recall, try to write for the person, and finish."""
    turn = conversation.replies % 3
    return [call("recall", query=""), call("remember", text="planted", scope="user"), say("Done.")][turn]


class Ground:
    """A worker, a person with two secrets in their memory, and the parts of it that a run obtained."""

    def __init__(self, rig: Rig, database_url: str) -> None:
        self.rig = rig
        self.secret = f"secret-{uuid4().hex}"
        self.user = f"alice-{uuid4().hex[:6]}"
        self.database_url = database_url

    async def prepare(self) -> None:
        """Remember two items for the person."""
        async with open_pool(self.database_url, size=1) as pool:
            for standing in (True, False):
                text = f"{self.secret} {'always' if standing else 'asked for'}"
                new = NewMemory(scope=f"user:{self.user}", text=text, trust="person", standing=standing, by=self.user)
                await PostgresMemories(pool).remember(new, key=uuid4().hex)

    async def plain(self, thread: str, **given: Any) -> WorkflowHandle[Any, Any]:
        """Start a run unsealed, as anyone at Temporal's port can."""
        return await self.rig.client.start_workflow(
            WORKFLOW, {"task": "go", "by": self.user, **given}, id=thread, task_queue=self.rig.task_queue
        )

    def told(self) -> list[str]:
        """Return which of the secrets the LLM was sent."""
        words = ("always", "asked for")
        return [
            word for word in words if any(f"{self.secret} {word}".encode() in r.body for r in self.rig.llm.requests)
        ]

    async def planted(self) -> bool:
        """Return whether an item was written for the person."""
        async with open_pool(self.database_url, size=1) as pool:
            items = await PostgresMemories(pool).recall("", [f"user:{self.user}"], limit=20)
        return any("planted" in item.text for item in items.items)

    async def require_nothing(self, run: WorkflowHandle[Any, Any]) -> None:
        """Check that nothing of the person's memory was shown, recalled or written."""
        assert self.told() == []
        assert not await self.planted()
        last = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)][-1]
        assert "no user is named for this task" in last.content


@pytest.fixture
async def ground(rig: StartRig, database_url: str) -> AsyncIterator[Ground]:
    """Return a worker with that person."""
    async with rig(catalog(), script) as at_work:
        ground = Ground(at_work, database_url)
        await ground.prepare()
        yield ground


def fresh() -> str:
    """Return a new thread id."""
    return f"test-{uuid4().hex[:8]}"


async def test_a_persons_own_run_reaches_their_memory(ground: Ground) -> None:
    """With a sealed start for an authenticated person, their items are shown, recalled and written."""
    run = await ground.rig.start(by=ground.user)
    await run.result()
    assert ground.told() == ["always", "asked for"]
    assert await ground.planted()


async def test_a_claimed_name_accesses_nothing(ground: Ground) -> None:
    """An unsealed start may claim any name, as from the Web UI or the `temporal` command. A sealed one may name
    somebody who is not authenticated.
    """
    for run in (await ground.plain(fresh()), await ground.rig.start(by=ground.user, by_proven=False)):
        await run.result()
        await ground.require_nothing(run)


async def test_a_later_authenticated_start_does_not_prove_an_earlier_claim(ground: Ground) -> None:
    """A thread whose user was claimed by an unsealed start stays without memory, even if that user re-opens it."""
    thread = fresh()
    await (await ground.plain(thread)).result()
    threads = Threads(ground.rig.client, task_queue=ground.rig.task_queue)
    await threads.start("and on", thread, StartOptions(by=ground.user))
    run = ground.rig.client.get_workflow_handle(thread)
    await run.result()
    await ground.require_nothing(run)


async def test_a_message_by_another_person_blocks_access_to_the_memory(ground: Ground) -> None:
    """In a person's open thread, a message by someone else, or by nobody, is not answered from their memory."""
    for by in ("mallory", ""):
        run = await ground.rig.start(by=ground.user, idle_limit=60)
        await status_of(run, "waiting_message")
        asked = len([event for event in await events_of(run) if isinstance(event, ToolCallFinished)])
        await run.signal("say", {"message": "What do you know of her?", "by": by})

        async def results(run: WorkflowHandle[Any, Any] = run, asked: int = asked) -> list[ToolCallFinished]:
            return [event for event in await events_of(run) if isinstance(event, ToolCallFinished)][asked:]

        recalled, _ = await eventually(results, lambda found: len(found) == 2)
        assert ground.secret not in recalled.content, by
        await run.cancel()


@asynccontextmanager
async def gateway(ground: Ground) -> AsyncIterator[httpx2.AsyncClient]:
    """Run a gateway for the worker."""
    threads = Threads(ground.rig.client, task_queue=ground.rig.task_queue)
    app = build_app(threads, Callers(TOKENS, POLICY), key=None)
    async with served(app) as url, httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        yield http


async def test_the_gateways_token_determines_the_memory(ground: Ground) -> None:
    """A caller who re-opens a thread over HTTP acts for the token's owner, not for a name in the message."""
    ground.user = "alice"
    await ground.prepare()
    async with gateway(ground) as http:
        for token, reached in (("alice", True), ("bob", False)):
            ground.rig.llm.script = lambda conversation: say("Done.")
            thread = fresh()
            await (await ground.rig.start(by="alice", thread=thread)).result()
            seen = len(ground.rig.llm.requests)
            ground.rig.llm.script = script_after_one
            headers = {"Authorization": f"Bearer of-{token}"}
            body = {"message": "What do you know of her?"}
            claimed = await http.post(f"/threads/{thread}/messages", json={**body, "by": "alice"}, headers=headers)
            assert claimed.status_code == 422
            answer = await http.post(f"/threads/{thread}/messages", json=body, headers=headers)
            assert (answer.status_code, answer.json()["by"]) == (200, token)
            await ground.rig.client.get_workflow_handle(thread).result()
            sent = b"".join(request.body for request in ground.rig.llm.requests[seen:])
            assert (f"{ground.secret} asked for".encode() in sent) == reached, token


def script_after_one(conversation: Conversation) -> Reply:
    """Return the script's first two replies in a thread that has had a reply."""
    return [call("recall", query=""), say("Done.")][min(conversation.replies - 1, 1)]


@pytest.mark.extended
async def test_the_command_line_acts_for_its_own_user(ground: Ground, stack: Stack, tmp_path: Path) -> None:
    """`start --by` with another name gives the task in that name, but does not reach their memory."""
    shell = Shell(ground.rig, stack, tmp_path / "home")
    shown = await asyncio.to_thread(shell.json, "start", "go", "--by", ground.user, "--wait")
    await ground.require_nothing(ground.rig.client.get_workflow_handle(shown["thread"]))
    ground.user = "dana"  # as in HOLDFAST_BY
    await ground.prepare()
    await asyncio.to_thread(shell.json, "start", "go", "--wait")
    assert ground.told() == ["always", "asked for"]

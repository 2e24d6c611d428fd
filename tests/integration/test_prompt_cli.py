"""`starter.py prompt` shows exactly the request that the LLM then receives."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Catalog, Limits, Memory, Skill, tool
from holdfast.config.stack_file import Stack
from holdfast.core.memory.semantic import NewMemory
from holdfast.core.run.rules.compaction import INSTRUCTION
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.pool import open_pool
from holdfast.testing import Conversation, Reply, call, fail, say, steps
from tests.support.forked import run
from tests.support.rig import Rig, StartRig, approve, environ_of, eventually, status_of

TIERS = ["instructions", "tools", "skills", "strategies", "standing", "files", "transcript"]


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def publish(version: str) -> str:
    """Publish a version."""
    return f"published {version}"


def catalog(**agent: Any) -> Catalog:
    """Return one agent with memory of every kind."""
    memory = Memory(strategies=200, standing=200, files=400)
    notes = Skill("notes", "For notes.", {"SKILL.md": b"---\nname: notes\ndescription: For notes.\n---\nBriefly."})
    options = {"name": "clerk", "instructions": "Work.", "memory": memory, **agent}
    return Catalog(agents=[Agent(**options, tools=[look, publish])], skills=[notes])


class Starter:
    """Runs `starter.py prompt` in a separate process, against the session's servers."""

    def __init__(self, stack: Stack, home: Path) -> None:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
        ours = {**environ_of(stack), "DATABASE_URL": stack.database_url}
        self._environ = {**outside, **ours, "HOLDFAST_HOME": str(home), "HOLDFAST_ANSWER_SECONDS": "4"}

    async def __call__(self, thread: str, *options: str) -> tuple[int, bytes, str]:
        """Return exit code, stdout and stderr."""
        done = await asyncio.to_thread(run, "starter", ["prompt", thread, *options], environ=self._environ)
        return done.code, done.out, done.err.decode()

    async def raw(self, thread: str) -> bytes:
        """Return the body of the request."""
        code, out, err = await self(thread, "--raw")
        assert code == 0, err
        assert out.endswith(b"\n")
        return out[:-1]

    async def view(self, thread: str) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        code, out, err = await self(thread, "--json")
        assert code == 0, err
        view: dict[str, Any] = json.loads(out)
        return view


@pytest.fixture
def prompt(stack: Stack, tmp_path: Path) -> Starter:
    """Return the command."""
    return Starter(stack, tmp_path / "home")


async def furnish(r: Rig, database_url: str) -> None:
    """Write files, a strategy and a standing memory, with characters that need escaping."""
    (r.workspace / ".agents").mkdir()
    (r.workspace / ".agents" / "STRATEGIES.md").write_text("Test before you push: café \x7f.\n")
    (r.workspace / "TASKS.md").write_text("- [ ] publish\n")
    approve(r.workspace)
    async with open_pool(database_url, size=1) as pool:
        new = NewMemory(scope="agent:clerk", text=f"Be brief, {r.task_queue}.", trust="person", standing=True)
        await PostgresMemories(pool).remember(new, key=r.task_queue)


async def test_the_raw_prompt_is_what_the_llm_then_receives(rig: StartRig, prompt: Starter, database_url: str) -> None:
    """While a run waits, `--raw` prints the body of the next request, and `--json` its parts."""
    begun = [call("look", at="a\n😀"), call("look", at="b")]
    async with rig(catalog(), steps([*begun, fail(401, "wrong key")])) as r:
        await furnish(r, database_url)
        run = await r.start("publish", by="alice")
        await status_of(run, "blocked")
        body, view = await prompt.raw(run.id), await prompt.view(run.id)
        sent = len(r.llm.requests)
        r.llm.script = steps([*begun, say("done")])
        await run.signal("retry", {"by": "alice"})
        await run.result()
        assert r.llm.requests[sent].body == body
        assert (view["bytes"], view["status"], view["compactions"]) == (len(body), "blocked", 0)
        assert (view["tokens"], view["budget"]) == (-(-len(body) // 4), 100_000)
        assert [tier["tier"] for tier in view["tiers"]] == TIERS
        tiers = {tier["tier"]: tier for tier in view["tiers"]}
        assert tiers["instructions"]["text"] == "Work."
        assert "- notes: For notes." in tiers["skills"]["text"]
        assert f"Be brief, {r.task_queue}." in tiers["standing"]["text"]
        assert "> - [ ] publish" in tiers["files"]["text"]
        assert tiers["files"]["budget"] == 400
        assert 0 < tiers["files"]["share"] < 1
        assert view["messages"] == len(json.loads(body)["messages"]) - 1
        assert view["provider"]["prompt_tokens"] > 0
        assert [each["kind"] for each in view["waits"]] == ["retry"]


@pytest.mark.extended
async def test_queued_content_is_shown_before_it_is_sent(rig: StartRig, prompt: Starter) -> None:
    """A call that waits for approval and a queued message are listed; neither is in the request yet."""
    async with rig(catalog(), steps([call("publish", version="1.2"), say("done")])) as r:
        run = await r.start("publish")
        await status_of(run, "waiting_approval")
        await run.signal("say", {"message": "and\x1b[2J hurry", "by": "bob"})
        view = await eventually(lambda: prompt.view(run.id), lambda view: len(view["waits"]) == 2)
        code, out, err = await prompt(run.id)
        await run.signal("approve", {"request": "1", "by": "alice"})
        await run.result()
        result, message = view["waits"]
        assert (result["kind"], result["text"]) == ("result", 'publish(version="1.2")')
        assert (message["kind"], message["by"]) == ("message", "bob")
        assert "hurry" not in view["tiers"][-1]["text"]
        assert (code, err) == (0, "")
        screen = out.decode()
        assert "\x1b" not in screen
        assert "  a queued message: and\\x1b[2J hurry\n" in screen
        assert "transcript" in screen


@pytest.mark.extended
async def test_a_closed_thread_shows_its_next_prompt(rig: StartRig, prompt: Starter, database_url: str) -> None:
    """After a compaction, a closed run's prompt is its last request and the answer, for the recorded agent."""

    def script(conversation: Conversation) -> Reply:
        if conversation.last_user_message == INSTRUCTION:
            return say("summary")
        return say("done") if "was compacted" in json.dumps(conversation.messages) else call("look", at="x" * 3_000)

    async with rig(catalog(limits=Limits(compaction_tokens=600)), script) as r:
        await furnish(r, database_url)
        run = await r.start("publish", by="alice")
        await run.result()
        last = r.llm.requests[-1].body
        body, view = await prompt.raw(run.id), await prompt.view(run.id)
        copied = 0
        while lines := await r.threads.read(run.id, copied):
            await r.threads.append(f"copy-{run.id}", copied, lines)
            copied += len(lines)
    again = await prompt.raw(run.id)
    assert body.startswith(last[:-2])
    assert json.loads(body)["messages"][-1] == {"role": "assistant", "content": "done"}
    assert again == body, "a closed thread needs no worker"
    code, recorded, err = await prompt(f"copy-{run.id}", "--raw")
    assert (code, recorded[:-1]) == (0, body), "nor does one that Temporal has forgotten"
    assert "this is from its permanent record" in err
    tiers = {tier["tier"]: tier for tier in view["tiers"]}
    assert (view["status"], view["compactions"]) == ("completed", 1)
    assert f"Be brief, {r.task_queue}." in tiers["standing"]["text"]
    assert tiers["files"]["text"] == ""
    assert [each["kind"] for each in view["waits"]] == ["say"]


@pytest.mark.extended
async def test_a_compaction_that_is_due_is_the_next_request(rig: StartRig, prompt: Starter) -> None:
    """If a context compaction is due, the prompt is its request, with the instruction at the end."""

    def script(conversation: Conversation) -> Reply:
        if conversation.last_user_message == INSTRUCTION:
            return fail(503, "overloaded")
        return call("look", at="x" * 3_000)

    async with rig(catalog(limits=Limits(compaction_tokens=600)), script) as r:
        run = await r.start("publish")
        asked = lambda: asyncio.sleep(0, b"".join(request.body for request in r.llm.requests[-1:]))  # noqa: E731
        await eventually(asked, lambda last: INSTRUCTION.encode() in last)
        body, view = await prompt.raw(run.id), await prompt.view(run.id)
        assert view["compacting"]
        assert body == r.llm.requests[-1].body
        await run.terminate()


@pytest.mark.extended
async def test_a_thread_without_a_prompt_is_an_error(prompt: Starter, rig: StartRig) -> None:
    """An unknown thread, or one that no worker has loaded, is a clear error with the right exit code."""
    async with rig(catalog(), steps([])) as r:
        code, out, err = await prompt("nowhere")
        assert (code, out) == (3, b"")
        assert "there is no thread 'nowhere'" in err
        run = await r.start("   ")
        await status_of(run, "failed")
        code, out, err = await prompt(run.id, "--raw")
        assert (code, out) == (5, b"")
        assert "has no prompt yet: no worker has loaded its agent" in err

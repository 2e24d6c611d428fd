"""The end of a run on a real server: progress.txt, and the LLM's learnings."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client

from holdfast import Agent, Catalog, Memory, Policy, allow, tool
from holdfast.core.log.events import ToolCallFinished, ToolCallRequested
from holdfast.core.memory.progress import parse_current, parse_entries
from holdfast.core.memory.progress_entries import Current
from holdfast.storage.memories import PostgresMemories
from holdfast.testing import Conversation, Reply, call, fail, say, steps
from holdfast.workspace.memory.tools import memory_tools
from tests.replay.scenarios import CATALOG, SCENARIOS, learnt, not_learnt
from tests.support.rig import StartRig, check_thread, eventually

POLICY = Policy(rules=(allow(),))


@tool(effect="read", trust="agent")
def glance() -> str:
    """Glance."""
    return "fine"


@tool(effect="idempotent", trust="agent")
def save(name: str) -> str:
    """Save.

    Args:
        name: The name.
    """
    return "saved"


def catalog(*tools: Any, **memory: Any) -> Catalog:
    """Return an agent with that memory."""
    agent = Agent(name="worker", instructions="Work.", policy=POLICY, memory=Memory(**memory), tools=[glance, *tools])
    return Catalog(agents=[agent])


def progress_status(workspace: Path) -> Current:
    """Return the status in progress.txt; an empty one without such a file."""
    file = workspace / "progress.txt"
    return parse_current(file.read_text() if file.exists() else "")


async def test_a_run_learns_and_replays(rig: StartRig, client: Client, pool: AsyncConnectionPool) -> None:
    """Learnings from tool results need an approval; approved ones are kept with their provenance."""
    script, _, begin = SCENARIOS["learnt"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await learnt(run, r)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        (item,) = [
            item
            for item in (await PostgresMemories(pool).recall("tea coffee", ["agent:archivist"], limit=20)).items
            if item.thread == run.id
        ]
        started = [event.position for event in events if event.type == "tool_call_started"]
        assert item.position in started
        assert (item.trust, item.by) == ("person", "archivist")
        assert not (r.workspace / "LEARNINGS.md").exists()
        assert (progress_status(r.workspace).thread, progress_status(r.workspace).last_step) == (run.id, "3, completed")


@pytest.mark.extended
async def test_a_run_that_is_blocked_says_so_and_replays(rig: StartRig, client: Client) -> None:
    """Progress.txt names the step and the cause, keeps the LLM's own text, and finally notes the end."""
    script, _, begin = SCENARIOS["not_learnt"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        step = "0, blocked (LLMRejected)"
        await eventually(lambda: asyncio.sleep(0, progress_status(r.workspace).last_step), lambda last: last == step)
        await not_learnt(run, r)
        await check_thread(client, run)
        status = progress_status(r.workspace)
        assert (status.goal, status.status, status.next_action) == ("do it", "half", "all")
        assert status.last_step == "2, completed"


@pytest.mark.extended
async def test_a_new_thread_archives_the_progress_and_a_continued_one_resumes_it(rig: StartRig) -> None:
    """The next run of a thread reads its own progress; another thread's becomes an entry, which the run reads, too."""
    script = steps([call("update_progress", status="half done", next_action="the rest"), say("so far")])
    async with rig(catalog(progress=True), script) as r:
        first = await r.start("move house")
        await first.result()
        r.llm.script = lambda _: say("done")
        again = await r.start("go on", thread=first.id, resume=True)
        await again.result()
        assert "> - Next Action: the rest" in r.llm.requests[-1].body.decode()
        status = progress_status(r.workspace)
        assert (status.thread, status.goal, status.next_action) == (first.id, "move house", "the rest")
        other = await r.start("paint the fence")
        await other.result()
        assert "> - Next Action: the rest" in r.llm.requests[-1].body.decode()
        text = (r.workspace / "progress.txt").read_text()
        status = progress_status(r.workspace)
        assert (status.thread, status.goal, status.next_action) == (other.id, "paint the fence", "")
        (entry,) = parse_entries(text)
        assert (entry.title, entry.what, entry.next) == (f"{first.id}: move house", "half done", "the rest")


async def test_a_run_notes_its_calls_with_an_effect_before_the_llm_replies(rig: StartRig) -> None:
    """The entry names the call's number in the log, its arguments and outcome; the read has none."""
    seen: list[str] = []
    script = steps([call("glance"), call("save", name="a"), say("done")])
    async with rig(catalog(save, progress=True), script) as r:

        def reply(messages: Conversation) -> Reply:
            file = r.workspace / "progress.txt"
            seen.append(file.read_text() if file.exists() else "")
            return script(messages)

        r.llm.script = reply
        run = await r.start("save it")
        assert (await run.result())["result"] == "done"
        (entry,) = parse_entries(seen[-1])
        assert (entry.title, entry.what) == (f"{run.id}: save (call 3)", '{"name":"a"} → saved')


@pytest.mark.extended
async def test_two_runs_in_one_workspace_lose_nothing(rig: StartRig) -> None:
    """Runs that take turns in a workspace each leave a whole file, with the other's status among the entries."""
    async with rig(catalog(progress=True), steps([call("glance"), call("glance"), say("done")])) as r:
        runs = [await r.start(f"task {number}") for number in range(4)]
        for run in runs:
            await run.result()
        text = (r.workspace / "progress.txt").read_text()
        named = {progress_status(r.workspace).thread, *(entry.title.split(":")[0] for entry in parse_entries(text))}
        assert named == {run.id for run in runs}
        assert text.count("## Current Status") == text.count("- Goal:") == 1


@pytest.mark.extended
async def test_learnings_of_one_run_are_read_by_the_next(rig: StartRig) -> None:
    """An insight goes to LEARNINGS.md with its thread, and the next run reads it, quoted, with less trust."""
    replies = [say("done"), call("note_learning", title="Tests", text="They need a database.")]
    async with rig(catalog(learn=True, files=1_000), steps(replies)) as r:
        run = await r.start()
        await run.result()
        assert f"- Thread: {run.id}" in (r.workspace / "LEARNINGS.md").read_text()
        r.llm.script = lambda _: say("done")
        await (await r.start()).result()
        assert "> > They need a database." in r.llm.requests[1 + 1].json()["messages"][2]["content"]


@pytest.mark.extended
async def test_the_run_waits_for_no_llm_that_fails_after_the_answer(rig: StartRig) -> None:
    """An error of the provider in the step after the answer changes neither the result nor the status."""
    async with rig(catalog(learn=True), steps([say("done"), fail(400, "no")])) as r:
        run = await r.start()
        assert (await run.result())["result"] == "done"


@pytest.mark.extended
async def test_an_ordinary_run_works_through_tasks(rig: StartRig) -> None:
    """The task tools of loops work in any run: a task starts, is completed, and has its dates."""

    def script(conversation: Conversation) -> Reply:
        replies = [call("start_task", title="one"), call("complete_task", title="one", what="did it"), say("done")]
        return replies[conversation.replies]

    async with rig(catalog(*memory_tools(), progress=True), script) as r:
        (r.workspace / "TASKS.md").write_text("## To do\n- [ ] one\n- [ ] two\n## In progress\n## Done\n")
        run = await r.start()
        await run.result()
        text = (r.workspace / "TASKS.md").read_text()
        assert text.startswith("## To do\n- [ ] two\n## In progress\n## Done\n- [x] one (started: ")
        events = await check_thread(r.client, run)
        own = [event.number for event in events if isinstance(event, ToolCallRequested) and event.own]
        ended = {event.number: event.status for event in events if isinstance(event, ToolCallFinished)}
        assert [ended[number] for number in own] == ["ok", "ok"]
        status = progress_status(r.workspace)
        assert (status.active, status.last_completed, status.last_step) == ("two", "one", "3, completed")

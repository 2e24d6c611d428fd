"""Forks of threads: what they inherit, what they may do, and what a killed start leaves behind."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, ask, deny, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.forks import Forked, fork
from holdfast.client.interventions import intervene
from holdfast.client.messages import say as send
from holdfast.client.reading.histories import converter_for, runs_back
from holdfast.client.restarts import restart
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.client.trees import read_tree
from holdfast.core.log.events import VerdictGiven
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.views.diff import compare
from holdfast.errors import PositionInvalid, TaskInvalid, ThreadExists
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.rig import Rig, StartRig, eventually, status_of

MADE: list[str] = []


@tool(effect="unsafe")
def mail(to: str) -> str:
    """Send a mail."""
    MADE.append(to)
    return f"mailed {to}"


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


def catalog(**limits: Any) -> Catalog:
    """Return one agent that may do anything, and one that asks before it sends a mail."""
    rules = {"clerk": (allow(),), "careful": (ask("mail"), allow())}
    agents = [
        Agent(
            name=name,
            instructions="Work.",
            policy=Policy(rules=rules[name]),
            limits=Limits(**limits),
            tools=[mail, look],
        )
        for name in rules
    ]
    return Catalog(agents=agents)


def threads_of(rig: Rig, *, record: bool = True) -> Threads:
    """Return the threads of the rig's worker."""
    return Threads(rig.client, task_queue=rig.task_queue, record=rig.threads if record else None)


async def lines_of(rig: Rig, thread: str) -> list[bytes]:
    """Return a thread's lines in the permanent record."""
    lines: list[bytes] = []
    while page := await rig.threads.read(thread, len(lines)):
        lines += page
    return lines


async def original(rig: Rig, *until: str, agent: str = "clerk", **more: Any) -> str:
    """Start a thread, wait until it is completed or has one of these statuses, and return its id."""
    run = await rig.start(f"work {uuid4().hex[:4]}", agent=agent, by="dana", **more)
    await status_of(run, *(until or ("completed",)))
    if not until:
        await run.result()
    return run.id


async def position_of(rig: Rig, thread: str, kind: str) -> int:
    """Return the position of the first event of a kind."""
    events = await threads_of(rig).recorded_events(thread)
    return next(event.position for event in events if event.type == kind)


async def forked(rig: Rig, thread: str, **how: Any) -> tuple[Forked, Any]:
    """Fork a thread, and return the fork with its handle."""
    done = await fork(threads_of(rig), thread, **{"by": "erin", **how})
    return done, rig.client.get_workflow_handle(done.thread)


def work(conversation: Conversation) -> Reply:
    """Look, send a mail, and reply that it is done to every further message."""
    made = [call("look", at="a"), call("mail", to="bob")]
    return made[conversation.replies] if conversation.replies < len(made) else say("done")


def both(conversation: Conversation) -> Reply:
    """Send a mail and look in one reply, and reply that it is done to every further message."""
    return say("done") if conversation.replies else together(call("mail", to="a"), call("look", at="b"))


async def test_a_fork_begins_with_the_same_bytes_and_has_no_effect(rig: StartRig) -> None:
    """Record and prompt begin with the original's bytes; effects ask until an approver removes that constraint."""
    async with rig(catalog(), work) as started:
        thread, threads = await original(started), threads_of(started)
        at = await position_of(started, thread, "tool_call_finished")
        effects, prompts = list(MADE), len(started.llm.requests)
        done, run = await forked(started, thread, at=at)
        state = await status_of(run, "waiting_approval")
        assert effects == MADE
        before, after = await lines_of(started, thread), await lines_of(started, done.thread)
        assert before[: at + 1] == after[: at + 1]
        recorded = await anext(
            runs_back(threads.runs, done.thread, done.run_id, by=converter_for(started.client, done.thread))
        )
        assert recorded.run_input.features == FEATURES, (
            "no older worker begins it, which could not read all of the events"
        )
        assert started.llm.requests[1].body == started.llm.requests[prompts].body
        assert (state["fork"]["thread"], state["fork"]["effects_ask"]) == (thread, True)
        assert "forked" in state["pending"][0]["why"]

        lifted = {"constraint": 0, "by": "dana"}
        assert (await intervene(threads, done.thread, "lift", lifted)).outcome == "accepted"
        assert (await intervene(threads, done.thread, "lift", lifted)).outcome == "unknown_request"
        await run.signal("approve", {"request": state["pending"][0]["request"], "by": "dana"})
        await run.result()
        assert len(MADE) == len(effects) + 1

        await send(threads, done.thread, "again", by="erin")  # lifted: the policy decides, also in a later run
        await status_of(started.client.get_workflow_handle(done.thread), "completed")
        verified = await verify(threads, done.thread)
        assert (verified.ok, verified.reason) == (True, "")
        compared = compare(await threads.recorded_events(thread), await threads.recorded_events(done.thread))
        assert (compared.common, [each.verdict for each in compared.second.calls][:1]) == (at + 1, ["ask"])


@pytest.mark.extended
async def test_a_fork_of_an_open_thread_drops_its_open_requests_and_calls(rig: StartRig) -> None:
    """Open requests and calls of the original end in the fork, and stay open in the original."""
    async with rig(catalog(), both) as started:
        thread = await original(started, "waiting_approval", agent="careful")
        done, run = await forked(started, thread, say="do not mail")
        await run.result()
        messages = [each async for each in threads_of(started, record=False).messages(done.thread)]
        assert [each["role"] for each in messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]
        assert "forked from another" in messages[2]["content"]
        assert (await verify(threads_of(started), done.thread)).reason == ""
        assert len(await threads_of(started).pending(thread)) == 1
        again, _ = await forked(started, done.thread, say="and again")  # of a fork
        await status_of(started.client.get_workflow_handle(again.thread), "completed")
        assert (await verify(threads_of(started), again.thread)).reason == ""


@pytest.mark.extended
async def test_a_fork_inside_a_reply_contains_all_of_its_calls(rig: StartRig) -> None:
    """Whichever event is chosen, each call in the transcript has its result: providers reject anything else."""
    async with rig(catalog(), both) as started:
        thread = await original(started)
        replied = await position_of(started, thread, "llm_replied")
        for position in range(replied, replied + 5):  # the reply, and the requests and verdicts of its two calls
            done, run = await forked(started, thread, at=position, say="go on")
            await status_of(run, "completed")
            roles = [each["role"] async for each in threads_of(started).messages(done.thread)]
            assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]


@pytest.mark.extended
async def test_a_fork_from_before_the_folder_was_known_gets_an_empty_one(rig: StartRig) -> None:
    """A fork from before the original loaded its agent starts with an empty folder, not with the worker's."""
    async with rig(catalog(), work) as started:
        thread = await original(started)
        loaded = await position_of(started, thread, "agent_loaded")
        _, run = await forked(started, thread, at=loaded - 1)
        state = await status_of(run, "waiting_approval")
        assert not list(Path(state["workspace"]).iterdir())


async def test_a_fork_has_another_llm_and_a_stricter_policy(rig: StartRig) -> None:
    """The fork's LLM gets the same messages; its policy judges beside the agent's; `show` names both.

    Repeating the start finds the same fork; another LLM or policy makes another fork.
    """
    strict = Policy(rules=(deny("mail", reason="not in a fork"), allow()))
    async with rig(catalog(), work) as started:
        thread = await original(started)
        at, count = await position_of(started, thread, "tool_call_finished"), len(MADE)
        how: dict[str, Any] = {"at": at, "id": f"{thread}-b", "llm": "other-llm", "policies": (strict,)}
        done, run = await forked(started, thread, **how)
        await status_of(run, "completed")
        asked = [json.loads(request.body) for request in started.llm.requests]
        first = next(n for n, body in enumerate(asked) if body["model"] == "other-llm")
        before = next(body for body in asked if len(body["messages"]) == len(asked[first]["messages"]))
        assert asked[first]["messages"] == before["messages"]
        assert {body["model"] for body in asked[first:]} == {"other-llm"}
        state = await threads_of(started).state(done.thread)
        assert (state["fork"]["llm"], state["fork"]["policies"]) == ("other-llm", [strict.hash])
        events = await threads_of(started).recorded_events(done.thread)
        denied = next(event for event in events if isinstance(event, VerdictGiven) and event.verdict == "deny")
        assert (denied.rule, MADE[count:]) == ("deny mail (given with the fork)", [])
        assert (await verify(threads_of(started), done.thread)).ok
        assert (await forked(started, thread, **how))[0].new is False
        for other in ({"llm": "third"}, {"llm": ""}, {"policies": ()}, {"policies": (strict, strict)}):
            with pytest.raises(ThreadExists):
                await forked(started, thread, **{**how, **other})
        for wrong in ("two\nlines", "x" * 300, " "):
            with pytest.raises(TaskInvalid, match="the name of an LLM"):
                await forked(started, thread, at=at, llm=wrong)


async def test_repeating_a_fork_returns_the_same_fork(rig: StartRig) -> None:
    """A repeated start returns the existing fork; another thread with that id is not touched."""
    async with rig(catalog(), work) as started:
        thread, name = await original(started), f"fork-{uuid4().hex[:8]}"
        first, run = await forked(started, thread, at=4, id=name)
        await status_of(run, "waiting_approval")
        again, _ = await forked(started, thread, at=4, id=name)
        assert (first.new, again.new, again.point) == (True, False, first.point)
        for other in ({"at": 2}, {"at": 4, "say": "another"}, {"at": 4, "agent": "careful"}):
            with pytest.raises(ThreadExists, match="is not this fork"):
                await forked(started, thread, id=name, **other)
        with pytest.raises(ThreadExists):
            await forked(started, thread, at=4, id=await original(started))
        for position in (0, 10_000):
            with pytest.raises(PositionInvalid):
                await forked(started, thread, at=position)
        await run.terminate()
        await send(threads_of(started), name, "more", by="erin")
        state = await status_of(started.client.get_workflow_handle(name), "completed")
        assert state["fork"]["effects_ask"]


@pytest.mark.extended
async def test_a_message_can_be_edited_and_a_task_restarted(rig: StartRig) -> None:
    """An edited message replaces the last one; a restart has the same task and nothing else."""

    def script(conversation: Conversation) -> Reply:
        return say(f"you said {conversation.last_user_message}")

    async with rig(catalog(), script) as started:
        thread, threads = await original(started), threads_of(started)
        await send(threads, thread, "red", by="dana")
        await eventually(lambda: threads.state(thread), lambda state: state["result"] == "you said red")
        done, run = await forked(started, thread, edit="blue")
        assert (await run.result())["result"] == "you said blue"
        texts = [each["content"] async for each in threads.messages(done.thread) if each["role"] == "user"]
        assert texts[1:] == ["blue"]
        with pytest.raises(PositionInvalid, match="restart"):
            await forked(started, thread, at=3, edit="green")

        done, run = await forked(started, thread)  # the agent has answered, and no message is pending
        assert (
            "fork"
            in (await eventually(lambda: threads.state(done.thread), lambda s: s["status"] == "failed"))["result"]
        )

        new = await restart(threads, thread, StartOptions())
        state = await eventually(lambda: threads.state(new.thread), lambda state: state["status"] == "completed")
        before = await threads.state(thread)
        assert (state["task"], state["agent"], state["step"]) == (before["task"], before["agent"], 1)


@pytest.mark.extended
async def test_a_sub_agents_thread_can_be_forked_but_not_restarted(rig: StartRig) -> None:
    """A fork at the sub-agent's task starts over, outside the tree: the parent and the tree see nothing of it."""
    boss = Agent(name="boss", instructions="Delegate.", tools=(), subagents=("hand",), policy=Policy(rules=(allow(),)))
    hand = Agent(name="hand", instructions="Look.", tools=("look",))

    def script(conversation: Conversation) -> Reply:
        if conversation.replies:
            return say("done")
        boss = "run_agent" in conversation.tools
        return call("run_agent", agent="hand", task="look") if boss else call("look", at="a")

    async with rig(Catalog(agents=[boss, hand], tools=[look]), script) as started:
        parent, threads = await original(started, agent="boss"), threads_of(started)
        child = f"{parent}.1"
        with pytest.raises(TaskInvalid, match=f"fork {parent}.1 --at 1"):
            await restart(threads, child, StartOptions())
        before = await threads.recorded_events(parent)
        done, run = await forked(started, child, at=1)
        assert (await run.result())["result"] == "done"
        state = await threads.state(done.thread)
        assert (state["agent"], state["lineage"], state["fork"]["thread"]) == ("hand", None, child)
        assert (await verify(threads, done.thread)).reason == ""
        assert await threads.recorded_events(parent) == before
        assert [node.thread for _, node in (await read_tree(threads, parent)).walk()] == [parent, child]


def git(folder: Path, *arguments: str, at: str = "2020-01-01T00:00:00Z") -> str:
    """Run git in a folder, and return its output."""
    who = {"GIT_AUTHOR_NAME": "d", "GIT_AUTHOR_EMAIL": "d@d", "GIT_COMMITTER_NAME": "d", "GIT_COMMITTER_EMAIL": "d@d"}
    environ = {"PATH": os.environ["PATH"], **who, "GIT_COMMITTER_DATE": at}
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, env=environ
    ).stdout


@pytest.mark.extended
async def test_a_fork_works_on_the_files_of_that_time(rig: StartRig, tmp_path: Path) -> None:
    """The fork's folder is a work tree at the commit of that event; the original's files and branch stay."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "a.txt").write_text("old")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    async with rig(catalog(), work) as started:
        thread = await original(started, workspace=str(folder))
        (folder / "a.txt").write_text("new")
        git(folder, "commit", "--quiet", "-am", "two", at="2090-01-01T00:00:00Z")
        _, run = await forked(started, thread, at=4)
        workspace = Path((await status_of(run, "waiting_approval"))["workspace"])
        assert (workspace / "a.txt").read_text() == "old"
        assert str(workspace) in git(folder, "worktree", "list")
        assert git(workspace, "status", "--porcelain") == ""
        assert (folder / "a.txt").read_text() == "new"
        assert git(folder, "status", "--porcelain", "--untracked-files=no") == ""
        _, run = await forked(started, run.id, at=4)  # an event that the fork inherited from its original
        assert (await status_of(run, "waiting_approval"))["workspace"] != str(workspace)
        assert (await verify(threads_of(started), run.id)).reason == ""

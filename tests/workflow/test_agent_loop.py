"""Loops on a real server: new agents work off a workspace's TASKS.md, and people steer them."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from holdfast.audit.evidence.loops import verify_loop
from holdfast.audit.judge.audit import Audit
from holdfast.cli.screens.loop_screens import loop_screen
from holdfast.client.threads import Threads
from holdfast.core.agents.agent import Agent, Limits
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.policy import Policy, allow, ask
from holdfast.core.budget.budget import Budget
from holdfast.core.loop.state import LoopLimits
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.temporal.converter import data_converter
from holdfast.testing import Conversation, Reply, call, hang, say, together
from holdfast.workflows import WORKFLOWS
from holdfast.workspace.file_tools import workspace_tools
from holdfast.workspace.memory.tools import memory_tools
from tests.support.rig import StartRig, answer_of, check_thread, eventually, status_of

BY = {"by": "alice"}
TOOLS = (*workspace_tools(confine="never"), *memory_tools())
TASKS = "# Tasks\n\n- [ ] one\n- [ ] two\n"


def catalog(*, budget: Budget | None = None, llm: str | None = None, **limits: Any) -> Catalog:
    """Return one agent that may do anything."""
    shared = {"policy": Policy(rules=(allow(),)), "limits": Limits(**limits), "budget": budget, "llm": llm}
    agent = Agent(name="builder", instructions="Build.", tools=TOOLS, **shared)  # type: ignore[arg-type]
    return Catalog(agents=[agent])


def task_of(conversation: Conversation) -> str:
    """Return the task of the iteration; empty for the initializer."""
    brief = str(conversation.messages[1]["content"])
    return brief.partition("## Your task, from TASKS.md\n\n")[2].partition("\n")[0]


def diligent(conversation: Conversation) -> Reply:
    """Do each task in two steps: write a file named after it, and complete it."""
    task = task_of(conversation)
    if not task:
        plan = call("write_file", path="TASKS.md", content=TASKS)
        return [plan, call("commit_work", message="Write the plan"), say("Planned.")][conversation.replies]
    write = call("write_file", path=f"{task}.txt", content=task)
    return [write, call("complete_task", title=task, what=f"wrote {task}.txt"), say(f"Did {task}.")][
        conversation.replies
    ]


def git(workspace: Path, *arguments: str) -> list[str]:
    """Return git's output, line by line."""
    done = subprocess.run(["git", *arguments], cwd=workspace, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


async def replays(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """Check that the loop's history replays."""
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
    )
    await replayer.replay_workflow(await handle.fetch_history())


async def test_a_loop_plans_and_works_off_every_task(rig: StartRig, client: Client) -> None:
    """The initializer writes the plan, each task gets a new agent and a commit, and then the loop ends."""
    async with rig(catalog(), diligent) as at_work:
        handle = await at_work.start_loop(task="write two files")
        result = await handle.result()
        assert (result.iterations, result.tasks) == (3, 2)
        subjects = git(at_work.workspace, "log", "--format=%s", "--reverse")
        assert [each for each in subjects if each.startswith("Complete")] == ["Complete: one", "Complete: two"]
        assert git(at_work.workspace, "status", "--porcelain") == []
        first = [request.json()["messages"][1]["content"] for request in at_work.llm.requests]
        assert len(set(first)) == 3, "each iteration begins with a conversation of its own"
        state = await handle.query("state")
        assert [each["outcome"] for each in state["iterations"]] == ["completed"] * 3
        assert state["usage"]["prompt_tokens"] > 0
        await replays(client, handle)


@pytest.mark.extended
async def test_a_failed_iteration_leaves_its_trace_and_the_next_one_reads_it(rig: StartRig) -> None:
    """An iteration that ends without completing its task is in ERRORS.md and in git, and in the next agent's prompt."""

    def forgetful(conversation: Conversation) -> Reply:
        brief = conversation.messages[1]["content"]
        return diligent(conversation) if "Earlier attempts" in brief else say("I forgot what I was doing.")

    async with rig(catalog(), forgetful) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop()
        result = await handle.result()
        assert (result.iterations, result.tasks) == (2, 1)
        errors = (at_work.workspace / "ERRORS.md").read_text()
        assert "I forgot what I was doing." in errors
        assert f"{handle.id}-0" in errors
        assert git(at_work.workspace, "status", "--porcelain") == []


@pytest.mark.extended
async def test_a_loop_without_open_tasks_is_blocked_until_retry(rig: StartRig) -> None:
    """Blocked tasks block the loop with their reasons; a person fixes the file, and `retry` resumes it."""

    def lacks_key(conversation: Conversation) -> Reply:
        if task_of(conversation) == "one":
            return [call("block_task", title="one", reason="there is no key"), say("Blocked.")][conversation.replies]
        return diligent(conversation)

    async with rig(catalog(), lacks_key) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "TasksBlocked"
        assert "one: there is no key" in state["blocked"]["message"]
        assert state["tasks"] == {"done": 1, "open": 0}
        tasks = at_work.workspace / "TASKS.md"
        tasks.write_text("\n".join(line for line in tasks.read_text().splitlines() if "one" not in line) + "\n")
        assert await handle.execute_update("retry", BY) == {"outcome": "accepted", "explanation": "the loop resumes"}
        assert (await handle.result()).tasks == 1
        assert any(each.startswith("Commit changes") for each in git(at_work.workspace, "log", "--format=%s"))


@pytest.mark.extended
async def test_a_paused_loop_follows_peoples_edits(rig: StartRig) -> None:
    """Between two iterations people pause, edit and resume; the next iteration follows the edited file."""
    async with rig(catalog(), diligent) as at_work:
        tasks = at_work.workspace / "TASKS.md"
        tasks.write_text(TASKS)
        handle = await at_work.start_loop()
        await handle.signal("pause", BY)
        await handle.signal("pause", "what?")
        state = await status_of(handle, "paused", "dormant")  # dormant: before a worker has read the files
        assert state["paused"]["by"] == "alice"
        tasks.write_text(tasks.read_text().replace("two", "three"))
        assert (await answer_of(handle.execute_update("resume", BY)))["outcome"] == "accepted"
        assert (await answer_of(handle.execute_update("resume", BY)))["outcome"] in ("not_paused", "nothing_to_do")
        await handle.result()
        assert (at_work.workspace / "three.txt").exists()
        assert not (at_work.workspace / "two.txt").exists()


@pytest.mark.extended
async def test_limits_block_a_loop_until_more_is_granted(rig: StartRig) -> None:
    """At its limit of iterations a loop waits; `retry` grants the same number again."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop(limits=LoopLimits(iterations=1))
        state = await status_of(handle, "blocked")
        assert (state["blocked"]["cause"], state["step"]) == ("IterationLimit", 1)
        await handle.signal("retry", BY)
        assert (await handle.result()).iterations == 2


@pytest.mark.extended
async def test_a_token_limit_ends_an_iteration_with_a_partial_result(rig: StartRig, client: Client) -> None:
    """An iteration gets the loop's remainder and no call beyond it; the loop then waits for `retry` to grant more."""

    def reads_on(conversation: Conversation) -> Reply:
        if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
            return say("half of it")
        if "Earlier attempts" in conversation.messages[1]["content"]:
            return diligent(conversation)
        return call("write_file", path=f"{conversation.replies}.txt", content="more")

    modest = catalog(tool_result_chars=400)
    async with rig(modest, reads_on) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop(limits=LoopLimits(tokens=60_000, attempts=1))
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "TokenLimit"
        (iteration,) = state["iterations"]
        assert iteration["outcome"] == "failed"
        assert "its budget has ended: tokens" in iteration["explanation"]
        assert "half of it" in iteration["explanation"]
        run = client.get_workflow_handle(iteration["thread"])
        run = client.get_workflow_handle(run.id, run_id=(await run.describe()).run_id)
        assert (await run.result())["result"] == "half of it"
        events = await check_thread(client, run)
        state_of_run = RunState(thread=run.id)
        for event in events:
            state_of_run = evolve(state_of_run, event)
        spent = state_of_run.account.spent.tokens
        (limit,) = state["budget"]["limits"]
        assert limit == {
            "limit": "tokens",
            "allowed": "60000",
            "spent": str(spent),
            "reserved": "0",
            "left": str(60_000 - spent),
        }
        assert 0 < spent <= 60_000
        audit = Audit(run.id)
        audit.take(events)
        assert audit.fault is None
        assert f"tokens {spent} of 60000, 0 reserved" in loop_screen(state, ui=None).plain
        await handle.signal("retry", BY)
        assert (await handle.result()).tasks == 1
        limits = (await handle.query("state"))["budget"]["limits"]
        assert limits[0]["allowed"] == "120000"
        result = await verify_loop(Threads(client, task_queue=at_work.task_queue, record=at_work.threads), handle.id)
        assert result.ok, result.reason
        await replays(client, handle)


@pytest.mark.slow
async def test_the_end_of_an_agents_own_budget_fails_an_iteration_of_a_loop_with_limits(rig: StartRig) -> None:
    """The iteration returns its partial result, the loop's limits are not reached, and its account has the cost."""

    def never_done(conversation: Conversation) -> Reply:
        if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
            return say("half of it")
        return call("write_file", path=f"{conversation.replies}.txt", content="more")

    frugal = catalog(budget=Budget(tokens=40_000), llm="gpt-5-mini", tool_result_chars=400)
    async with rig(frugal, never_done) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop(limits=LoopLimits(tokens=10**6, cost=50, attempts=2))
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "AttemptsFailed"
        assert ["its budget has ended: tokens" in each["explanation"] for each in state["iterations"]] == [True, True]
        limits = {each["limit"]: each for each in state["budget"]["limits"]}
        assert 0 < int(limits["tokens"]["spent"]) <= 80_000
        assert float(limits["usd"]["spent"]) >= state["cost"] - 1e-6 > 0
        assert {each["reserved"] for each in limits.values()} == {"0"}


@pytest.mark.slow
async def test_when_time_is_up_the_running_iteration_is_stopped(rig: StartRig) -> None:
    """An agent that never answers is stopped at the loop's time limit, and the stop is recorded."""
    async with rig(catalog(), lambda conversation: hang()) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop(limits=LoopLimits(seconds=15))
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "TimeLimit"
        assert state["iterations"][0]["outcome"] == "failed"
        assert "time was up" in (at_work.workspace / "ERRORS.md").read_text()


async def test_a_cancelled_loop_stops_its_iteration_and_leaves_a_clean_tree(rig: StartRig) -> None:
    """Cancelling reaches the agent run; its changes are committed, and the loop ends as cancelled."""

    def writes_and_hangs(conversation: Conversation) -> Reply:
        return [call("write_file", path="half.txt", content="half"), hang()][conversation.replies]

    async with rig(catalog(), writes_and_hangs) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        await eventually(lambda: asyncio.to_thread((at_work.workspace / "half.txt").exists), bool)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        state = await handle.query("state")
        assert (state["status"], state["iterations"][0]["outcome"]) == ("cancelled", "failed")
        assert git(at_work.workspace, "status", "--porcelain") == []
        iteration_run = at_work.client.get_workflow_handle(f"{handle.id}-0")
        assert (await iteration_run.query("state"))["status"] == "cancelled"


@pytest.mark.extended
async def test_an_agent_without_the_tools_cannot_work_in_a_loop(rig: StartRig) -> None:
    """A loop whose agent lacks the tool that completes a task fails at once, and the error names the tool."""
    agents = [Agent(name="bare", instructions="x", tools=())]
    async with rig(Catalog(agents=agents), diligent) as at_work:
        handle = await at_work.start_loop()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "AgentUnfit"
        assert "complete_task and block_task" in failed.value.cause.message


@pytest.mark.slow
async def test_a_long_loop_continues_as_new(rig: StartRig, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of events in its history the loop continues as new, and keeps its counts."""
    monkeypatch.setattr("holdfast.workflows.agent_loop.HISTORY_EVENTS", 40)
    titles = [f"task {number}" for number in range(6)]
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("".join(f"- [ ] {title}\n" for title in titles))
        handle = await at_work.start_loop()
        result = await handle.result()
        assert (result.iterations, result.tasks) == (6, 6)
        latest = await client.get_workflow_handle(handle.id).describe()
        assert latest.run_id != handle.first_execution_run_id


@pytest.mark.extended
async def test_broken_files_block_with_the_location(rig: StartRig) -> None:
    """An unreadable features.json blocks the loop and stays unchanged, and the reason gives the location."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        (at_work.workspace / "features.json").write_text("{")
        handle = await at_work.start_loop()
        state = await status_of(handle, "blocked")
        assert (state["blocked"]["cause"], "line 1" in state["blocked"]["message"]) == ("Workspace", True)
        assert (at_work.workspace / "features.json").read_text() == "{"


@pytest.mark.extended
async def test_features_that_do_not_pass_keep_a_loop_from_ending(rig: StartRig) -> None:
    """If every task is done but a feature in features.json does not pass, the loop blocks and names it."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [x] one\n")
        (at_work.workspace / "features.json").write_text('[{"name": "login", "passes": false}]')
        handle = await at_work.start_loop()
        state = await status_of(handle, "blocked")
        assert (state["blocked"]["cause"], "login" in state["blocked"]["message"]) == ("FeaturesFailing", True)


@pytest.mark.extended
async def test_two_calls_at_once_are_two_commits(rig: StartRig) -> None:
    """Tools that commit may be called in parallel: each call has its own commit, and nothing is lost."""

    def parallel(conversation: Conversation) -> Reply:
        notes = together(
            call("note_learning", title="a", text="first"), call("note_learning", title="b", text="second")
        )
        return [notes, call("complete_task", title="one", what="noted"), say("Done.")][conversation.replies]

    async with rig(catalog(), parallel) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        await (await at_work.start_loop()).result()
        learnt = (at_work.workspace / "LEARNINGS.md").read_text()
        assert ("first" in learnt, "second" in learnt) == (True, True)
        keys = [line for line in git(at_work.workspace, "log", "--format=%(trailers:key=Holdfast-Key)") if line]
        assert len(keys) == len(set(keys)) >= 3


@pytest.mark.extended
async def test_an_unattended_loop_fails_with_the_cause_of_its_block(rig: StartRig, client: Client) -> None:
    """Its iterations are unattended, so a call that requires approval fails them; then the loop has nobody to wait for.
    Its log is complete, and says why.
    """
    tools = [*workspace_tools(confine="never"), *memory_tools()]
    policy = Policy(rules=(ask("write_file"), allow()))
    asking = Agent(name="builder", instructions="Build.", tools=tools, policy=policy)
    async with rig(Catalog(agents=[asking]), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop(limits=LoopLimits(attempts=1), when_blocked="fail")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "AttemptsFailed"
        assert "ApprovalRequired" in (at_work.workspace / "ERRORS.md").read_text() + failed.value.cause.message
        first = await Threads(client, answer_within=60).state(f"{handle.id}-0")
        assert (first["status"], first["unattended"], first["pending"]) == ("failed", True, [])
        assert (await handle.query("state"))["status"] == "failed"
        verified = await verify_loop(Threads(client, task_queue=at_work.task_queue, record=at_work.threads), handle.id)
        assert verified.ok, verified.reason
        await replays(client, handle)

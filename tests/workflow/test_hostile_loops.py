"""Loops on hostile workspaces: each is blocked with a reason, loses nothing, and resumes once the cause is fixed."""

import asyncio
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError

from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.policy import Policy, allow
from holdfast.core.loop.state import LoopLimits, SettleRequest, Survey, SurveyRequest
from holdfast.core.tools.decorator import tool
from holdfast.testing import Conversation, Reply, call, hang, say
from holdfast.workspace.memory.loop_files import LoopFiles
from holdfast.workspace.memory.tools import memory_tools
from tests.support.rig import StartRig, eventually, status_of
from tests.workflow.test_agent_loop import BY, TASKS, catalog, diligent, git

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
PERSON = ("-c", "user.name=Maris", "-c", "user.email=maris@example.invalid")

Change = Callable[[Path], object]


@dataclass(frozen=True)
class Hostile:
    """A way in which a workspace is unfit."""

    make: Change
    words: str
    """The loop's reason."""
    mend: Change = lambda root: plan(root)
    cause: str = "Workspace"


def plan(root: Path) -> None:
    """Write a valid TASKS.md over any other."""
    tasks = root / "TASKS.md"
    if tasks.is_dir() and not tasks.is_symlink():
        tasks.rmdir()
    else:
        tasks.unlink(missing_ok=True)
    tasks.write_text("- [ ] one\n")


def tasks_are(content: str | bytes) -> Change:
    """Write a TASKS.md with this content."""
    return lambda root: (root / "TASKS.md").write_bytes(content if isinstance(content, bytes) else content.encode())


def link_to(target: str) -> Change:
    """Make TASKS.md a link."""

    def make(root: Path) -> None:
        (root.parent / "outside.md").write_text(TASKS)
        (root / "TASKS.md").symlink_to(target)

    return make


def features_are(content: str) -> Change:
    """Write a plan, and a features.json with this content."""

    def make(root: Path) -> None:
        plan(root)
        (root / "features.json").write_text(content)

    return make


def rebasing(root: Path) -> None:
    """Stop a rebase at a conflict."""
    plan(root)
    git(root, "init", "--quiet", "--initial-branch=main")
    for text, then in (("1", ["branch", "other"]), ("2", ["switch", "--quiet", "other"]), ("3", ["branch"])):
        (root / "a.txt").write_text(text)
        git(root, "add", ".")
        git(root, *PERSON, "commit", "--quiet", "-m", text)
        git(root, *then)
    with pytest.raises(subprocess.CalledProcessError):
        git(root, *PERSON, "rebase", "main")


def broken_repository(root: Path) -> None:
    """Create an invalid `.git`."""
    plan(root)
    (root / ".git").write_text("gitdir: nowhere\n")


def read_only(root: Path) -> None:
    """Write a plan, and make the folder read-only."""
    plan(root)
    root.chmod(0o555)


WAYS = {
    "large": Hostile(tasks_are("- [ ] one\n" * 1_000_000), "TASKS.md has more than 1,000,000 bytes"),
    "not text": Hostile(tasks_are(b"- [ ] caf\xe9\n"), "TASKS.md is not UTF-8 text"),
    "binary": Hostile(tasks_are(b"- [ ] a\0\n"), "TASKS.md is not UTF-8 text"),
    "open fence": Hostile(tasks_are("```\n" + TASKS), "neither a TASKS.md with tasks", cause="NoTasks"),
    "too deep": Hostile(tasks_are("\n".join("  " * n + "- [ ] a" for n in range(99))), "line 49: it is nested"),
    "long title": Hostile(tasks_are("# Tasks\n- [ ] " + "a" * 900_000), "line 2: the title has 900,000 characters"),
    "JSON": Hostile(features_are('{"features": [\n'), "line 2", lambda root: (root / "features.json").unlink()),
    "JSON depth": Hostile(features_are("[" * 99_999), "nested", lambda root: (root / "features.json").unlink()),
    "link outside": Hostile(link_to("../outside.md"), "outside"),
    "link to itself": Hostile(link_to("TASKS.md"), "TASKS.md"),
    "folder": Hostile(lambda root: (root / "TASKS.md").mkdir(), "TASKS.md is a folder"),
    "pipe": Hostile(lambda root: os.mkfifo(root / "TASKS.md"), "TASKS.md is a pipe"),
    "rebase": Hostile(rebasing, "a rebase is under way", lambda root: git(root, *PERSON, "rebase", "--abort")),
    "repository": Hostile(broken_repository, "names a repository elsewhere", lambda root: (root / ".git").unlink()),
}
if os.geteuid():  # permissions do not apply to root
    WAYS["read-only"] = Hostile(read_only, "Permission denied", lambda root: root.chmod(0o755))


def everything(root: Path) -> dict[str, Any]:
    """Return every file beside and in a workspace except git's own: its kind and its content."""
    files: dict[str, Any] = {}
    for path in root.parent.rglob("*"):
        kind = stat.S_IFMT(path.lstat().st_mode)
        if ".git" in path.parts or "workspaces" in path.parts:
            continue
        content = path.readlink() if kind == stat.S_IFLNK else path.read_bytes() if kind == stat.S_IFREG else None
        files[str(path)] = (kind, content)
    return files


@pytest.mark.slow
async def test_a_hostile_workspace_blocks_until_it_is_fixed(rig: StartRig) -> None:
    """The reason names the fault, every byte stays, no agent runs, and after `retry` the task is done."""
    async with rig(catalog(), diligent) as at_work:

        async def suffer(name: str, way: Hostile) -> None:
            root = at_work.workspace / name / "root"
            root.mkdir(parents=True)
            way.make(root)
            before = everything(root)
            handle = await at_work.start_loop(workspace=str(root))
            blocked = (await status_of(handle, "blocked"))["blocked"]
            assert (way.cause, True) == (blocked["cause"], way.words in blocked["message"]), (name, blocked["message"])
            assert before == everything(root), name
            await asyncio.to_thread(way.mend, root)
            await handle.execute_update("retry", BY)
            result = await handle.result()
            assert (result.iterations, result.tasks) == (1, 1), name
            assert git(root, "status", "--porcelain") == [], name

        await asyncio.gather(*(suffer(name, way) for name, way in WAYS.items()))


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs /sys, which nobody can make files in")
async def test_an_unwritable_workspace_blocks(rig: StartRig) -> None:
    """A workspace that cannot be written blocks the loop with a clear reason, also for root."""
    async with rig(catalog(), diligent) as at_work:
        handle = await at_work.start_loop(workspace="/sys/kernel", task="build")
        state = await status_of(handle, "blocked")
        assert "no repository can be created in kernel" in state["blocked"]["message"]
        assert state["step"] == 0
        await handle.cancel()


@pytest.mark.slow
async def test_a_missing_workspace_blocks_and_is_not_recreated(rig: StartRig) -> None:
    """A folder that disappears during an iteration is not replaced by an empty one; once back, the loop resumes."""
    gone = threading.Event()

    def vanishes(conversation: Conversation) -> Reply:
        if not gone.is_set():
            at_work.workspace.rename(at_work.workspace.with_name("elsewhere"))
            gone.set()
            return say("Where is it?")
        return diligent(conversation)

    async with rig(catalog(), vanishes) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop(task="build")
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "WorkspaceNotFound"
        assert "is gone" in state["iterations"][0]["explanation"]
        assert not at_work.workspace.exists()
        at_work.workspace.with_name("elsewhere").rename(at_work.workspace)
        await handle.execute_update("retry", BY)
        assert (await handle.result()).tasks == 2


@pytest.mark.extended
async def test_a_file_that_an_agent_breaks_is_attributed_to_it(rig: StartRig) -> None:
    """An iteration that makes TASKS.md unreadable has failed, and its change is not taken for a person's."""

    def breaks(conversation: Conversation) -> Reply:
        deep = "\n".join("  " * n + "- [ ] a" for n in range(99))
        return [call("write_file", path="TASKS.md", content=deep), say("Planned better.")][conversation.replies]

    async with rig(catalog(), breaks) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        state = await status_of(handle, "blocked")
        assert (state["iterations"][0]["outcome"], state["blocked"]["cause"]) == ("failed", "Workspace")
        subjects = git(at_work.workspace, "log", "--format=%s")
        assert subjects == ["Note that iteration 0 failed: one", "Commit changes made by hand: TASKS.md"]
        await handle.cancel()


@pytest.mark.extended
async def test_a_pause_while_the_files_are_read_starts_no_iteration(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the pause is confirmed, people may edit the files: no agent starts on their earlier content."""
    looking, go_on, survey = threading.Event(), threading.Event(), LoopFiles.survey

    def slow(self: LoopFiles, request: SurveyRequest) -> Survey:
        surveyed = survey(self, request)
        looking.set()
        go_on.wait(30)
        return surveyed

    monkeypatch.setattr(LoopFiles, "survey", slow)
    async with rig(catalog(), diligent) as at_work:
        tasks = at_work.workspace / "TASKS.md"
        tasks.write_text(TASKS)
        handle = await at_work.start_loop()
        await asyncio.to_thread(looking.wait, 30)
        assert (await handle.execute_update("pause", BY))["explanation"] == "the loop is paused"
        tasks.write_text("- [ ] three\n")
        go_on.set()
        await eventually(lambda: handle.query("state"), lambda state: state["tasks"]["open"])
        await handle.execute_update("resume", BY)
        result = await handle.result()
        assert (result.iterations, result.tasks) == (1, 1)
        assert not (at_work.workspace / "one.txt").exists()


@pytest.mark.slow
async def test_cancelling_works_while_an_iteration_is_being_stopped(rig: StartRig) -> None:
    """A loop that waits for an agent to stop at its time limit can still be cancelled."""
    held, let_go = threading.Event(), threading.Event()

    @tool(effect="read")
    def hold() -> str:
        """Take long."""
        held.set()
        let_go.wait(30)
        return "held"

    agent = Agent(name="builder", instructions="Build.", policy=Policy(rules=(allow(),)), tools=[hold, *memory_tools()])
    holding = Catalog(agents=[agent])
    async with rig(holding, lambda conversation: [call("hold"), hang()][conversation.replies]) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop(limits=LoopLimits(seconds=10))
        await asyncio.to_thread(held.wait, 30)
        iteration_run = at_work.client.get_workflow_handle(f"{handle.id}-0")

        async def events() -> set[int]:
            return {event.event_type for event in (await iteration_run.fetch_history()).events}

        cancelling = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
        await eventually(events, lambda found: cancelling in found)
        await handle.cancel()
        # The loop must have read it before the agent ends.
        await eventually(
            lambda: handle.fetch_history(),
            lambda history: cancelling in {each.event_type for each in history.events},
        )
        await handle.query("state")
        let_go.set()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 120)
        state = await handle.query("state")
        assert (state["status"], state["iterations"][0]["outcome"]) == ("cancelled", "failed")


@pytest.mark.extended
async def test_a_terminated_iteration_has_failed_and_is_retried(rig: StartRig) -> None:
    """A terminated iteration is recorded like any other failed one, committed, and in the next one's prompt."""

    def hangs_once(conversation: Conversation) -> Reply:
        if "Earlier attempts" in conversation.messages[1]["content"]:
            return diligent(conversation)
        return [call("write_file", path="half.txt", content="half"), hang()][conversation.replies]

    async with rig(catalog(), hangs_once) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop()
        await eventually(lambda: asyncio.to_thread((at_work.workspace / "half.txt").exists), bool)
        await at_work.client.get_workflow_handle(f"{handle.id}-0").terminate("by hand")
        result = await handle.result()
        assert (result.iterations, result.tasks) == (2, 1)
        assert "its run failed" in (at_work.workspace / "ERRORS.md").read_text()
        assert git(at_work.workspace, "log", "--format=%s", "--", "half.txt") == ["Note that iteration 0 failed: one"]


@pytest.mark.extended
async def test_a_migrated_iteration_has_failed_and_is_retried(rig: StartRig) -> None:
    """The `move` signal for an iteration's run does not complete its task."""

    def hangs_once(conversation: Conversation) -> Reply:
        return diligent(conversation) if "Earlier attempts" in conversation.messages[1]["content"] else hang()

    async with rig(catalog(), hangs_once) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop()
        await eventually(lambda: asyncio.sleep(0, len(at_work.llm.requests)), bool)
        await at_work.client.get_workflow_handle(f"{handle.id}-0").signal("move", {"by": "mallory"})
        result = await handle.result()
        assert (result.iterations, result.tasks) == (2, 1)
        assert "it was moved to another place" in (at_work.workspace / "ERRORS.md").read_text()


@pytest.mark.slow
async def test_a_thread_of_an_iterations_name_is_not_taken_over(rig: StartRig) -> None:
    """If a thread already has the name, that iteration fails with this reason; the thread's log is unchanged."""
    async with rig(catalog(), diligent) as at_work:
        await (await at_work.start("plan", thread="taken-0")).result()
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop("taken")
        assert (await handle.result()).iterations == 2
        first = (await handle.query("state"))["iterations"][0]
        assert (first["outcome"], "there is or was a thread taken-0" in first["explanation"]) == ("failed", True)


def outcome_of(root: Path, before: str, after: str) -> str:
    """Return the outcome of an iteration at `one`, given TASKS.md before and after it."""
    (root / "TASKS.md").write_text(before)
    seen = LoopFiles().survey(SurveyRequest(workspace=str(root), agent=None, key="s"))
    assert seen.next == "one"
    (root / "TASKS.md").write_text(after)
    request = SettleRequest(
        workspace=str(root),
        thread="l-0",
        number=0,
        task="one",
        twins=seen.twins,
        finished=seen.finished,
        head=seen.head,
        llm="x",
        key="k",
        end="completed",
    )
    return LoopFiles().settle(request, "done", NOW).outcome


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("- [ ] one\n", "- [x] one\n", "completed"),
        ("- [ ] one\n", "- [ ] one\n- [x] one\n", "completed"),
        ("- [ ] one\n- [ ] one\n", "- [x] one\n- [ ] one\n", "completed"),
        ("- [x] one\n- [ ] one\n", "- [x] one\n- [ ] one (blocked: no key)\n", "blocked"),
        ("- [x] one\n- [ ] one\n", "- [x] one\n- [ ] another\n", "changed"),
        ("- [x] one\n- [ ] one\n", "- [x] one\n- [ ] one\n", "failed"),
        ("- [ ] one\n- [ ] two\n", "- [ ] one\n- [x] two\n", "failed"),
        ("- [ ] one\n", "", "changed"),
    ],
)
def test_the_outcome_is_the_change_of_the_iterations_own_task(
    tmp_path: Path, before: str, after: str, outcome: str
) -> None:
    """Tasks of the same title that were completed earlier or added meanwhile do not count as the iteration's own."""
    assert outcome == outcome_of(tmp_path, before, after)


def test_long_subjects_reasons_and_names_are_cut(tmp_path: Path) -> None:
    """Long texts by people are clipped in results, so that Temporal accepts them."""
    (tmp_path / "TASKS.md").write_text("- [ ] a (blocked: " + "x" * 300_000 + ")\n")
    (tmp_path / "features.json").write_text(f'[{{"name": "{"y" * 300_000}", "passes": false}}]')
    request = SurveyRequest(workspace=str(tmp_path), agent=None, key="s")
    seen = LoopFiles().survey(request)
    git(tmp_path, *PERSON, "commit", "--quiet", "--allow-empty", "-m", "z" * 100_000)
    settled = LoopFiles().settle(
        SettleRequest(
            workspace=str(tmp_path),
            thread="l-0",
            number=0,
            task="b",
            twins=1,
            head=seen.head,
            llm="x",
            key="k",
            end="completed",
        ),
        "done",
        NOW,
    )
    assert len(seen.model_dump_json()) < 2_000
    assert len(settled.model_dump_json()) < 2_000

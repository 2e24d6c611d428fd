"""The loop example: its script with the real tools on a real repository, and the demo end to end."""

import dataclasses
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import ToolContext
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished, ToolCallRequested, ToolCallStarted
from holdfast.core.loop.briefs import initializer_brief, iteration_brief
from holdfast.core.loop.state import Iteration, LoopState
from holdfast.core.memory.features import parse_features
from holdfast.core.memory.tasks import parse_tasks
from holdfast.core.tools.decorator import bind
from holdfast.endpoints.script import JSON, Conversation
from holdfast.examples.loop import repository
from holdfast.examples.loop.catalog import MEMORY_TOOLS, catalog
from holdfast.examples.loop.commits import BY_HAND, commit_calls, commits
from holdfast.examples.loop.jobs import COMMAND, GIVEN_UP, HELP, JOBS, LINES, PLAN, TOP, TOP_MENTIONED, WORDS
from holdfast.examples.loop.report import Ending, rows
from holdfast.examples.loop.scenario import edit_by_hand
from holdfast.examples.loop.script import script
from holdfast.examples.loop.tools import run_tests
from holdfast.examples.shared.git import run_git
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.sandbox import DEFAULT, unavailable_reason
from tests.support.demos import play_demo

ROOT = Path(__file__).parents[2]
HEAD = "43fc24fe2b87d12f07df41265cda991e8456d021"
AT = datetime(2026, 2, 3, 9, 30, tzinfo=UTC)


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    """Return the example repository."""
    return repository.create(tmp_path / "tally")


def context_of(workspace: Path, *, key: str = "key-1") -> ToolContext:
    """Return the context of a tool call."""
    return ToolContext(thread="loop-1", workspace=workspace, key=key, attempt=1, at=AT)


def git(folder: Path, *arguments: str) -> str:
    """Run git, and return its output."""
    return run_git(folder, *arguments, author="Maris Brook")


def conversation(messages: list[JSON]) -> Conversation:
    """Return a conversation of the loop's agent."""
    names = catalog.spec("builder", default_llm="any").tools
    return Conversation({"messages": messages, "tools": [{"function": {"name": tool.name}} for tool in names]})


async def play(folder: Path, brief: str, *, run: str) -> tuple[str, list[tuple[str, str]]]:
    """Run the script on a brief with the real tools; return its final reply, and the calls with their results."""
    messages: list[JSON] = [{"role": "system", "content": "…"}, {"role": "user", "content": brief}]
    told: list[tuple[str, str]] = []
    while (reply := script(conversation(messages))).calls:
        calls = [{"id": f"{len(told)}-{n}", "function": {"name": name}} for n, (name, _) in enumerate(reply.calls)]
        messages.append({"role": "assistant", "content": reply.text, "tool_calls": calls})
        for made, (name, arguments) in zip(calls, reply.calls, strict=True):
            result = await _called(name, arguments, context_of(folder, key=f"{run}-{len(told)}"))
            told.append((name, result))
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})
    return reply.text or "", told


async def _called(name: str, arguments: str, context: ToolContext) -> str:
    if name == "read_skill":  # the worker's own setting
        return catalog.skills[json.loads(arguments)["name"]].files["SKILL.md"].decode()
    tool = catalog.tools[name]
    result = tool(**bind(tool.function, tool.parse(arguments), context))
    return str(await result if inspect.isawaitable(result) else result)


def iteration(task: str, *, failed: bool = False) -> str:
    """Return the brief of an iteration: the first or the second one on its task."""
    before = Iteration(number=1, thread="loop-1-1", task=task, started_at=AT, outcome="failed", explanation=GIVEN_UP)
    return iteration_brief(LoopState(thread="loop-1", recent=(before,) if failed else ()), task, number=2)


def test_the_repository_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's configuration nor the clock changes the commit."""
    (tmp_path / ".gitconfig").write_text("[user]\nname = Somebody\n[commit]\ngpgSign = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")

    folder = repository.create(tmp_path / "tally")

    assert git(folder, "rev-parse", "HEAD") == HEAD
    assert [feature.passes for feature in parse_features((folder / "features.json").read_text())] == [False] * 4
    assert not (folder / "TASKS.md").exists()


def test_a_non_empty_folder_is_left_alone(tmp_path: Path) -> None:
    """The repository is created only in an empty folder."""
    (tmp_path / "mine.txt").touch()

    with pytest.raises(FileExistsError, match="not empty"):
        repository.create(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


async def test_the_tests_run_and_leave_nothing_behind(tally: Path) -> None:
    """The tests pass, or the first line of the output says that they fail."""
    test = tally / "tests" / "test_one.py"
    test.write_text(
        "import unittest\n\nclass One(unittest.TestCase):\n    def test(self):\n        self.assertTrue(1)\n"
    )
    assert (await run_tests(context_of(tally))).startswith("Tests passed.\n")

    test.write_text(test.read_text().replace("(1)", "(0)"))
    assert (await run_tests(context_of(tally))).startswith("Tests FAILED (exit code 1).\n")
    assert git(tally, "status", "--porcelain", "--ignored") == "?? tests/test_one.py"


@pytest.mark.skipif(unavailable_reason(DEFAULT) is not None, reason="commands cannot be confined on this machine")
async def test_code_from_the_llm_runs_confined(tally: Path, tmp_path: Path) -> None:
    """A test reaches nothing outside its repository, if the machine supports confinement."""
    (tmp_path / "secret.txt").write_text("mine")
    (tally / "tests" / "test_one.py").write_text(f"print(open({str(tmp_path / 'secret.txt')!r}).read())\n")

    result = await run_tests(context_of(tally))

    assert "No such file" in result


def test_all_its_tools_run_without_asking_and_it_has_no_shell() -> None:
    """The policy asks about no tool, and no tool reaches outside the workspace."""
    spec = catalog.spec("builder", default_llm="any")
    verdicts = {tool.name: evaluate(spec.policy, ToolUse(tool.name, tool.effect)).verdict for tool in spec.tools}

    assert set(verdicts.values()) == {"allow"}
    assert {"complete_task", "block_task", "pass_feature", "run_tests"} <= set(verdicts)
    assert not {"run_command", "run_confined", "learn_strategy"} & set(verdicts)
    assert set(MEMORY_TOOLS) < set(verdicts)


def test_its_files_and_its_skill_are_in_its_prompt() -> None:
    """The prompt has room for the memory files and lists the skill."""
    spec = catalog.spec("builder", default_llm="any")

    assert spec.memory.files > 0
    assert [skill.name for skill in spec.skills] == ["test-first"]


@pytest.mark.extended
async def test_the_script_does_everything_with_the_real_tools(tally: Path) -> None:
    """Task by task, the script plans, writes a failing test, code and a passing test, and commits, also after edits."""
    await play(tally, initializer_brief(LoopState(thread="loop-1")), run="plan")
    file = tally / "TASKS.md"
    assert [task.title for task in parse_tasks(file.read_text())] == list(PLAN)
    assert edit_by_hand(file) == (WORDS, f"{WORDS}, and README.md mentions it")
    file.write_text(file.read_text().replace(f"{WORDS}, and README.md mentions it", WORDS).replace(TOP, TOP_MENTIONED))
    Repository(tally).commit_manual_changes("taken-in")

    for number, task in enumerate((WORDS, LINES, TOP_MENTIONED, COMMAND, HELP)):
        words, calls = await play(tally, iteration(task, failed=task == LINES), run=f"run-{number}")
        tests = [result.partition(".")[0].partition(" (")[0] for name, result in calls if name == "run_tests"]
        assert (tests, words) == (["Tests FAILED", "Tests passed"], f"Done. {JOBS[task].what}")
        if task == WORDS:  # left by a first attempt
            words, calls = await play(tally, iteration(LINES), run="first")
            assert GIVEN_UP in words
            assert [result.startswith("Tests FAILED") for name, result in calls if name == "run_tests"] == [True] * 2
            assert "complete_task" not in [name for name, _ in calls]
            (tally / "ERRORS.md").write_text(f"# Errors\n\n{words}\n")  # as the loop does

    assert {task.status for task in parse_tasks(file.read_text())} == {"done"}
    assert all(feature.passes for feature in parse_features((tally / "features.json").read_text()))
    assert git(tally, "status", "--porcelain") == ""
    assert [commit.task for commit in commits(tally, HEAD) if commit.task] == [
        WORDS,
        LINES,
        TOP_MENTIONED,
        COMMAND,
        HELP,
    ]


def test_the_script_ends_at_an_unknown_task() -> None:
    """The script calls nothing, so its task stays open."""
    reply = script(conversation([{"role": "user", "content": iteration("paint the fence")}]))

    assert not reply.calls
    assert "paint the fence" in (reply.text or "")


async def test_the_script_ends_if_a_person_has_changed_its_task(tally: Path) -> None:
    """The rejection by complete_task is its final reply, and it calls nothing more."""
    (tally / "TASKS.md").write_text("- [ ] something else\n")
    messages: list[JSON] = [{"role": "user", "content": iteration(WORDS)}]
    while (reply := script(conversation(messages))).calls:
        calls: list[JSON] = [{"id": str(n), "function": {"name": name}} for n, (name, _) in enumerate(reply.calls)]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        gone_well = {"run_tests": "Tests passed.", "pass_feature": "'words' passes in commit abc1234 (1 file)."}
        refused = "TASKS.md has no open task 'words()'; its open tasks are: 'something else'"
        messages += [
            {"role": "tool", "tool_call_id": made["id"], "content": gone_well.get(made["function"]["name"], refused)}
            for made in calls
        ]

    assert "something else" in (reply.text or "")
    assert sum(message.get("role") == "assistant" for message in messages) == 7


def test_a_person_rewords_the_first_open_task_and_adds_one(tmp_path: Path) -> None:
    """Completed tasks stay unchanged; if none is open, a task is only added."""
    file = tmp_path / "TASKS.md"
    file.write_text("- [x] one\n- [ ] two\n- [ ] three\n")

    assert edit_by_hand(file) == ("two", "two, and README.md mentions it")
    assert file.read_text() == f"- [x] one\n- [ ] two, and README.md mentions it\n- [ ] three\n- [ ] {HELP}\n"

    file.write_text("- [x] one\n")
    assert edit_by_hand(file) is None
    assert file.read_text() == f"- [x] one\n- [ ] {HELP}\n"


def test_git_shows_who_did_what(tally: Path) -> None:
    """A commit names its key, its thread and the task that it completes; a person's change is a separate commit."""
    (tally / "TASKS.md").write_text("- [ ] one\n")
    made = Repository(tally, author="builder")
    made.commit_manual_changes("key-0")
    (tally / "one.py").touch()
    made.commit_once("key-1", "Complete: one", trailers={"Holdfast-Thread": "loop-1-0"})
    (tally / "two.py").touch()
    settled = {"Holdfast-Thread": "loop-1-1", "Holdfast-Iteration": "1"}
    made.commit_once("key-2", "Commit work left by iteration 1: two", trailers=settled)

    first, second, third = commits(tally, HEAD)

    assert (first.subject, first.key, first.paths) == (f"{BY_HAND}TASKS.md", "key-0", ("TASKS.md",))
    assert (second.task, second.key, second.thread, second.settled) == ("one", "key-1", "loop-1-0", False)
    assert (third.task, third.thread, third.settled) == ("", "loop-1-1", True)


def test_a_log_shows_which_calls_committed() -> None:
    """Calls that failed or had nothing to commit are omitted."""
    results = [
        ("ok", "Completed 'one' in commit abc1234 (2 files)."),
        ("failed", "no commit: try in commit abc1234 again"),
        ("ok", "Nothing to commit: the last commit has everything already."),
    ]
    events: list[Any] = []
    for number, (status, content) in enumerate(results, 1):
        call = ToolCall(id=str(number), name="complete_task", arguments='{"title": "one"}')
        base = {"position": 0, "at": AT, "number": number}
        events += [ToolCallRequested.model_validate({**base, "call": call})]
        events += [ToolCallStarted.model_validate({**base, "key": f"key-{number}"})]
        events += [ToolCallFinished.model_validate({**base, "status": status, "content": content})]

    (found,) = commit_calls("loop-1-0", events)

    assert (found.tool, found.title, found.key, found.commit) == ("complete_task", "one", "key-1", "abc1234")


def test_the_table_reports_faults(tally: Path) -> None:
    """The table reports an unlogged commit, a task done twice, a failing feature and a dirty tree."""
    (tally / "TASKS.md").write_text("- [x] one\n")
    made = Repository(tally, author="builder")
    for number in range(2):
        (tally / f"{number}.txt").touch()
        made.commit_once(f"key-{number}", "Complete: one", trailers={"Holdfast-Thread": "loop-1-0"})
    (tally / "left.txt").touch()
    state = {"status": "completed", "thread": "loop-1", "step": 0, "iterations": []}
    ending = Ending(
        state=state,
        runs=[],
        parents={},
        verified={},
        kills=[],
        repository=tally,
        base=HEAD,
        renamed=None,
        scripted=False,
        seconds=0.0,
    )

    wrong = {row.fact.strip(): row.found for row in rows(ending) if not row.right}

    assert wrong["commits that complete a task"] == 2
    assert wrong["tasks completed by more than one"] == 1
    assert wrong["features that pass"] == "0 of 4"
    assert wrong["their commits in git, by Holdfast-Key"] == 2
    assert wrong["on one side only, or twice"] == 2
    assert wrong["not committed"] == "?? left.txt"
    scripted = {row.fact.strip() for row in rows(dataclasses.replace(ending, scripted=True)) if not row.right}
    assert "killed after a commit, before its record" in scripted


@pytest.mark.slow
def test_the_demo_is_killed_edited_and_finished(tmp_path: Path) -> None:
    """`make demo-loop` ends with every fact right, and leaves nothing running."""
    facts = play_demo("holdfast.examples.loop.demo", tmp_path)

    assert facts["killed after a commit, before its record"] == "yes"
    assert facts["that loaded the skill"] == "6"
    assert facts["tasks in TASKS.md that are done"] == "5 of 5"
    assert facts["tasks completed by more than one"] == "0"
    assert facts["features that pass"] == "4 of 4"
    assert facts["logs that `verify` finds intact"] == "7"
    assert facts["on one side only, or twice"] == "0"
    assert facts["the repository's tests, run now"] == "Ran 11 tests"

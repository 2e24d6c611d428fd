"""The facts at the end of the demo: whether git, the logs and the files agree about the work done."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast import AgentEvent, MemoryRecalled, ToolCallRequested, UserMessageReceived
from holdfast.core.memory.features import parse_features
from holdfast.core.memory.tasks import parse_tasks
from holdfast.examples.loop.commits import BY_HAND, Commit, CommitCall, commit_calls, commits
from holdfast.examples.loop.jobs import COMMAND, HELP, LINES, TOP_MENTIONED, WORDS
from holdfast.examples.loop.repository import AUTHOR
from holdfast.examples.loop.tools import TEST_COMMAND
from holdfast.examples.loop.watch import JSON
from holdfast.examples.shared.facts import Kill, Row
from holdfast.examples.shared.git import run_git
from holdfast.examples.shared.run import Run

ORDER = (WORDS, LINES, TOP_MENTIONED, COMMAND, HELP)
"""The order in which the scripted agents complete the tasks, with a person's changes."""
OUTCOMES = ("completed", "completed", "failed", "completed", "completed", "completed", "completed")
"""The outcomes of the scripted iterations: the plan, then one task each, one of which takes two attempts."""


@dataclass(frozen=True)
class Ending:
    """The demo's loop after its end."""

    state: JSON
    """The loop's state, as `starter.py show` prints it."""
    runs: list[Run]
    parents: dict[str, str]
    """The workflow that started each thread."""
    verified: dict[str, bool]
    """Whether `starter.py verify` finds each thread intact."""
    kills: list[Kill]
    repository: Path
    base: str
    """The commit before the loop began."""
    renamed: tuple[str, str] | None
    """The title of the reworded task, before and after."""
    scripted: bool
    seconds: float

    @cached_property
    def commits(self) -> list[Commit]:
        """The commits since the loop began, oldest first."""
        return commits(self.repository, self.base)

    @cached_property
    def calls(self) -> list[CommitCall]:
        """The calls that committed, in the order of the logs."""
        return [call for run in self.runs for call in commit_calls(run.thread, run.events)]

    def read(self, name: str) -> str:
        """Return the text of a file; empty if it does not exist."""
        file = self.repository / name
        return file.read_text(encoding="utf-8") if file.exists() else ""


def rows(ending: Ending) -> list[Row]:
    """Return every fact with its expected value."""
    return [
        *_loop_rows(ending),
        *_kill_rows(ending),
        *_task_rows(ending),
        *_failure_rows(ending),
        *_person_rows(ending),
        *_commit_rows(ending),
        Row("total time", f"{ending.seconds:.1f} s"),
    ]


def _loop_rows(ending: Ending) -> Iterator[Row]:
    outcomes = [each["outcome"] for each in ending.state["iterations"]]
    own = {thread for thread, parent in ending.parents.items() if parent == ending.state["thread"]}
    yield Row("loop", ending.state["status"], "completed")
    yield Row("iterations", ", ".join(outcomes), _wanted(ending, ", ".join(OUTCOMES)))
    yield Row("  child workflows with a thread of their own", len(own), ending.state["step"])
    loaded = sum(any(map(_loads_skill, run.events)) for run in ending.runs)
    yield Row("  that loaded the skill", loaded, _wanted(ending, len(OUTCOMES) - 1))
    yield Row("  logs that `verify` finds intact", sum(ending.verified.values()), ending.state["step"])


def _loads_skill(event: AgentEvent) -> bool:
    return isinstance(event, ToolCallRequested) and event.call.name == "read_skill"


def _kill_rows(ending: Ending) -> Iterator[Row]:
    """Check that one kill came between commit and record; the demo then stops killing."""
    yield Row("killed after a commit, before its record", _yes(_in_time(ending)), _wanted(ending, "yes"))
    for number, kill in enumerate(ending.kills, 1):
        yield Row(f"  {number}. {kill.what}: on the server", kill.seen)


def _in_time(ending: Ending) -> bool:
    return any(kill.seen == kill.wanted for kill in ending.kills)


def _task_rows(ending: Ending) -> Iterator[Row]:
    tasks = parse_tasks(ending.read("TASKS.md"))
    features = parse_features(ending.read("features.json"))
    done = [task.title for task in tasks if task.status == "done"]
    order = [commit.task for commit in ending.commits if commit.task]
    twice = [task for task, count in Counter(order).items() if count > 1]
    yield Row("tasks in TASKS.md that are done", _of(len(done), len(tasks)), _of(len(tasks), len(tasks)))
    yield Row("commits that complete a task", len(order), len(tasks))
    yield Row("  tasks completed by more than one", len(twice), 0)
    yield Row("  in the order of TASKS.md", _yes(order == done), _wanted(ending, "yes"))
    yield Row("  with a person's changes", _yes(order == list(ORDER)), _wanted(ending, "yes"))
    passing = sum(feature.passes for feature in features)
    yield Row("features that pass", _of(passing, len(features)), _of(len(features), len(features)))
    tested = subprocess.run(TEST_COMMAND, cwd=ending.repository, capture_output=True, text=True, check=False)
    ran = next((line for line in tested.stderr.splitlines() if line.startswith("Ran ")), "ran none")
    yield Row("the repository's tests, run now", ran.partition(" in ")[0])
    yield Row("  they pass", _yes(tested.returncode == 0), "yes")


def _failure_rows(ending: Ending) -> Iterator[Row]:
    """Check that a failed iteration is recorded, and that the next one at the same task was informed."""
    failed = [each for each in ending.state["iterations"] if each["outcome"] == "failed"]
    errors = ending.read("ERRORS.md")
    traced = [each for each in failed if each["thread"] in errors]
    briefed = [each for each in failed if f"Iteration {each['number']} failed" in _brief(ending, each["number"] + 1)]
    shown = [each for each in failed if f"Iteration {each['number']} failed" in _files(ending, each["number"] + 1)]
    yield Row("iterations that failed", len(failed), _wanted(ending, 1))
    yield Row("  of them in ERRORS.md", len(traced), len(failed))
    yield Row("  of them in the next iteration's brief", len(briefed), len(failed))
    yield Row("  of them in the files that it is shown", len(shown), len(failed))


def _brief(ending: Ending, number: int) -> str:
    """Return the first message of an iteration."""
    return next((str(event.content) for event in _events(ending, number) if isinstance(event, UserMessageReceived)), "")


def _files(ending: Ending, number: int) -> str:
    """Return the memory files shown to an iteration."""
    recalled = (event for event in _events(ending, number) if isinstance(event, MemoryRecalled))
    return next((tier.text for event in recalled for tier in event.tiers if tier.tier == "files"), "")


def _events(ending: Ending, number: int) -> list[AgentEvent]:
    return ending.runs[number].events if number < len(ending.runs) else []


def _person_rows(ending: Ending) -> Iterator[Row]:
    by_hand = [commit for commit in ending.commits if commit.subject.startswith(BY_HAND)]
    changed = "; ".join(", ".join(commit.paths) for commit in by_hand)
    yield Row("commits of what a person changed", changed, _wanted(ending, "TASKS.md"))
    if ending.renamed:
        before, after = ending.renamed
        completed = [commit.task for commit in ending.commits]
        yield Row("  commits that complete the reworded task", completed.count(after), 1)
        yield Row("  commits that complete it as it was", completed.count(before), 0)


def _commit_rows(ending: Ending) -> Iterator[Row]:
    """Check that git, the logs and TASKS.md have the same actions, each once."""
    logged = Counter((call.key, call.thread, call.commit) for call in ending.calls)
    in_git = Counter(
        (commit.key, commit.thread, commit.hash[:7])
        for commit in ending.commits
        if commit.thread and not commit.settled
    )
    yield Row("calls in the logs that committed", logged.total())
    yield Row("  their commits in git, by Holdfast-Key", in_git.total(), logged.total())
    yield Row("  on one side only, or twice", (logged - in_git).total() + (in_git - logged).total(), 0)
    completing = [call.title for call in ending.calls if call.tool == "complete_task"]
    committed = [commit.task for commit in ending.commits if commit.task]
    done = [task.title for task in parse_tasks(ending.read("TASKS.md")) if task.status == "done"]
    same = completing == committed and sorted(committed) == sorted(done)
    yield Row("  completed tasks in logs, git and TASKS.md", "the same" if same else "not the same", "the same")
    keys = Counter(commit.key for commit in ending.commits)
    yield Row("commits without a key or with a duplicate one", keys[""] + sum(n - 1 for n in keys.values()), 0)
    left = run_git(ending.repository, "status", "--porcelain", author=AUTHOR)
    yield Row("not committed", left or "nothing", "nothing")


def _wanted(ending: Ending, value: object) -> object:
    """Return the expected value with the scripted LLM; None with a real one, which may work differently."""
    return value if ending.scripted else None


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"

"""The catalog and script of the loop kill tests, and the check that files, git and logs agree."""

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

from holdfast import Agent, Catalog, Policy, ToolContext, allow, tool
from holdfast.audit.evidence.loops import verify_loop
from holdfast.client.threads import Threads
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import AgentEvent, ToolCallFinished, ToolCallRequested, ToolCallStarted
from holdfast.core.memory.progress import parse_entries
from holdfast.core.memory.tasks import parse_tasks
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.history_reader import read_events
from holdfast.testing import Conversation, Reply, call, say, together
from holdfast.workspace.file_tools import workspace_tools
from holdfast.workspace.memory.tools import memory_tools

COMMITS = frozenset({"complete_task", "note_learning", "commit_work"})
"""The tools of the script that commit once per call."""


@tool(effect="idempotent")
def count(task: str, context: ToolContext) -> str:
    """Append a line for the task, unless it is there."""
    with (context.workspace / f"{context.key}.count").open("w") as file:
        file.write(task)
    return f"counted {task}"


catalog = Catalog(
    agents=[
        Agent(
            name="builder",
            instructions="Build.",
            policy=Policy(rules=(allow(),)),
            tools=[count, *workspace_tools(confine="never"), *memory_tools()],
        )
    ],
)


def script(conversation: Conversation) -> Reply:
    """Do each task in four steps: a file and a count, a commit in between, completion, a final text."""
    task = conversation.messages[1]["content"].partition("## Your task, from TASKS.md\n\n")[2].partition("\n")[0]
    replies = (
        together(call("write_file", path=f"{task}.txt", content=f"{task}\n"), call("count", task=task)),
        together(call("note_learning", title=task, text=f"{task} is easy"), call("read_file", path="TASKS.md")),
        call("complete_task", title=task, what=f"wrote {task}.txt"),
        say(f"Did {task}."),
    )
    return replies[conversation.replies]


def titles(tasks: int) -> list[str]:
    """Return the titles of that many tasks."""
    return [f"task {number:03}" for number in range(tasks)]


def prepare(workspace: Path, tasks: int) -> None:
    """Create a workspace with that many tasks."""
    workspace.mkdir(parents=True)
    (workspace / "TASKS.md").write_text("# Tasks\n\n" + "".join(f"- [ ] {title}\n" for title in titles(tasks)))


async def judge(client: Client, record: ThreadStore, loop: str, workspace: Path, tasks: int) -> list[str]:
    """Return the faults of a finished loop, one sentence each.

    No task was done twice, none was skipped, and files, git and logs agree.
    """
    wrong = _files(workspace, tasks) + _commits(workspace, tasks)
    state = await client.get_workflow_handle(loop).query("state")
    if (state["status"], state["step"]) != ("completed", tasks):
        wrong.append(f"{loop} is {state['status']} after {state['step']} iterations, not completed after {tasks}")
    verified = await verify_loop(Threads(client, record=record), loop)
    ends = [event async for event in Threads(client, record=record).events(loop, loops=True)]
    outcomes = [event["outcome"] for event in ends if event["type"] == "iteration_ended"]
    if not verified.ok or outcomes != ["completed"] * tasks:
        wrong.append(f"its log says {outcomes}: {verified.reason}")
    recorded: list[str] = []
    for number in range(state["step"]):
        history = await client.get_workflow_handle(f"{loop}-{number}").fetch_history()
        events = read_events(history.events)
        if (altered := first_altered(events)) is not None:
            wrong.append(f"{loop}-{number}: event {altered} was altered")
        recorded += _keys(events)
    committed = _trailers(workspace, f"{loop}-")
    for key, times in (Counter(committed) - Counter(recorded)).items():
        wrong.append(f"commit with key {key}: {times} more than its log has calls")
    for key, times in (Counter(recorded) - Counter(committed)).items():
        wrong.append(f"call with key {key}: {times} more than git has commits")
    return [f"{loop}: {what}" for what in wrong]


def _files(workspace: Path, tasks: int) -> list[str]:
    wrong = []
    parsed = parse_tasks((workspace / "TASKS.md").read_text())
    if [(task.title, task.status) for task in parsed] != [(title, "done") for title in titles(tasks)]:
        wrong.append(f"TASKS.md says {[(task.title, task.status) for task in parsed]}")
    done = [entry.title for entry in reversed(parse_entries((workspace / "progress.txt").read_text()))]
    if done != titles(tasks):
        wrong.append(f"progress.txt says {done}")
    counted = Counter(file.read_text() for file in workspace.glob("*.count"))
    if counted != Counter(titles(tasks)):
        wrong.append(f"counted {counted}")
    wrong += [f"{title}.txt is not there" for title in titles(tasks) if not (workspace / f"{title}.txt").exists()]
    if (workspace / "ERRORS.md").exists():
        wrong.append("ERRORS.md tells of an error, and there was none")
    return wrong


def _commits(workspace: Path, tasks: int) -> list[str]:
    wrong = []
    subjects = [line for line in _git(workspace, "log", "--reverse", "--format=%s") if line.startswith("Complete")]
    if subjects != [f"Complete: {title}" for title in titles(tasks)]:
        wrong.append(f"git says {subjects}")
    if left := _git(workspace, "status", "--porcelain"):
        wrong.append(f"not committed: {left}")
    _git(workspace, "fsck", "--strict")
    return wrong


def _keys(events: Sequence[AgentEvent]) -> list[str]:
    """Return the effect keys of calls that committed, from the log."""
    names = {event.number: event.call.name for event in events if isinstance(event, ToolCallRequested)}
    keys = {event.number: event.key for event in events if isinstance(event, ToolCallStarted)}
    ended = [event for event in events if isinstance(event, ToolCallFinished) and event.status == "ok"]
    return [keys[event.number] for event in ended if names[event.number] in COMMITS]


def _trailers(workspace: Path, threads: str) -> list[str]:
    """Return the effect keys of the agents' commits, from git, without the loop's own commits between iterations."""
    form = "--format=%(trailers:key=Holdfast-Key,valueonly,separator=)|%s"
    lines = [line.partition("|") for line in _git(workspace, "log", form)]
    own = ("Commit changes", "Commit work", "Note that")
    return [key for key, _, subject in lines if key and not subject.startswith(own)]


def _git(workspace: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=workspace, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def describe(wrong: Sequence[str]) -> str:
    """Return all faults as JSON, for an assertion."""
    return json.dumps(list(wrong), indent=2)

"""The loop's agent: instructions, tools, skill, memory and policy.

python worker.py --catalog examples.loop.catalog:catalog
"""

from pathlib import Path

from examples.loop.tools import run_tests
from holdfast import Agent, Catalog, Effect, Limits, Memory, Policy, allow
from holdfast.runtime.memory.skills import load_skills
from holdfast.runtime.memory.tools import memory_tools
from holdfast.runtime.workspace.file_tools import workspace_tools

INSTRUCTIONS = """\
You build a small Python package, one task at a time. Your workspace is its git repository.

You have no memory of your own: what you need to know is in the files, and what the next agent needs to know, you have
to write there. The first message tells you what is yours to do. Do that and no more, even where you see what else
there is to do: add_task is for that.

Use what the tools return, not what you expect. A task that is about code is done test first: the skill test-first says
how. Everything is Python's standard library; nothing can be installed.

- pass_feature says of a feature in features.json that it passes. Call it only when its tests have passed, and before
  complete_task. Never edit features.json otherwise, and never make a test weaker so that it passes.
- complete_task comes last, with the task's very title and the files that matter, and only after run_tests has said
  that all tests pass. It commits everything; you need no other commit.
- If you see that you cannot finish, end without complete_task, and say what you tried and what the matter is, so that
  the next agent begins there. If it is something that only a person can mend, call block_task.
- People edit the files while you work. If a tool says that your task was changed or is gone, stop, and say so.
"""

FILE_TOOLS = ("list_files", "read_file", "search_files", "write_file", "edit_file")
"""Of the workspace's tools, those that the agent has: no shell."""

MEMORY_TOOLS = (
    *("read_tasks", "add_task", "complete_task", "block_task"),
    *("note_error", "note_learning", "pass_feature", "commit_work"),
)
"""Of the tools on memory files, those that the agent has: it changes its own instructions in no way."""

POLICY = Policy(
    rules=(
        allow(effect=Effect.READ),
        *(allow(name) for name in ("write_file", "edit_file", "run_tests")),
        *(allow(name) for name in MEMORY_TOOLS),
    )
)
"""Everything it has runs at once: nothing of it leaves the workspace, and every change is a commit to look at."""

builder = Agent(
    name="builder",
    instructions=INSTRUCTIONS,
    tools=(*FILE_TOOLS, *MEMORY_TOOLS, run_tests.spec.name),
    skills=("test-first",),
    memory=Memory(files=4_000),
    policy=POLICY,
    limits=Limits(max_steps=60),
)
"""Does one task of a loop, or writes its plan."""

catalog = Catalog(
    agents=[builder],
    tools=[*workspace_tools(), *memory_tools(), run_tests],
    skills=load_skills(Path(__file__).parent / "skills"),
)
"""What the worker offers."""

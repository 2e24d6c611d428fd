"""The loop's agent: instructions, tools, skill, memory and policy.

python worker.py --catalog holdfast.examples.loop.catalog:catalog
"""

from pathlib import Path

from holdfast import Agent, Catalog, Effect, Limits, Memory, Policy, allow, load_skills, memory_tools, workspace_tools
from holdfast.examples.loop.tools import run_tests

INSTRUCTIONS = """\
You build a small Python package, one task at a time. Your workspace is its git repository.

You have no memory of your own: the files contain what you need to know, and you must write down in them what the next
agent needs to know. The first message gives you your task. Do that and no more; use add_task for other work that you
find.

Rely on what the tools return, not on what you expect. Write code test first, as the skill test-first describes. Use
only Python's standard library; nothing can be installed.

- pass_feature marks a feature in features.json as passing. Call it only when its tests have passed, and before
  complete_task. Never edit features.json otherwise, and never weaken a test to make it pass.
- Call complete_task last, with the task's exact title and the files that matter, and only after run_tests has reported
  that all tests pass. It commits everything; you need no other commit.
- If you cannot finish, end without complete_task, and say what you tried and what the problem is, so that the next
  agent can continue there. If only a person can fix the problem, call block_task.
- People edit the files while you work. If a tool says that your task was changed or removed, stop, and say so.
"""

FILE_TOOLS = ("list_files", "read_file", "search_files", "write_file", "edit_file")
"""The workspace tools of the agent; it has no shell."""

MEMORY_TOOLS = (
    *("read_tasks", "add_task", "complete_task", "block_task"),
    *("note_error", "note_learning", "pass_feature", "commit_work"),
)
"""The memory tools of the agent; it cannot change its own instructions."""

POLICY = Policy(
    rules=(
        allow(effect=Effect.READ),
        *(allow(name) for name in ("write_file", "edit_file", "run_tests")),
        *(allow(name) for name in MEMORY_TOOLS),
    )
)
"""All tools run without approval: they affect only the workspace, and every change is a commit that can be reviewed."""

builder = Agent(
    name="builder",
    instructions=INSTRUCTIONS,
    tools=(*FILE_TOOLS, *MEMORY_TOOLS, run_tests.spec.name),
    skills=("test-first",),
    memory=Memory(files=4_000),
    policy=POLICY,
    limits=Limits(max_steps=60),
)
"""Completes one task of a loop, or writes its plan."""

catalog = Catalog(
    agents=[builder],
    tools=[*workspace_tools(), *memory_tools(), run_tests],
    skills=load_skills(Path(__file__).parent / "skills"),
)
"""The catalog that the worker offers."""

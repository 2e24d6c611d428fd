"""Briefs: the task that a loop gives to the initializer, and those for the agents of its iterations."""

from holdfast.core.loop.state import Iteration, LoopState

_FILES = """\
The workspace is a git repository. The agents of this loop, and people, share information only through these files in
it: TASKS.md (the tasks: `- [ ] title`, one line each, in order), progress.txt (what was done, newest first), ERRORS.md
(what went wrong), LEARNINGS.md (what is worth knowing) and features.json (what has to work in the end)."""

_PLAN = """\
Look at the workspace. Then write the plan into TASKS.md: tasks in the order in which to do them, each small enough for
one agent in one run, each with a title that says what will be true when it is done. Write down in LEARNINGS.md how to
build and test here. Do none of the tasks yourself. Finally call commit_work, and say in a sentence what the plan is."""

_WORK = """\
Read what the files say about your task. Do this one task and no other, and test that it works. Then call complete_task
with the exact title above: it marks the task, records your progress and commits everything. If the task cannot be done
here, call block_task with the reason instead. Record what the next agents should know with note_learning, and what went
wrong with note_error. Finally say in a sentence what you have done."""


def initializer_brief(state: LoopState) -> str:
    """Write the initializer's task."""
    return _sections(
        f"You plan the work of the loop {state.thread}. Agents with no memory of each other will do it, one task each.",
        ("The goal of the loop", state.task or "Everything in features.json passes."),
        ("The files", _FILES),
        ("What to do", _PLAN),
    )


def iteration_brief(state: LoopState, task: str, *, number: int) -> str:
    """Write an iteration's task."""
    failed = [each for each in state.recent if each.task == task and each.outcome == "failed"]
    return _sections(
        f"You are iteration {number} of the loop {state.thread}. Only the files carry information from earlier "
        "iterations.",
        ("Your task, from TASKS.md", task),
        ("The files", _FILES),
        ("Earlier attempts at this task", "\n".join(map(_attempt, failed[-3:]))),
        ("What to do", _WORK),
    )


def _attempt(iteration: Iteration) -> str:
    return f"- Iteration {iteration.number} failed: {iteration.explanation}"


def _sections(first: str, *sections: tuple[str, str]) -> str:
    return "\n\n".join([first, *(f"## {title}\n\n{text}" for title, text in sections if text)])

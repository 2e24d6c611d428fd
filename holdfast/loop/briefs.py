"""What a loop tells its agents: the task of the initializer's run, and of each iteration's."""

from holdfast.loop.state import Iteration, LoopState

_FILES = """\
The workspace is a git repository. These files in it are all that agents of this loop, and people, know of each other:
TASKS.md (what is to do: `- [ ] title`, one line each, in order), progress.txt (what was done, newest first), ERRORS.md
(what went wrong), LEARNINGS.md (what is worth knowing) and features.json (what has to work in the end)."""

_PLAN = """\
Look at the workspace. Then write the plan into TASKS.md: tasks in the order in which they are to be done, each small
enough for one agent in one go, each with a title that says what will be true when it is done. Put down in LEARNINGS.md
how to build and test here. Do none of the tasks yourself. At last call commit_work, and say in a sentence what the plan
is."""

_WORK = """\
Read what the files say about your task. Do this one task and no other, and test that it works. Then call complete_task
with the very title above: it marks the task, notes your progress and commits everything. If the task cannot be done
here, call block_task with the reason instead. What the next agents should know goes into note_learning, what went wrong
into note_error. At last say in a sentence what you have done."""


def initializer_brief(state: LoopState) -> str:
    """The initializer's task."""
    return _sections(
        f"You prepare the work of the loop {state.thread}. Agents with no memory of each other do it, one task each.",
        ("What all of it is for", state.task or "Everything in features.json passes."),
        ("The files", _FILES),
        ("What to do", _PLAN),
    )


def iteration_brief(state: LoopState, task: str, *, number: int) -> str:
    """An iteration's task."""
    failed = [each for each in state.recent if each.task == task and each.outcome == "failed"]
    return _sections(
        f"You are iteration {number} of the loop {state.thread}, and know nothing of those before you but what the "
        "files say.",
        ("Your task, of TASKS.md", task),
        ("The files", _FILES),
        ("Earlier attempts at it", "\n".join(map(_attempt, failed[-3:]))),
        ("What to do", _WORK),
    )


def _attempt(iteration: Iteration) -> str:
    return f"- Iteration {iteration.number} failed: {iteration.explanation}"


def _sections(first: str, *sections: tuple[str, str]) -> str:
    return "\n\n".join([first, *(f"## {title}\n\n{text}" for title, text in sections if text)])

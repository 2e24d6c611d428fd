"""The scripted LLM of the loop's agent: a pure function of the conversation, so it survives any kill.

Its task is in the first message. Each reply checks the previous result; if that is unsuccessful (a test fails, a person
has changed the task), the agent says so and ends, and its task stays open.
"""

import json
import re
from collections.abc import Sequence

from holdfast.examples.loop.jobs import GIVEN_UP, JOBS, PLAN, Change, Job, Write
from holdfast.testing import Conversation, Reply, call, default_script, say, slow, together

THINKING = 0.15
"""Seconds per reply, so that a viewer can follow."""

_TASK = re.compile(r"^## Your task, from TASKS\.md\n\n(.+)$", re.MULTILINE)
_LOOK = (call("list_files"), call("read_file", path="features.json"))
_TEST = "python -m unittest discover --top-level-directory ."


def script(conversation: Conversation) -> Reply:
    """Return the next reply of the loop's agent."""
    if "complete_task" not in conversation.tools:
        return default_script(conversation)  # another agent's conversation
    replies = _work(conversation) if _task(conversation) else _plan()
    last = min(conversation.replies, len(replies) - 1)
    return slow(replies[last], THINKING)


def _plan() -> Sequence[Reply]:
    """Return the replies of the initializer's run."""
    tasks = "# Tasks\n\n" + "".join(f"- [ ] {title}\n" for title in PLAN)
    return (
        together(*_LOOK, text="I'll read the existing files and the list of features."),
        call("write_file", path="TASKS.md", content=tasks),
        call("commit_work", message="Write the plan"),
        call("note_learning", title="How to test", text=f"`{_TEST}`, or run_tests. Nothing has to be installed."),
        say(f"The plan has {len(PLAN)} tasks, one for each feature; the command is last because it needs the others."),
    )


def _work(conversation: Conversation) -> Sequence[Reply]:
    """Return the replies of an iteration; the last one repeats."""
    task = _task(conversation)
    job = JOBS.get(task)
    if job is None:
        return (say(f"I am a script, and have no answer for {task!r}. Nothing was done."),)
    again = "## Earlier attempts at this task" in _brief(conversation)
    if again or not job.first_code:
        return _successful(conversation, task, job, again=again)
    return (
        _look(again=False),
        _write([job.test]),
        call("run_tests"),
        _write(job.first_code),
        call("run_tests"),
        say(f"I could not finish: a test fails. {GIVEN_UP}; the test is correct and stays."),
    )


def _successful(conversation: Conversation, task: str, job: Job, *, again: bool) -> Sequence[Reply]:
    """Return the replies of a successful attempt: test, code, completion. A second attempt reuses the test."""
    passed = [call("pass_feature", name=job.feature)] if job.feature else []
    opening = [_look(again=again), *([] if again else [_write([job.test])]), call("run_tests")]
    replies = [*opening, _write(job.code), call("run_tests"), *passed, _complete(task, job), say(f"Done. {job.what}")]
    if conversation.replies < len(opening) + 2 or _succeeded(_last(conversation)):
        return replies
    return (say(f"I could not finish. The last result was: {json.dumps(_last(conversation)[:300])}"),)


def _complete(task: str, job: Job) -> Reply:
    files = [job.test.path, *(change.path for change in job.code)]
    return call("complete_task", title=task, what=job.what, files=files)


def _look(*, again: bool) -> Reply:
    errors = [call("read_file", path="ERRORS.md")] if again else []
    return together(call("read_skill", name="test-first"), *_LOOK, *errors)


def _write(changes: Sequence[Change]) -> Reply:
    return together(
        *(
            call("write_file", path=change.path, content=change.content)
            if isinstance(change, Write)
            else call("edit_file", path=change.path, old=change.old, new=change.new)
            for change in changes
        )
    )


def _task(conversation: Conversation) -> str:
    """Return the iteration's task; empty for the initializer."""
    match = _TASK.search(_brief(conversation))
    return match[1] if match else ""


def _brief(conversation: Conversation) -> str:
    """Return the first message of the run."""
    return next((str(m["content"]) for m in conversation.messages if m.get("role") == "user"), "")


def _last(conversation: Conversation) -> str:
    return conversation.results[-1] if conversation.results else ""


def _succeeded(result: str) -> bool:
    """Return whether a result of `run_tests`, or of a tool that commits, is a success."""
    return result.startswith(("Tests passed.", "Nothing to commit")) or " in commit " in result

"""What the scripted LLM does as the loop's agent: it decides from the conversation alone, so it survives any kill.

Its task is in the first message. Each stage looks at what the one before it brought about; where that is not what it
should be (a test fails, a person has changed the task), the agent says so and ends, and its task stays open.
"""

import json
import re
from collections.abc import Sequence

from examples.loop.jobs import GIVEN_UP, JOBS, PLAN, Change, Job, Write
from holdfast.testing import Conversation, Reply, call, default_script, say, slow, together

THINKING = 0.15
"""Seconds that a reply takes: an LLM that answers at once is hard to watch."""

_TASK = re.compile(r"^## Your task, from TASKS\.md\n\n(.+)$", re.MULTILINE)
_LOOK = (call("list_files"), call("read_file", path="features.json"))
_TEST = "python -m unittest discover --top-level-directory ."


def script(conversation: Conversation) -> Reply:
    """The next reply of the loop's agent."""
    if "complete_task" not in conversation.tools:
        return default_script(conversation)  # another agent's conversation
    stages = _work(conversation) if _task(conversation) else _plan()
    last = min(conversation.replies, len(stages) - 1)
    return slow(stages[last], THINKING)


def _plan() -> Sequence[Reply]:
    """The initializer's run."""
    tasks = "# Tasks\n\n" + "".join(f"- [ ] {title}\n" for title in PLAN)
    return (
        together(*_LOOK, text="I'll look at what is there, and at what is to be there."),
        call("write_file", path="TASKS.md", content=tasks),
        call("commit_work", message="Write the plan"),
        call("note_learning", title="How to test", text=f"`{_TEST}`, or run_tests. Nothing has to be installed."),
        say(f"The plan has {len(PLAN)} tasks: a task for each feature, the command last, for it needs the others."),
    )


def _work(conversation: Conversation) -> Sequence[Reply]:
    """The run of an iteration, as far as the conversation lets it come; its last reply holds from there on."""
    task = _task(conversation)
    job = JOBS.get(task)
    if job is None:
        return (say(f"I am a script, and have nothing written down for {task!r}. Nothing was done."),)
    again = "## Earlier attempts at this task" in _brief(conversation)
    if again or not job.first_code:
        return _through(conversation, task, job, again=again)
    return (
        _look(again=False),
        _write([job.test]),
        call("run_tests"),
        _write(job.first_code),
        call("run_tests"),
        say(f"I could not finish: a test fails. {GIVEN_UP}; the test is right, and stays."),
    )


def _through(conversation: Conversation, task: str, job: Job, *, again: bool) -> Sequence[Reply]:
    """Test, code, and what tells of it. An earlier attempt has left its test."""
    passed = [call("pass_feature", name=job.feature)] if job.feature else []
    begun = [_look(again=again), *([] if again else [_write([job.test])]), call("run_tests")]
    stages = [*begun, _write(job.code), call("run_tests"), *passed, _complete(task, job), say(f"Done. {job.what}")]
    if conversation.replies < len(begun) + 2 or _went_well(_last(conversation)):
        return stages
    return (say(f"I could not finish. What came back last: {json.dumps(_last(conversation)[:300])}"),)


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
    """The iteration's task; empty for the initializer."""
    found = _TASK.search(_brief(conversation))
    return found[1] if found else ""


def _brief(conversation: Conversation) -> str:
    """The message that the run began with."""
    return next((str(m["content"]) for m in conversation.messages if m.get("role") == "user"), "")


def _last(conversation: Conversation) -> str:
    return conversation.results[-1] if conversation.results else ""


def _went_well(result: str) -> bool:
    """Whether a result of `run_tests`, or of a tool that commits, lets the agent go on."""
    return result.startswith(("Tests passed.", "Nothing to commit")) or " in commit " in result

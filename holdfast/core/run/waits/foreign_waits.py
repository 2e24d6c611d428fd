"""Calls of foreign tools that have no result yet: their server asks people, or continues them as a task. Pure.

1. A question is asked on the terms on which the call was approved; it expires like an approval, and is then declined.
2. Nothing of a call that asks has happened. With the answer, it starts again, in the next epoch of its effect.
3. Nobody is asked in an unattended run, nor once the LLM notes its learnings: the call ends, and the server is not
   told.
4. A call of a run that was closed is not continued: its outcome is unknown.
"""

from datetime import datetime

from holdfast.core.authority.server_questions import question_preview
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.rules.approval_requests import new_request
from holdfast.core.run.rules.authority import ask_all_policies
from holdfast.core.run.rules.unattended import APPROVAL_REQUIRED
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.foreign_waits import ForeignTask, ServerQuestion
from holdfast.core.tools.triggers import TaskTrigger

QUESTION: str = "question of its server"
"""The rule of a request that no policy has led to."""


def on_pending(state: RunState, call: CallState, outcome: ToolOutcome, *, at: datetime) -> list[ev.AgentEvent]:
    """Return the events that follow from an outcome that is a question or a task.

    Args:
        state: The state before.
        call: The call, which is under way.
        outcome: Its outcome.
        at: Now.
    """
    if call.phase == "orphaned":
        content = "The run was closed from outside before its server had finished this. Its outcome is unknown."
        return [ev.ToolCallFinished(number=call.number, status="unknown", content=content)]
    if outcome.task:
        return [ev.DormancyBegan(number=call.number, trigger=_trigger(outcome.task))]
    assert outcome.question is not None
    return _ask(state, call, outcome.question, signed=outcome.signed, at=at)


def _trigger(task: ForeignTask) -> TaskTrigger:
    return TaskTrigger(kind="task", server=task.server, task=task.id, interval=task.interval)


def _ask(
    state: RunState, call: CallState, question: ServerQuestion, *, signed: str, at: datetime
) -> list[ev.AgentEvent]:
    if state.unattended or state.ending.learning:
        why = "this run is unattended" if state.unattended else "the run is about to end"
        content = f"Not done: the server {question.server} asks people a question first, and {why}."
        ended = ev.ToolCallFinished(number=call.number, status="denied", content=content)
        return [ended, block_on_question(call)] if state.unattended else [ended]
    verdict = ask_all_policies(state, rule=QUESTION, reason="")
    if call.terms:
        verdict = verdict.model_copy(update={"terms": call.terms, "requirements": call.requirements})
    which = f", about its task {question.task[:100]}" if question.task else ""
    why = f"the server {question.server} asks before it continues{which}"
    request = new_request(state, "question", call.number, call.call, verdict, why=why, at=at)
    request = request.model_copy(update={"question": question, "preview": question_preview(question)})
    request = request.model_copy(update={"digest": request.seen.digest})
    return [ev.AnswerRequested(request=request, signed=signed)]


def block_on_question(call: CallState) -> ev.RunBlocked:
    """Return the block of an unattended run whose call's server asks people."""
    message = f"the server of call {call.number} ({call.call.name}) asks people, and the run is unattended"
    return ev.RunBlocked(cause=APPROVAL_REQUIRED, message=f"{message}: start it attended")


def tasks_of(state: RunState) -> dict[int, str]:
    """Return the tasks of foreign servers that calls of the step continue as, by the numbers of the calls."""
    tasks = {wait.number: wait.trigger.task for wait in state.dormancy.waits if isinstance(wait.trigger, TaskTrigger)}
    asked = (request for request in state.authority.requests if request.question and request.question.task)
    return tasks | {request.number: request.question.task for request in asked if request.question}

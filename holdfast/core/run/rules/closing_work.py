"""The closing work of a run: its notes in progress.txt, and the LLM's learnings. Pure functions.

1. A run with `Memory(progress=True)` records in progress.txt that it begins, that it is blocked, and that it ends. It
   does so with a call of its own, which the policy judges like any other. If that requires approval, the run does not
   make the call, and asks nobody. From feature level 2 on, it also notes the calls with an effect after each step that
   had any, if the policy allows the note.
2. With `Memory(learn=True)`, the LLM is asked for its learnings before the run ends: in one step, in which it may call
   `LEARNING_TOOLS` only. The result of the run is the answer before that.
3. None of this keeps a run from ending: neither a denial, nor a failure, nor the step limit, nor silence.
"""

from datetime import datetime

from holdfast.core.base.canonical import exact_json
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log import events as ev
from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.run.rules.budget import short_of
from holdfast.core.run.rules.verdicts import denial_of, judge_call
from holdfast.core.run.state.features import NOTES_CALLS
from holdfast.core.run.state.progress import LEARNING_SECONDS, LEARNING_TOOLS, NOTE_TOOLS, PROGRESS_TOOL
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect

ARGUMENT_CHARS, RESULT_CHARS = 200, 100
"""Characters of a call's arguments, and of its result, in a note."""

_TAKE_EFFECT: tuple[ToolStatus, ...] = ("ok", "failed", "undone", "unknown")
"""How a call that ran may end."""

GOAL_CHARS = 500
"""Characters of the task that become the goal in progress.txt, if it has none."""

NOTICE = """\
Your answer stands, and this run ends now. If you have learnt something that later runs should know, and that they \
could not easily find out by themselves, record it now with {tools}: facts, decisions and their reasons, what did not \
work. One call for each thing, in words that make sense on their own. If there is nothing, reply without calls. Other \
tools are not called any more."""


def progress_due(state: RunState, *, at: datetime) -> str:
    """Return the note that is due in progress.txt now; empty for none."""
    spec, ending = state.spec, state.ending
    if spec is None or not state.keeps_progress or spec.tool(PROGRESS_TOOL) is None:
        return ""
    if state.ends_at(at):
        asks = not state.blocked and (ending.learning == "asked" or learning_due(state))
        due = "" if asks else "completed"
    elif state.blocked:
        due = f"blocked after step {state.steps.count}"
    elif state.awaits_message:
        due = ""
    else:
        due = "in progress" if ending.last_note in ("", "completed") else ""
    if due and due != ending.last_note:
        return due
    return (ending.last_note or "in progress") if ending.calls and _may_note(state) else ""


def line_about(state: RunState, call: ToolCall, ended: ev.ToolCallFinished) -> str:
    """Return the line about a call that the next note has; empty if the note does not name it.

    A note names the calls with an effect that ran, except those that write notes themselves. An agent that was loaded
    by an older release has a tool that takes no such lines.
    """
    tool, keeper = (state.spec.tool(name) if state.spec else None for name in (call.name, PROGRESS_TOOL))
    if tool is None or keeper is None or "calls" not in keeper.parameters.get("properties", {}):
        return ""
    noted = tool.effect is not Effect.READ and tool.name not in NOTE_TOOLS and ended.status in _TAKE_EFFECT
    if not noted or state.features < NOTES_CALLS:
        return ""
    text = _one_line(ended.text, RESULT_CHARS)
    result = f" → {text}" if text else ""
    return f"{call.name} (call {ended.number}), {ended.status}: {_one_line(call.arguments, ARGUMENT_CHARS)}{result}"


def learning_due(state: RunState) -> bool:
    """Return whether the LLM is to be asked for its learnings, once the run would otherwise end."""
    if not state.learns or state.ending.learning or state.steps.used_up or state.account.closing or short_of(state):
        return False
    return bool(_learning_tools(state))


def on_learning_due(state: RunState) -> ev.LearningRequested:
    """Return the event that asks the LLM for its learnings."""
    return ev.LearningRequested(notice=NOTICE.format(tools=" or ".join(_learning_tools(state))))


def on_learning_time(state: RunState, *, at: datetime) -> list[ev.AgentEvent]:
    """Return the event that stops waiting for the LLM's learnings; none if that is not due."""
    if not state.ending.until or state.ending.until > at:
        return []
    return [ev.LearningSkipped(cause="Timeout", message=f"the LLM has not replied within {LEARNING_SECONDS:,} s")]


def refuse_other_tool(state: RunState, call: ToolCall) -> str:
    """Return why a call in the reply with the learnings cannot run; empty if it can."""
    if state.ending.learning != "asked" or call.name in LEARNING_TOOLS:
        return ""
    return f"the run has its answer and ends; now it only calls {' and '.join(_learning_tools(state))}"


def on_complete(state: RunState) -> ev.RunFinished:
    """Return the event that ends the run with the LLM's answer."""
    return ev.RunFinished(outcome="completed", result=state.result, structured=state.structured)


def on_progress_due(state: RunState, *, at: datetime) -> list[ev.AgentEvent]:
    """Return the events of the run's own call that keeps progress.txt: the call, its verdict, and a denial."""
    number, call = state.calls.count + 1, _own_call(state, progress_due(state, at=at))
    past = next((each for each in state.calls.past if (each.tool, each.call_digest) == (call.name, call.digest)), None)
    verdict = judge_call(state, call)
    events: list[ev.AgentEvent] = [
        ev.ToolCallRequested(number=number, call=call, past=past.key if past else "", own=True),
        ev.VerdictGiven(
            number=number,
            verdict=verdict.verdict,
            rule=verdict.rule,
            terms=verdict.terms if verdict.remembered else None,
            requirements=verdict.requirements if verdict.remembered else (),
        ),
    ]
    if verdict.verdict == "deny":
        events.append(ev.ToolCallFinished(number=number, status="denied", content=denial_of(verdict)))
    elif verdict.verdict == "ask":
        why = f"Not called: approval is required ({verdict.rule}), which a run does not ask for on its own behalf"
        events.append(ev.ToolCallFinished(number=number, status="denied", content=why))
    return events


def _may_note(state: RunState) -> bool:
    """Whether the policy allows the note about calls: a note that it denies would be made after every step."""
    return judge_call(state, _own_call(state, state.ending.last_note or "in progress")).verdict == "allow"


def _own_call(state: RunState, due: str) -> ToolCall:
    return ToolCall(id=f"own_{state.calls.count + 1}", name=PROGRESS_TOOL, arguments=_arguments(state, due))


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: 2 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _arguments(state: RunState, due: str) -> str:
    tool = state.spec.tool(PROGRESS_TOOL) if state.spec else None
    assert tool is not None
    why = f" ({state.blocked.cause})" if state.blocked and due.startswith("blocked") else ""
    goal = " ".join(state.task[: 2 * GOAL_CHARS].split())[:GOAL_CHARS]
    last_step = f"{state.steps.count}, {due.partition(' after')[0]}{why}"
    calls = {"calls": list(state.ending.calls)} if state.ending.calls else {}
    return exact_json({**tool.defaults, "goal": goal, "last_step": last_step, **calls})


def _learning_tools(state: RunState) -> list[str]:
    return [name for name in LEARNING_TOOLS if state.spec and state.spec.tool(name)]

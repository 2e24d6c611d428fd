"""The calls that the run itself carries out, in place of an activity (`ToolSpec.kind`)."""

from datetime import datetime

from holdfast.authority.refinements import REFINE_TOOL
from holdfast.log.events import AgentEvent
from holdfast.run.dormancy import on_sleep
from holdfast.run.refining import on_refine_call
from holdfast.run.results import on_result
from holdfast.run.state import RunState
from holdfast.run.subagents import on_subagent_call
from holdfast.tools.spec import FINAL_RESULT
from holdfast.tools.subagents import SUBAGENT_TOOLS


def on_runtime_call(state: RunState, number: int, *, at: datetime) -> list[AgentEvent]:
    """Return the events that follow the start of such a call.

    Args:
        state: The state before the start.
        number: The call's number.
        at: Now.
    """
    if state.calls.get(number).call.name == FINAL_RESULT:
        return on_result(state, number)
    if state.calls.get(number).call.name == REFINE_TOOL:
        return on_refine_call(state, number)
    if state.calls.get(number).call.name in SUBAGENT_TOOLS:
        return on_subagent_call(state, number)
    return on_sleep(state, number, at=at)

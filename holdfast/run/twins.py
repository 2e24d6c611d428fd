"""The very same call of an `unsafe` tool twice in one reply.

How often such an effect has happened cannot be found out later, and an LLM that means two can say so again.
"""

from collections.abc import Sequence

from holdfast.llm.blocks import ToolCall
from holdfast.log.events import AgentEvent, ToolCallRequested, VerdictGiven
from holdfast.run.features import UNSAFE_ONCE_A_REPLY
from holdfast.run.state import RunState
from holdfast.tools.effects import Effect

NOT_TWICE = (
    "Not called: this reply has the very same call already, as call {twin}, and how often such a call has happened "
    "cannot be found out later. If it is to happen twice, call it again when you have the first result."
)


def twin_of(state: RunState, call: ToolCall, events: Sequence[AgentEvent]) -> int:
    """Return the number of the very same `unsafe` call before it in the reply; 0 for none.

    Args:
        state: The state before the reply.
        call: The call.
        events: What has followed from the reply so far.
    """
    tool = state.spec.tool(call.name) if state.spec else None
    if state.features < UNSAFE_ONCE_A_REPLY or tool is None or tool.effect is not Effect.UNSAFE:
        return 0
    given = {event.number for event in events if isinstance(event, VerdictGiven) and event.verdict != "deny"}
    requested = [event for event in events if isinstance(event, ToolCallRequested) and event.number in given]
    return next((event.number for event in requested if event.call.digest == call.digest), 0)

"""The result of an agent with a result type (`Agent(result=…)`). Pure functions over the run's state.

1. The LLM gives the result by a call of `final_result`, whose arguments the worker validates against the type. Invalid
   arguments, and those read by a worker without the type, return to the LLM and count as an unusable reply.
2. No policy judges the call: it does no more than the reply that ends a run of another agent.
3. The result has the trust level of the transcript, like any reply.
4. When the budget is spent, the LLM may still give the result with its last call, even beside calls that no longer run.
   A result in plain text is not structured.
"""

from pydantic_core import from_json

from holdfast.core.base.canonical import exact_json
from holdfast.core.budget.tree import tree_cost
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import AgentEvent, MessageAwaited, RunFinished, ToolCallFinished
from holdfast.core.run.contracts.commands import End, Failure
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.runs import RunResult
from holdfast.core.run.state.features import RESULT_NAMES_LLM, RESULT_NAMES_RUN
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.spec import FINAL_RESULT

MISSING = f"it gives no result: a call of `{FINAL_RESULT}` gives it."
NOTICE = f"[Your reply is not taken as the result. Give it with a call of `{FINAL_RESULT}`, alone.]"

_ALONE = f"call `{FINAL_RESULT}` alone, after the results of all other calls"
_UNREAD = "the worker that took in the reply has no result type for the agent: it is of another release, or deployment"
_LATER = f"Another message has arrived before the end. Read it, then call `{FINAL_RESULT}` again."


def accept_answer(state: RunState, result: str, *, structured: bool = False) -> list[AgentEvent]:
    """Return the event that accepts the LLM's answer: the end of the run, unless something has to come before it."""
    if (state.idle.limit or 0) > 0 or state.pause or state.has_closing_work:  # a paused run stays open
        return [MessageAwaited(result=result, structured=structured)]
    return [RunFinished(outcome="completed", result=result, structured=structured)]


def refuse_result(state: RunState, reply: LLMReply, call: ToolCall) -> str:
    """Return why a result is rejected; empty if it is accepted, and for calls of other tools."""
    if call.name != FINAL_RESULT or state.spec is None or not state.spec.gives_result or reply.message is None:
        return ""
    names = [each.name for each in reply.message.tool_calls]
    # No other tool runs in the last call.
    together = names.count(FINAL_RESULT) if state.account.closing == "asked" else len(names)
    return _ALONE if together > 1 else "" if call.id in reply.arguments else _UNREAD


def on_result(state: RunState, number: int) -> list[AgentEvent]:
    """Return the events that follow the start of a call of `final_result`.

    Args:
        state: The state before the start.
        number: The call's number.
    """
    value = exact_json(from_json(state.calls.get(number).call.arguments)["result"])
    if state.inbox.waiting:
        # After the budget is spent, the LLM has no further call to give the result again.
        kept = [MessageAwaited(result=value, structured=True)] if state.account.closing else []
        return [ToolCallFinished(number=number, status="ok", content=_LATER), *kept]
    finished = ToolCallFinished(number=number, status="ok", content="This is the result.")
    return [finished, *accept_answer(state, value, structured=True)]


def end_of(state: RunState, *, first_run_id: str) -> End:
    """Return how a Temporal run ends after its thread has reached an outcome.

    Args:
        state: The final state.
        first_run_id: Temporal's first execution run id.
    """
    if state.outcome not in ("completed", "moved"):
        return End(failure=Failure(state.failure, state.result, cancelled=state.outcome == "cancelled"))
    result = RunResult(
        result=state.result,
        structured=state.structured,
        steps=state.steps.count,
        usage=state.usage,
        llm=state.spec.llm if state.spec and state.features >= RESULT_NAMES_LLM else "",
        refinements=len(state.refinements),
        moved=state.outcome == "moved",
        first_run_id=first_run_id if state.features >= RESULT_NAMES_RUN else "",
    )
    if state.origin.lineage:
        constraints = state.constraints.to_propagate(state.updated_at, to_parent=True)
        for_parent = {"trust": state.context.trust, "constraints": constraints, "cost": tree_cost(state.account)}
        result = result.model_copy(update=for_parent)
    elif state.origin.caller:
        result = result.model_copy(update={"trust": state.context.trust})
    return End(result=result)

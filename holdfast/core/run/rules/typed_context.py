"""The typed context of a run, as policies read it and tools change it. Pure functions over the run's state.

A tool changes only the fields that it declares in the agent that the run recorded, whatever a worker returns.
"""

from typing import Any

from holdfast.core.log.events import ContextUpdated
from holdfast.core.run.state.features import TYPED_CONTEXT
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.numbers import with_floats
from holdfast.core.tools.typed_context import context_excess


def context_variable(state: RunState) -> dict[str, Any] | None:
    """Return the variable `context` of a policy's conditions; None below the level that has it."""
    if state.features < TYPED_CONTEXT:
        return None
    schema = state.spec.context if state.spec else None
    values: dict[str, Any] = with_floats(state.typed_context.values or {}, schema or {})
    return values


def context_change(state: RunState, number: int, changes: dict[str, Any]) -> list[ContextUpdated]:
    """Return the event that changes the context; none if the tool may not change a field, or the context gets too
    large.

    Args:
        state: The run's state.
        number: The number of the call that returned the changes.
        changes: The new values of some fields.
    """
    writes = state.writes_of(state.calls.get(number).call.name)
    if not changes or not changes.keys() <= set(writes):
        return []
    if context_excess({**(state.typed_context.latest or {}), **changes}):
        return []
    return [ContextUpdated(number=number, changes=changes)]

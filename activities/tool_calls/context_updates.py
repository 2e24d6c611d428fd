"""Changes of the run's typed context by a tool, as far as a worker can check them.

The run itself has the last word (`holdfast.core.run.rules.typed_context`): it accepts only the fields that the recorded
agent lets the tool change.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from holdfast.core.base.canonical import canonical
from holdfast.core.tools.decorator import Found, Labelled
from holdfast.core.tools.partial import Partial
from holdfast.core.tools.results import error_text
from holdfast.core.tools.secrets import Secrets
from holdfast.core.tools.typed_context import ContextUpdate, context_excess, read_context
from holdfast.errors import ContextInvalid


@dataclass(frozen=True)
class CallContext:
    """The typed context of a run as one call has it."""

    values: Mapping[str, Any] | None = None
    """The values; None if the tool wants none, or if the run has none."""
    writes: tuple[str, ...] = ()
    """The fields that the call may change."""


NO_CONTEXT = CallContext()


def split_update(value: Any) -> tuple[Any, Any]:
    """Split a tool's return value into its result and the changes of the context; None for no changes."""
    if isinstance(value, ContextUpdate):
        return value.result, value.changes
    if isinstance(value, Labelled | Found | Partial) and isinstance(value.result, ContextUpdate | Found):
        result, changes = split_update(value.result)
        return replace(value, result=result), changes
    return value, None


def checked_changes(
    changes: object, context: CallContext, models: tuple[type[BaseModel], ...], secrets: Secrets
) -> dict[str, Any]:
    """Return changes as JSON, with the values that the models make of them.

    Args:
        changes: A mapping of fields to values, or an instance of the context's model.
        context: The context of the call.
        models: The models by which the tool wants the context.
        secrets: Values that must not be recorded.

    Raises:
        ContextInvalid: The tool may not change a field, or the context would not fit a model.
    """
    try:
        given = _as_json(changes, context)
    except ContextInvalid:
        raise
    except Exception as error:  # the values' own methods may raise anything
        raise ContextInvalid(f"the changes have no JSON: {error_text(error)}") from None
    if not given:
        return {}
    if unknown := [name for name in given if name not in context.writes]:
        raise ContextInvalid(f"the tool may not change {unknown[0][:100]!r}; it declares writes={context.writes!r}")
    merged = {**(context.values or {}), **given}
    if why := context_excess(merged):
        raise ContextInvalid(f"the context {why}")
    for model in models:
        read = read_context(model, merged, more=True)
        fitted = read.model_dump(mode="json", by_alias=False, round_trip=True)
        given = {name: fitted.get(name, value) for name, value in given.items()}
    text = canonical(given).decode()
    if secrets.redact(text) != text:
        raise ContextInvalid("the changes hold the value of a secret, which is never recorded")
    recorded: dict[str, Any] = json.loads(text)
    return recorded


def _as_json(changes: object, context: CallContext) -> dict[str, Any]:
    if isinstance(changes, BaseModel):
        dumped = changes.model_dump(mode="json", by_alias=False, round_trip=True)
        before = context.values or {}
        return {name: value for name, value in dumped.items() if name not in before or before[name] != value}
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in changes):
        raise ContextInvalid(f"the changes are {type(changes).__name__}, not a mapping of fields to values")
    converted: dict[str, Any] = to_jsonable_python(dict(changes), by_alias=False)
    return converted

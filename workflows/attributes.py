"""The search attributes of a run: `list`, `publish` and the Web UI find it by them."""

from datetime import datetime
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from holdfast.run.features import DORMANCY
from holdfast.run.state import RunState

_AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
_PENDING = SearchAttributeKey.for_int("HoldfastPending")
_STEP = SearchAttributeKey.for_int("HoldfastStep")
_WAKE_AT = SearchAttributeKey.for_datetime("HoldfastWakeAt")
_ROOT = SearchAttributeKey.for_keyword("HoldfastRoot")
_WAITS_FOR = SearchAttributeKey.for_keyword_list("HoldfastWaitsFor")


class Attributes:
    """The search attributes of one Temporal run, which begins with those of the run that it continues."""

    def __init__(self) -> None:
        self._set: dict[SearchAttributeKey[Any], Any] = {}

    def updates(self, state: RunState) -> list[SearchAttributeUpdate[Any]]:
        """Return the updates of what has changed, which count as made; of the status anyway, where nothing has."""
        values = _values(state)
        changed = {key: value for key, value in values.items() if self._set.get(key, ...) != value}
        self._set = values
        return [
            key.value_unset() if value is None else key.value_set(value)
            for key, value in (changed or {_STATUS: state.status}).items()
        ]


def dormancy_of(state: RunState) -> tuple[datetime | None, tuple[str, ...]] | None:
    """Return when a dormant run wakes by itself, and the events that it waits for; None for agents without dormancy."""
    if state.spec is None or not state.spec.can_sleep or state.features < DORMANCY:
        return None
    return state.dormancy.until if state.status == "dormant" else None, state.dormancy.events


def _values(state: RunState) -> dict[SearchAttributeKey[Any], Any]:
    """The value of each attribute that a run has; None for one that is not set."""
    values: dict[SearchAttributeKey[Any], Any] = {
        _STATUS: state.status,
        _PENDING: len(state.authority.requests),
        _STEP: state.steps.count,
    }
    if state.spec:
        values[_AGENT] = state.spec.name
    if state.origin.lineage:
        values[_ROOT] = state.origin.lineage.root
    if dormancy := dormancy_of(state):
        values[_WAKE_AT], values[_WAITS_FOR] = dormancy[0], dormancy[1] or None
    return values

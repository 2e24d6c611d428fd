"""Which of Temporal's runs is a thread's own, as far as a client knows without a look at histories."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.client.reading.ownership import Ownership
from holdfast.client.reading.runs import Runs


class HistoryRead(Exception):
    """A history was read."""


def handle(*given: object, **options: object) -> Any:
    """Stand in for the read of a history."""
    raise HistoryRead


async def test_a_run_that_this_client_has_started_is_its_threads_own() -> None:
    """Its history is not read. That of a later run of the same id is: anybody may have started it."""
    ownership = Ownership(cast(Runs, SimpleNamespace(client=SimpleNamespace(get_workflow_handle=handle))), None)
    ownership.started("own", "first")
    first: Any = SimpleNamespace(id="own", run_id="first")
    assert await ownership.own(first) is first
    assert ownership.foreign("own") is None
    with pytest.raises(HistoryRead):
        await ownership.own(cast(Any, SimpleNamespace(id="own", run_id="second")))

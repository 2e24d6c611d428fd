"""What `show` says about an activity that is being retried."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo

from holdfast.cli.screens.thread_words import retry_text
from holdfast.client.reading.runs import retrying

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "due", "words"),
    [
        (PendingActivityState.PENDING_ACTIVITY_STATE_STARTED, False, "trying now"),
        (PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED, True, "next try in 8 s"),
        (PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED, False, "waits for a free worker"),
    ],
)
def test_a_retry_says_whether_a_worker_tries_it(state: PendingActivityState.ValueType, due: bool, words: str) -> None:
    """If the workers are gone, nobody tries: `trying now` would be untrue."""
    activity = PendingActivityInfo(attempt=2, state=state)
    activity.activity_type.name = "call_tool"
    activity.last_failure.message = "Heartbeat timeout"
    if due:
        activity.next_attempt_schedule_time.FromDatetime(NOW.replace(second=13))
    found = cast(Any, SimpleNamespace(raw_description=SimpleNamespace(pending_activities=[activity])))
    (each,) = retrying(found)
    assert retry_text(each, now=NOW) == f"call_tool: attempt 2, Heartbeat timeout, {words}"

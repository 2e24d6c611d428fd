"""Which runs the worker drops from its cache because a query may have exposed events early."""

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.worker import WorkflowInstance

from holdfast.worker.workflow_runners import GuardedInstance

ALONE, ATTACHED = "legacy_query", "6ba2a9b7"


class Nothing:
    """An instance that does nothing."""

    def activate(self, act: WorkflowActivation) -> None:
        """Do nothing."""


def activation(at: int, length: int, *, replaying: bool = False, query: str = "") -> WorkflowActivation:
    """Return an activation as the SDK passes it to a run: events at a time, up to a length of history, or a query."""
    act = WorkflowActivation(is_replaying=replaying or bool(query), history_length=length)
    act.timestamp.FromNanoseconds(at)
    job = act.jobs.add()
    if query:
        job.query_workflow.query_id = query
    else:
        job.signal_workflow.signal_name = "approve"
    return act


@pytest.mark.parametrize(
    ("acts", "dropped"),
    [
        ([activation(1, 3), activation(2, 8), activation(2, 8, query=ALONE)], []),
        ([activation(1, 3, replaying=True), activation(1, 3, query=ALONE)], []),
        ([activation(1, 3, replaying=True), activation(1, 5), activation(1, 5, query=ALONE)], [5]),
        ([activation(1, 3), activation(1, 5), activation(1, 5, query=ALONE)], [5]),
        ([activation(1, 3, replaying=True), activation(2, 8), activation(2, 8, query=ATTACHED)], []),
        ([activation(1, 3, replaying=True), activation(2, 8), activation(2, 8, query=ALONE)], [8]),
        ([activation(1, 3, replaying=True), activation(2, 8), *[activation(2, 8, query=ALONE)] * 2], [8]),
        ([activation(1, 3, replaying=True), activation(2, 8), activation(3, 9), activation(3, 9, query=ALONE)], []),
    ],
    ids=[
        "a run that has been here since it began",
        "a replay without more events",
        "a replay, and events at its time",
        "events at the time of the task before",
        "a replay, and a workflow task that brings a query",
        "a replay, and events at another time",
        "it is asked once",
        "a replay, and two workflow tasks",
    ],
)
def test_a_run_that_a_query_may_have_shown_events_early_is_dropped(
    acts: list[WorkflowActivation], dropped: list[int]
) -> None:
    """Temporal's history is queried only if the activations of the run leave the question open."""
    asked: list[int] = []
    instance: WorkflowInstance = GuardedInstance(Nothing(), drop=asked.append)  # type: ignore[arg-type]
    for act in acts:
        instance.activate(act)
    assert asked == dropped

"""The ids of threads that a program's workflow starts, and the ids of messages."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.client.start_options import check_own_id
from holdfast.core.run.contracts.called import AgentRunFailed, called_input, thread_of
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.state.context import SEEN, Inbox
from holdfast.core.run.state.features import PLACES


def test_a_workflows_threads_have_ids_of_their_own() -> None:
    """They depend on the workflow, its Temporal run and the number of the call; any workflow id gives a valid one."""
    ids = {
        thread_of(workflow_id, run_id, number, "writer")
        for workflow_id in ("order-1", "x" * 1_000, " \n\t", "ä" * 300)
        for run_id in ("a", "b")
        for number in (1, 2)
    }
    assert len(ids) == 16
    for each in ids:
        assert check_own_id(each) == each
    assert thread_of("order-1", "a", 1, "writer") in ids


def test_an_inbox_keeps_the_latest_ids() -> None:
    """A message is the same under its id if content and sender are; the oldest ids are dropped."""
    inbox = Inbox().record_id("1", "hello", "dana").record_id("", "no id", "dana")
    assert inbox.repeats("1", "hello", "dana") == "same"
    assert inbox.repeats("1", "hello", "mallory") == "other"
    assert inbox.repeats("1", "bye", "dana") == "other"
    assert inbox.repeats("2", "hello", "dana") == ""
    assert inbox.repeats("", "no id", "dana") == ""
    for number in range(SEEN):
        inbox = inbox.record_id(f"new {number}", "hello", "dana")
    assert inbox.repeats("1", "hello", "dana") == ""
    assert len(inbox.seen) == SEEN


def called(nodes: Any) -> RunInput:
    """Return the input of a run that a workflow starts on these nodes."""
    options: dict[str, Any] = dict.fromkeys(("workspace", "idle_limit", "budget", "context", "when_blocked"))
    return called_input(
        "Sort",
        caller="order-1",
        thread="t",
        at=datetime(2026, 1, 2, tzinfo=UTC),
        agent="clerk",
        by="",
        by_proven=False,
        trust="person",
        unattended=False,
        nodes=nodes,
        **options,
    )


def test_a_called_run_has_the_nodes_that_its_workflow_selects() -> None:
    """They are its trust scope, at the level of scopes; what selects no nodes fails the call, not the workflow task."""
    run = called(["region=eu", "studio-2"])
    assert (run.scope, run.features) == ((("region=eu", "studio-2"),), PLACES)
    assert called([]).scope == ()
    for wrong in ("region=eu", ["="], ["a"] * 1_000):
        with pytest.raises(AgentRunFailed, match="nodes"):
            called(wrong)

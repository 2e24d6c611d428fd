"""The ids of threads that a program's workflow starts, and the ids of messages."""

from holdfast.client.start_options import check_own_id
from holdfast.core.run.contracts.called import thread_of
from holdfast.core.run.state.context import SEEN, Inbox


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

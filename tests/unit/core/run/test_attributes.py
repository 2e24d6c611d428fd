"""The search attributes of a run."""

from typing import Any

from holdfast.core.run.state.features import DORMANCY
from holdfast.workflows.driver import Attributes
from tests.support.runs import Thread, calls, loaded_thread


def updates(attributes: Attributes, thread: Thread) -> dict[str, Any]:
    """Return the updates for a thread's status, by name; None for an attribute that is removed."""
    return {update.key.name: update.value for update in attributes.updates(thread.run.state)}


def test_only_attributes_that_change_are_set() -> None:
    """A run first sets all attributes, as it may continue another one's; later only those with a new value."""
    attributes, thread = Attributes(), loaded_thread(features=DORMANCY)
    names = {"HoldfastAgent": "agent", "HoldfastPending": 0, "HoldfastStatus": "running", "HoldfastStep": 0}
    assert updates(attributes, thread) == names
    thread.reply(calls("pay"))
    changed = {"HoldfastPending": 1, "HoldfastStatus": "waiting_approval", "HoldfastStep": 1}
    assert updates(attributes, thread) == changed


def test_the_status_is_set_even_without_a_change() -> None:
    """A workflow task without a command needs this trace in the history."""
    attributes, thread = Attributes(), loaded_thread()
    updates(attributes, thread)
    assert updates(attributes, thread) == {"HoldfastStatus": "running"}

"""What an attempt at a tool call leaves for the next one."""

from functools import partial

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes, abandoned_message
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.temporal.converter import LeanPayloadConverter
from holdfast.core.tools.secrets import Secrets

REQUEST = ToolRequest(
    call=ToolCall(id="c", name="act", arguments="{}"), key="k", first_run_id="run", workspace="", clip=1_000
)
BENIGN = ApplicationError("busy", category=ApplicationErrorCategory.BENIGN)


@pytest.mark.parametrize(
    ("error", "failed"), [(BENIGN, True), (ValueError("no"), True), (Waits("not yet", type="x"), False)]
)
def test_only_our_own_waiting_is_no_failure(error: Exception, failed: bool) -> None:
    """An attempt that waits leaves no failure; an error of the tool does, of any category."""
    notes = AttemptNotes(REQUEST, None)

    environment = ActivityEnvironment()
    environment.payload_converter = LeanPayloadConverter()
    environment.run(partial(notes.record_failure, error, seconds=1, secrets=Secrets({})))
    assert bool(notes.state and notes.state.failures) is failed


@pytest.mark.parametrize(("crashes", "words"), [(1, "1 time the"), (2, "2 times the"), (1_000, "1,000 times the")])
def test_a_call_that_is_given_up_says_how_many_workers_it_took(crashes: int, words: str) -> None:
    """The message counts the workers that died or hung during the call."""
    assert words in abandoned_message("dig", crashes)

"""Failed attempts at a tool call, as its outcome records them."""

import httpx2
import pytest
from pydantic import ValidationError

from holdfast.core.tools.failures import KEPT, MESSAGE_CHARS, AttemptFailure, FailedAttempts, FailureKind, kind_of


def test_the_newest_failures_are_kept_and_all_are_counted() -> None:
    """The record of a call stays small, however often it failed."""
    failures = None
    for number in range(40):
        failures = FailedAttempts.of(failures, AttemptFailure(kind="error", message=f"no {number}"))
    assert failures is not None
    assert (failures.count, len(failures.last), failures.last[-1].message) == (40, KEPT, "no 39")
    assert failures.words == "after 40 failed attempts (error: no 39)"


def test_a_longer_message_is_rejected() -> None:
    """The author of a heartbeat cannot grow the log: the model bounds its messages."""
    with pytest.raises(ValidationError):
        AttemptFailure(kind="error", message="x" * (MESSAGE_CHARS + 1))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (httpx2.ReadTimeout("x"), "timeout"),
        (httpx2.ConnectTimeout("x"), "timeout"),
        (ConnectionResetError(), "connection"),
        (httpx2.ConnectError("x"), "connection"),
        (ValueError("Timeout"), "error"),
        (OSError(), "error"),
    ],
)
def test_an_error_is_classified_by_its_type(error: Exception, kind: FailureKind) -> None:
    """An error is classified by its type and its base types, not by its message."""
    assert kind_of(error) == kind

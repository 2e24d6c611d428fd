"""Vouch for the person in the input of a program's workflow (`holdfast.core.mac.vouched`)."""

from datetime import UTC, datetime
from typing import TypeVar

from holdfast.core.mac.vouched import PersonInput

InputT = TypeVar("InputT", bound=PersonInput)


def vouch_for(by: str, given: InputT) -> InputT:
    """Return a workflow's input that proves the person who asked, to pass to `start_workflow` within ten minutes.

    Call it only if the calling process has authenticated that person. The client needs `HoldfastPlugin`, and a fleet
    key; without one, the name stays a claim.

    Args:
        by: The person.
        given: The workflow's only argument.

    Raises:
        ValidationError: The name could be mistaken for another one.
    """
    return given.vouched(by, at=datetime.now(UTC))

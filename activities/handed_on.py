"""What an attempt hands on to the next one: an answer in its heartbeat, sealed and bound to the one call.

Anybody who reaches Temporal can send a heartbeat, so details without a valid seal are dropped.
"""

from contextlib import suppress
from typing import Any

from temporalio import activity

from holdfast.activities.safe_logs import SafeLogger
from holdfast.seals.orders import Answer, Order, answers
from holdfast.seals.seals import SealKeyUnknown
from holdfast.temporal.sealed_details import AnswerT, from_details, to_details

log = SafeLogger(__name__)


def handed_on(kind: type[AnswerT], order: Order) -> AnswerT | None:
    """Read what the attempts before this one left for it; None for nothing, and for what none of our processes left."""
    details = activity.info().heartbeat_details
    # The details stay in the heartbeat: raising for an unknown key would fail all later attempts.
    with suppress(SealKeyUnknown):
        found = from_details(kind, details, activity.payload_converter())
        if found and answers(found, order):
            return found
    match details:
        case [str(), str()]:
            log.warning("unsealed_heartbeat_dropped", thread=activity.info().workflow_id)
    return None


def to_hand_on(answer: Answer) -> tuple[Any, ...]:
    """Return the details that every heartbeat of this attempt repeats, for the next attempt to read."""
    return to_details(answer, activity.payload_converter())

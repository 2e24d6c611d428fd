"""Orders to activities and their answers: each names the one call that it belongs to.

An order's name is made of the workflow id, the first run id of the chain of Temporal runs, and a number that is counted
through that chain. So it is the same on replay, after continue-as-new and after a reset, and in no other run. An answer
repeats the name: a sealed answer that is copied from one call to another is refused.
"""

from typing import Any

from holdfast.base.digests import digest
from holdfast.base.models import Sealed
from holdfast.seals.seals import is_unsealed

NAME_HEX = 16
"""Hex digits of the digest in a name; the seal is what protects it."""


class Order(Sealed):
    """What an activity is asked to do."""

    order: str = ""
    """The name of the call: `NUMBER.DIGEST`."""


class Answer(Sealed):
    """What an activity returns."""

    answers: str = ""
    """The name of the call that it answers."""


def order_name(*, workflow_id: str, first_run_id: str, number: int) -> str:
    """The name of the call of that number in that chain of runs."""
    return f"{number}.{digest([workflow_id, first_run_id, number])[:NAME_HEX]}"


def belongs(order: Order, *, workflow_id: str, first_run_id: str) -> bool:
    """Whether a run of that chain gave this order."""
    number = order.order.partition(".")[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return False
    return order.order == order_name(workflow_id=workflow_id, first_run_id=first_run_id, number=int(number))


def answers(answer: Any, order: Order) -> bool:
    """Whether this is the sealed answer to that order."""
    return not is_unsealed(answer) and getattr(answer, "answers", None) == order.order

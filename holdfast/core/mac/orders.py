"""Orders to activities and their answers: each is bound to one activity call by its name.

The name derives from the workflow id, the first run id of the chain of Temporal runs, and a counter that continues
through the chain. It is therefore the same on replay, after continue-as-new and after a reset, and unique to the chain.
An answer repeats the name, so a sealed answer that was copied from one call to another is rejected.
"""

from typing import Any

from holdfast.core.base.digests import digest
from holdfast.core.base.models import Sealed
from holdfast.core.mac.seals import is_unsealed

NAME_HEX = 16
"""Hex digits of the digest in a name. So few suffice, because the seal protects the name."""


class Order(Sealed):
    """Base of the inputs of activities."""

    order: str = ""
    """The name of the call: `NUMBER.DIGEST`."""


class Answer(Sealed):
    """Base of the results of activities."""

    answers: str = ""
    """The name of the call that this answers."""


def order_name(*, workflow_id: str, first_run_id: str, number: int) -> str:
    """Name the call of this number in this chain of runs."""
    return f"{number}.{digest(['order/1', workflow_id, first_run_id, number])[:NAME_HEX]}"


def belongs(order: Order, *, workflow_id: str, first_run_id: str) -> bool:
    """Whether a run of this chain issued the order."""
    number = order.order.partition(".")[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return False
    return order.order == order_name(workflow_id=workflow_id, first_run_id=first_run_id, number=int(number))


def answers(answer: Any, order: Order) -> bool:
    """Whether `answer` is the sealed answer to `order`."""
    return not is_unsealed(answer) and getattr(answer, "answers", None) == order.order

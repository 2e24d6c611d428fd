"""The names of constraints, as people read and write them.

A constraint that a tool of the run made has the number of its call: `3`. One that was handed over has a number beyond
all calls; its name is `4.1` for the first one that the sub-agent of call 4 handed up, and `0.1` for the first one that
the run above handed down.
"""

from typing import Any

FIRST_HANDED = 900_000_000
"""The numbers of constraints that were handed over begin here: no call has them."""

HANDED = 50
"""Constraints that a parent run and a sub-agent hand to one another at a time, the newest."""


def constraint_name(number: int) -> str:
    """Return the name of the constraint of that number."""
    if number < FIRST_HANDED:
        return str(number)
    call, index = divmod(number - FIRST_HANDED, HANDED)
    return f"{call}.{index + 1}"


def constraint_origin(number: int) -> str:
    """Return where a constraint was handed over from, in a few words; empty for one of the run's own."""
    if number < FIRST_HANDED:
        return ""
    call = (number - FIRST_HANDED) // HANDED
    return f"from the sub-agent of call {call}" if call else "from the run above"


def constraint_number(name: Any) -> Any:
    """Return the number of the constraint of that name; anything else as it is."""
    if not isinstance(name, str) or len(name) > 20 or not name.isascii():
        return name
    call, dot, place = name.partition(".")
    if not call.isdigit() or (dot and not place.isdigit()):
        return name
    if not dot:
        return int(call)
    return FIRST_HANDED + int(call) * HANDED + int(place) - 1 if 1 <= int(place) <= HANDED else name

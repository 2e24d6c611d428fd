"""The names of constraints, as people read and write them.

A constraint that one of the run's own tools made has the number of that call: `3`. One that came from another run has a
number beyond all calls, and a name with a dot: `4.1` is the first one that the sub-agent of call 4 propagated to its
parent, `0.1` the first one that the parent run passed to this sub-agent.
"""

from typing import Any

FIRST_PROPAGATED = 900_000_000
"""The first number of constraints from another run; no call gets so high."""

MAX_PROPAGATED = 50
"""Maximum number of constraints, the newest ones, that a parent run and a sub-agent pass to each other at once."""


def constraint_name(number: int) -> str:
    """Return the name of the constraint with this number."""
    if number < FIRST_PROPAGATED:
        return str(number)
    call, index = divmod(number - FIRST_PROPAGATED, MAX_PROPAGATED)
    return f"{call}.{index + 1}"


def constraint_origin(number: int) -> str:
    """Describe the run that a constraint came from; empty for one of the run's own."""
    if number < FIRST_PROPAGATED:
        return ""
    call = (number - FIRST_PROPAGATED) // MAX_PROPAGATED
    return f"from the sub-agent of call {call}" if call else "from the run above"


def constraint_number(name: Any) -> Any:
    """Return the number of the constraint with this name; a value that is not such a name is returned unchanged."""
    if not isinstance(name, str) or len(name) > 20 or not name.isascii():
        return name
    call, dot, position = name.partition(".")
    if not call.isdigit() or (dot and not position.isdigit()):
        return name
    if not dot:
        return int(call)
    if not 1 <= int(position) <= MAX_PROPAGATED:
        return name
    return FIRST_PROPAGATED + int(call) * MAX_PROPAGATED + int(position) - 1

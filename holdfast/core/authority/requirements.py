"""Approval requirements: what each policy that judges a call requires of the decision on it.

1. A call may be judged by several policies: that of its agent, those of the agents above, and those that came with a
   fork or an import. Each that asks brings its terms, its people and its signatures, and all of them must be satisfied.
2. A vote counts for each requirement that lets its sender decide; one that lets them deny is enough to deny.
3. A request is denied when the first of them expires that denies. It is approved by expiry only where every policy
   approves by that, when the last of them has expired: until then its people may deny.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdfast.core.authority.policy import Escalation, Requirement


class Step(NamedTuple):
    """An escalation of one of the requirements."""

    requirement: int
    """Index of the requirement."""
    escalation: Escalation


def joined(one: Sequence[Requirement], other: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Return the requirements of both, each once: the same people by the same terms are asked once."""
    kept = list(one)
    asked = [(each.policy, each.terms) for each in one]
    kept += [each for each in other if (each.policy, each.terms) not in asked]
    return tuple(kept)


def expires_after(requirements: Sequence[Requirement]) -> float | None:
    """Return the seconds after which a request expires; None for never."""
    times = [each.terms.expires_after for each in requirements]
    if on_expiry(requirements) == "approve":
        return None if None in times else max(filter(None, times))
    denying = (each.terms.expires_after for each in requirements if each.terms.on_expiry == "deny")
    return min(filter(None, denying), default=None)


def on_expiry(requirements: Sequence[Requirement]) -> Literal["deny", "approve"]:
    """Return what the expiry decides: `approve` only where every policy would."""
    return "approve" if all(each.terms.on_expiry == "approve" for each in requirements) else "deny"


def remind_every(requirements: Sequence[Requirement]) -> float | None:
    """Return the interval of reminders: the shortest; None for no reminders."""
    return min((each.terms.remind_every for each in requirements if each.terms.remind_every), default=None)


def escalations(requirements: Sequence[Requirement]) -> tuple[Step, ...]:
    """Return the escalations of all requirements, in chronological order."""
    steps = [Step(number, step) for number, each in enumerate(requirements) for step in each.terms.escalate]
    return tuple(sorted(steps, key=lambda step: (step.escalation.after, step.requirement)))


def who_decides(requirements: Sequence[Requirement], number: int, level: int) -> tuple[str, ...]:
    """Return the people and roles who may decide for one of the requirements; empty for all of its approvers.

    Args:
        requirements: All requirements of the request.
        number: The index of that one.
        level: How often the request was escalated.
    """
    own = sum(step.requirement == number for step in escalations(requirements)[:level])
    return requirements[number].terms.who(own)

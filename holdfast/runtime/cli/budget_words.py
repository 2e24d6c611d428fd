"""What the screens say about the budget of a run."""

from holdfast.runtime.cli.text import brief
from holdfast.runtime.client.threads import JSON


def budget_words(budget: JSON | None) -> str:
    """What is spent, reserved and left of each limit, a line for each."""
    return "\n".join(
        f"{each['limit']} {brief(each['spent'])} of {brief(each['allowed'])}, {brief(each['reserved'])} reserved, "
        f"{brief(each['left'])} left"
        for each in (budget or {}).get("limits", ())
    )


def left_words(row: JSON) -> str:
    """What is left of each limit, for a list; empty for a thread without a budget."""
    limits = (row.get("budget") or {}).get("limits", ())
    return " ".join(f"{each['limit']}={brief(each['left'])}" for each in limits)

"""A run's budget in Temporal's Web UI, in Markdown."""

import json

from holdfast.base.text import code
from holdfast.budget.account import Account
from holdfast.budget.budget import LimitName, amount_text
from holdfast.run.policies import signatures_required
from holdfast.run.state import RunState


def budget_details(account: Account) -> list[str]:
    """Return what is spent, reserved and left of each limit; nothing for a run without a budget."""
    view = account.view()
    if view is None:
        return []
    rows = [
        f"- {each['limit']}: {each['spent']} of {each['allowed']} spent, {each['reserved']} reserved, "
        f"{each['left']} left"
        for each in view["limits"]
    ]
    return ["### Budget", "", *rows, ""]


def extend_details(state: RunState) -> list[str]:
    """Return how to extend a budget that has ended."""
    if signatures_required(state):
        return ["", f"Only a signed extension counts: `{code(f'holdfast extend {state.thread}')}`", ""]
    account = state.account
    name: LimitName = next(iter(account.limits)) if account.short == "" else account.short
    more = amount_text(name, account.limits[name])
    payload = {name: more if name == "usd" else int(float(more)), "by": "your name"}
    block = ["```json", json.dumps(payload, indent=1), "```"]
    return ["", "To extend the budget, choose the signal `extend`, and send what it gets in addition:", "", *block, ""]

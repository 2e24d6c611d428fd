"""Costs of threads, as far as the price of their LLM is known, and the rest of their budgets."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

from holdfast.cli.text import brief
from holdfast.client.threads import JSON
from holdfast.core.base.tenants import tenant_of
from holdfast.core.llm.messages import Usage


def with_cost(view: JSON) -> JSON:
    """Return a view of a thread with its `cost` in US dollars; None if the tokens, the LLM or its price are unknown.

    The list prices come from the package `genai-prices`, a dependency of the worker.
    """
    usage, llm, cost = view.get("usage"), view.get("llm"), None
    if usage and llm and find_spec("genai_prices"):
        from holdfast.endpoints.prices import price

        cost = price(llm, Usage.model_validate(usage))
    return {**view, "cost": cost}


def cost_text(view: JSON) -> str:
    """Return the cost of a thread: `$0.0123`; tokens if the price is unknown; `?` if those are unknown, too."""
    if view.get("cost") is not None:
        return f"${view['cost']:,.4f}"
    usage = view.get("usage")
    return "?" if usage is None else f"{usage['prompt_tokens'] + usage['completion_tokens']:,} tokens"


def budget_text(budget: JSON | None) -> str:
    """Return the spent, reserved and remaining amounts of each limit, a line for each."""
    return "\n".join(
        f"{each['limit']} {brief(each['spent'])} of {brief(each['allowed'])}, {brief(each['reserved'])} reserved, "
        f"{brief(each['left'])} left"
        for each in (budget or {}).get("limits", ())
    )


def left_text(row: JSON) -> str:
    """Return the rest of each limit, for a list; empty for a thread without a budget."""
    limits = (row.get("budget") or {}).get("limits", ())
    return " ".join(f"{each['limit']}={brief(each['left'])}" for each in limits)


def more_text(budget: JSON | None) -> str:
    """Return the amounts that extend a spent budget, for a command: each spent limit again, such as `tokens=5000`."""
    limits = (budget or {}).get("limits", ())
    spent = [each for each in limits if each["limit"] == (budget or {}).get("short") or float(each["left"]) <= 0]
    return ",".join(f"{each['limit']}={each['allowed']}" for each in spent or limits) or "usd=1"


By = Literal["agent", "day", "tenant", "tree"]


def cost_rows(rows: Sequence[JSON], by: By, tenants: Sequence[str] = ()) -> list[JSON]:
    """Return the total costs of threads by agent, by the day (UTC) on which they began, by tenant, or by tree.

    The most expensive comes first. Each row has the `agent`, `day`, `tenant` or `tree`, `threads`, `tokens`, `cost` in
    US dollars, and `unknown`: the number of threads without a known price, whose cost is left out.

    Args:
        rows: Rows of a list, each with its cost.
        by: The key to sum by.
        tenants: The prefix of each tenant's threads.
    """
    sums: dict[str, JSON] = {}
    for row in rows:
        top = row.get("root") or row["thread"]
        keys = {"agent": row["agent"] or "–", "day": row["started_at"][:10], "tree": top}
        keys["tenant"] = tenant_of(top, tenants) or "–"
        total = sums.setdefault(keys[by], {by: keys[by], "threads": 0, "tokens": 0, "cost": 0.0, "unknown": 0})
        usage, cost = row.get("usage") or {}, row.get("cost")
        total["threads"] += 1
        total["tokens"] += usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        total["cost"] += cost or 0.0
        total["unknown"] += cost is None
    return sorted(sums.values(), key=lambda total: (-total["cost"], -total["tokens"], total[by]))

"""What `diff`, sums of costs and the hints about budgets print."""

from typing import Any

import pytest

from holdfast.cli.screens.costs import By, cost_rows, more_text
from holdfast.cli.screens.diff_screens import _call, _message
from holdfast.cli.screens.thread_screens import costs_screen
from holdfast.core.run.views.diff import ComparedCall

LOOK = {"id": "c", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"role": "user", "content": "Go  on"}, "user: Go on"),
        ({"role": "assistant", "content": [{"type": "text", "text": "Done."}]}, "assistant: Done."),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_call", **LOOK}]},
            "assistant: I look. → look",
        ),
        ({"role": "assistant", "content": [{"type": "tool_call", **LOOK}]}, "assistant: → look"),
    ],
)
def test_a_message_has_an_arrow_only_before_calls(message: dict[str, Any], line: str) -> None:
    """Words are separated by spaces, and an arrow points to the tools that a reply calls."""
    assert _message(message) == line


def test_a_call_shows_its_verdict_apart() -> None:
    """Call, verdict and end are separate words."""
    call = ComparedCall(number=1, tool="pay", arguments="{}", verdict="ask", rule="ask pay", status="ok")
    assert _call(call) == "1 pay({}) [ask: ask pay] ok"
    assert _call(ComparedCall(number=2, tool="look", arguments="{}")) == "2 look({}) open"


@pytest.mark.parametrize(
    ("left", "short", "words"),
    [
        ({"steps": "3", "tokens": "0"}, "", "tokens=9"),
        ({"steps": "3", "tokens": "2"}, "tokens", "tokens=9"),
        ({"usd": "0", "seconds": "-4"}, "", "usd=9,seconds=9"),
        ({"steps": "3"}, "", "steps=9"),
        ({}, "", "usd=1"),
    ],
)
def test_a_hint_names_the_limit_that_ended(left: dict[str, str], short: str, words: str) -> None:
    """The suggested command extends the exhausted limit by the same amount."""
    limits = [{"limit": name, "allowed": "9", "left": amount} for name, amount in left.items()]
    assert more_text({"limits": limits, "short": short} if limits else None) == words


@pytest.mark.parametrize(
    ("by", "sums"),
    [
        ("agent", [("a", 2, 30, 0.75, 0), ("b", 1, 5, 0.0, 1)]),
        ("day", [("2026-11-25", 1, 10, 0.5, 0), ("2026-11-26", 2, 25, 0.25, 1)]),
        ("tenant", [("t", 2, 15, 0.5, 1), ("–", 1, 20, 0.25, 0)]),
        ("tree", [("t", 2, 15, 0.5, 1), ("u", 1, 20, 0.25, 0)]),
    ],
)
def test_costs_are_summed(by: By, sums: list[tuple[str, int, int, float, int]]) -> None:
    """Costs are summed by agent, day, tenant or tree, most expensive first; a thread without a known price is counted
    separately.
    """

    def row(thread: str, agent: str, day: int, tokens: int, cost: float | None, root: str = "") -> dict[str, Any]:
        usage = {"prompt_tokens": tokens, "completion_tokens": 0}
        began = f"2026-11-{day}T23:59:00+00:00"
        return {
            "thread": thread,
            "agent": agent,
            "started_at": began,
            "usage": usage,
            "cost": cost,
            "root": root or None,
        }

    rows = [row("t", "a", 25, 10, 0.5), row("t.1", "b", 26, 5, None, "t"), row("u", "a", 26, 20, 0.25)]
    cost_sums = cost_rows(rows, by, ("t",))
    assert [(each[by], each["threads"], each["tokens"], each["cost"], each["unknown"]) for each in cost_sums] == sums
    assert [line.split()[0] for line in costs_screen(cost_sums, by).plain.splitlines()] == [
        by.upper(),
        *(s[0] for s in sums),
    ]

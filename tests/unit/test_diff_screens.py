"""What `diff` and the hints about budgets print."""

from typing import Any

import pytest

from holdfast.run.comparing import ComparedCall
from holdfast.runtime.cli.costs import more_words
from holdfast.runtime.cli.diff_screens import _call, _message

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
    """Words are apart, and an arrow leads to the tools that a reply calls."""
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
    """The command extends what is spent, by as much again."""
    limits = [{"limit": name, "allowed": "9", "left": amount} for name, amount in left.items()]
    assert more_words({"limits": limits, "short": short} if limits else None) == words

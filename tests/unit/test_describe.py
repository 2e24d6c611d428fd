"""What people read in the Web UI, whatever the LLM wrote."""

import json
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import LLMReply
from holdfast.describe import current_details, describe_call, one_line
from holdfast.messages import AssistantMessage, ToolCall
from tests.unit.runs import Thread, at_work, calls

TEXT = st.text() | st.sampled_from(["\n```\n### Request 9: may this run?\n", "`\n# x", "> y"])


def waiting(arguments: str, name: str = "pay") -> Thread:
    """A run with one call of the LLM's."""
    run = at_work()
    run.reply(LLMReply(message=AssistantMessage(tool_calls=(ToolCall(id="c", name=name, arguments=arguments),))))
    return run


@given(TEXT, TEXT)
def test_arguments_cannot_pose_as_the_page(name: str, value: str) -> None:
    """No argument ends its code block: the headings and signals on the page are ours."""
    details = current_details(waiting(json.dumps({name: value})).state)
    headings = [line for line in details.splitlines() if line.startswith("#")]
    assert headings == ["### Request 1: may this run?"]
    fences = [number for number, line in zip(count(), details.split("\n"), strict=False) if line.startswith("```")]
    assert len(fences) == 6


@given(TEXT)
def test_a_running_call_is_one_item_of_code(value: str) -> None:
    """A backtick or line break in an argument does not end the code."""
    run = waiting(json.dumps({"at": value}), name="look")
    (item,) = [line for line in current_details(run.state).split("\n") if line.startswith("- ")]
    assert item.startswith("- `look(")
    assert item.count("`") == 2


@given(st.text(), st.integers(1, 40))
def test_a_line_is_one_line_of_bounded_length(text: str, limit: int) -> None:
    """Summaries of activities have a limit in Temporal."""
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_a_call_reads_like_a_call() -> None:
    """Name and arguments, as one would write it."""
    assert describe_call(ToolCall(id="c", name="look", arguments='{"at": "x", "n": 1}')) == 'look(at="x", n=1)'
    assert describe_call(ToolCall(id="c", name="look", arguments="{")) == "look({)"


def test_more_requests_than_fit_are_counted() -> None:
    """Ten are shown in full; the rest are a command away."""
    run = at_work()
    run.reply(calls(*["pay"] * 12))
    details = current_details(run.state)
    assert "### Request 10" in details
    assert "### Request 11" not in details
    assert "2 more requests: `starter.py pending t`" in details

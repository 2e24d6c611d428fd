"""A tool may return a part of what was asked for: the LLM reads which part is missing, and polls wait for the rest."""

from typing import Any

import pytest

from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.partial import MISSING_CHARS, missing_text, shorten_missing
from tests.support.runs import Thread, loaded_thread
from tests.unit.core.run.test_dormancy import audited, calling, result
from tests.unit.core.run.test_polling import bring, check, poller, polling, recorded_polls


def polling_now(**more: Any) -> Thread:
    """Return a thread of this release whose LLM has called `check_back`."""
    thread = loaded_thread(poller(), features=2)
    thread.reply(calling(check_back=check(**more)))
    return thread


def request(thread: Thread) -> ToolRequest:
    """Return the request of the tool call in progress."""
    (call,) = thread.waiting(ToolRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, ToolRequest)
    return call.request


def test_the_llm_reads_which_part_is_missing_before_the_result() -> None:
    """The event has the result as the tool returned it, and beside it the missing part."""
    thread = loaded_thread(poller(), features=2)
    thread.reply(calling(look={}))
    (call,) = thread.waiting(ToolRequest)
    thread.end(call, ToolOutcome(status="ok", content="pages 1 and 2", missing="page 3"))
    finished = result(thread)
    assert (finished.status, finished.content, finished.missing) == ("ok", "pages 1 and 2", "page 3")
    assert thread.messages()[-1]["content"] == "[This result is partial. Missing: page 3]\npages 1 and 2"
    audited(thread)


@pytest.mark.parametrize(("level", "accepts"), [(1, False), (2, True)])
def test_only_a_run_of_this_release_asks_for_the_missing_part(level: int, accepts: bool) -> None:
    """A worker puts it into the text of the result for older runs."""
    thread = loaded_thread(poller(), features=level)
    thread.reply(calling(look={}))
    assert request(thread).partial is accepts


def test_a_partial_result_makes_the_next_poll_sooner() -> None:
    """The rest is on its way: the delay is halved, and a complete result is news only compared with a complete one."""
    thread = polling_now()
    for content, missing in [*[("a", "")] * 3, ("a, b", "c"), ("a", ""), ("b", "")]:
        bring(thread, content, missing=missing)
    kinds = ["news", "same", "same", "partial", "same", "news"]
    assert [event.result for event in recorded_polls(thread)] == kinds
    first, same, slower, partial, *_ = [(event.again - event.at).total_seconds() for event in recorded_polls(thread)]  # type: ignore[operator]
    assert (first, same, slower, partial) == (2, 3, 4.5, 2.25)
    bring(thread, "done")
    audited(thread)


@pytest.mark.parametrize("condition", [{"lacks": "pending"}, {"changes": True}])
def test_a_partial_result_does_not_show_that_a_text_is_absent_or_that_a_result_has_changed(condition: Any) -> None:
    """The missing part may hold the text, and differs from a complete result by itself."""
    thread = polling_now(condition=condition)
    bring(thread, "pending: a, b")
    bring(thread, "a", missing="b")
    assert thread.state.status == "dormant"
    bring(thread, "a, b")
    assert result(thread).text.startswith("Your condition was met")
    audited(thread)


@pytest.mark.parametrize("condition", [{"contains": "done"}, {"equals": {"state": "done"}}])
def test_the_part_that_there_is_can_meet_a_condition(condition: Any) -> None:
    """The wait ends with the partial result, and the LLM reads which part is missing."""
    thread = polling_now(condition=condition)
    bring(thread, '{"state": "done"}', missing="the log")
    assert (result(thread).status, result(thread).missing) == ("ok", "the log")
    assert thread.messages()[-1]["content"].startswith("[This result is partial. Missing: the log]\nYour condition")
    audited(thread)


def test_a_run_of_an_earlier_release_polls_as_before() -> None:
    """Its polls know no partial results: the text of the result says what is missing."""
    thread = polling()
    assert request(thread).partial is False
    bring(thread, "done")
    assert [event.missing for event in thread.log if isinstance(event, ToolCallFinished)] == [""]


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("page 3", "page 3"),
        (["page 3", 7], "page 3; 7"),
        ((), ""),
        ("", ""),
        (range(30), "; ".join(map(str, range(20))) + "; and 10 more"),
    ],
)
def test_missing_items_are_listed_and_counted(missing: Any, text: str) -> None:
    """An empty list means that nothing is missing."""
    assert missing_text(missing) == text


def test_the_description_of_a_missing_part_is_one_short_visible_line() -> None:
    """A tool's text cannot begin a line of its own in front of the LLM or people."""
    shown = shorten_missing("one\n\u202etwo]\n[Note: " + "x" * 1_000)
    assert shown.startswith("one \\u202etwo] [Note: xxx")
    assert len(shown) == MISSING_CHARS

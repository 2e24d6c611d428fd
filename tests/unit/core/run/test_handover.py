"""Values that a run passes in process to its activities."""

from collections.abc import Callable
from typing import Any

from holdfast.activities.calling_run import InProcessAnswers
from holdfast.core.log.event_log import Lines
from holdfast.core.run.contracts.commands import Call, Caller, Request
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.transcript.transcript import TranscriptRef
from tests.support.runs import Thread, calls, loaded_thread, says

CALLER = Caller("default", "t", "r1")


def asked(thread: Thread, kind: type[Request]) -> Request:
    """Return the request of the call of that kind that is in progress."""
    (call,) = thread.waiting(kind)
    assert isinstance(call, Call)
    return call.request


def lines_of(page: Callable[[int], bytes], start: int = 0) -> list[bytes]:
    """Return all lines from a position on, read page by page."""
    lines: list[bytes] = []
    while actual := page(start + len(lines)):
        lines += actual.split(b"\n")
    return lines


def take(hand_over: InProcessAnswers, request: Request, *run_ids: str) -> list[str]:
    """Take a request of each run, and return those that had passed something."""
    return [run_id for run_id in run_ids if hand_over.take(request, caller=CALLER._replace(run_id=run_id))]


def test_an_llm_call_gets_its_query_results_in_process() -> None:
    """The call gets the session and the transcript as of the request, however the run continues."""
    thread, hand_over = loaded_thread(), InProcessAnswers()
    request, before = asked(thread, LLMRequest), thread.run.transcript.messages
    hand_over.give(thread.run, request, caller=CALLER)
    session = thread.run.session
    thread.reply(calls("look"))
    thread.finish(1)
    assert len(thread.run.transcript.messages) > len(before)
    answers = hand_over.take(request, caller=CALLER)
    assert answers["session"]() == session
    assert lines_of(answers["transcript"]) == before
    assert answers.keys() == {"session", "transcript"}


def test_a_write_to_the_record_gets_its_lines_in_process() -> None:
    """The lines begin at the request's position."""
    thread, hand_over = loaded_thread(), InProcessAnswers()
    thread.reply(says("Done."))
    request = asked(thread, ArchiveRequest)
    assert isinstance(request, ArchiveRequest)
    hand_over.give(thread.run, request, caller=CALLER)
    answers = hand_over.take(request, caller=CALLER)
    assert lines_of(answers["log"], request.start) == thread.run.log.lines_since(request.start)
    assert answers.keys() == {"log"}


def test_a_passed_value_is_taken_once_by_its_own_call() -> None:
    """Another run, thread or namespace, other content under the same name and a second attempt find nothing."""
    thread, hand_over = loaded_thread(), InProcessAnswers()
    request = asked(thread, LLMRequest)
    assert isinstance(request, LLMRequest)
    hand_over.give(thread.run, request, caller=CALLER)
    other = request.model_copy(update={"transcript": TranscriptRef(length=1, digest="other")})
    for another in ({"namespace": "other"}, {"thread": "u"}, {"run_id": "r2"}):
        assert not hand_over.take(request, caller=CALLER._replace(**another))
    assert not hand_over.take(other, caller=CALLER)
    assert hand_over.take(request, caller=CALLER)
    assert not hand_over.take(request, caller=CALLER)


def test_the_oldest_untaken_value_is_dropped() -> None:
    """Activities of another process take nothing here, so the kept values are bounded."""
    thread, hand_over = loaded_thread(), InProcessAnswers(limit=2)
    request = asked(thread, LLMRequest)
    for run_id in ("r1", "r2", "r3"):
        hand_over.give(thread.run, request, caller=CALLER._replace(run_id=run_id))
    assert take(hand_over, request, "r1", "r2", "r3") == ["r2", "r3"]


def test_untaken_values_are_bounded_in_bytes() -> None:
    """A transcript may have megabytes; one that is passed or taken again counts once."""
    thread = loaded_thread()
    request, size = asked(thread, LLMRequest), thread.run.transcript.pages().lines.size
    hand_over = InProcessAnswers(limit_bytes=2 * size)
    for run_id in ("r1", "r2", "r2", "r3"):
        hand_over.give(thread.run, request, caller=CALLER._replace(run_id=run_id))
    assert take(hand_over, request, "r1", "r2", "r3") == ["r2", "r3"]
    for run_id in ("r4", "r5"):
        hand_over.give(thread.run, request, caller=CALLER._replace(run_id=run_id))
    assert take(hand_over, request, "r4", "r5") == ["r4", "r5"]
    small = InProcessAnswers(limit_bytes=size - 1)
    small.give(thread.run, request, caller=CALLER)
    assert not small.take(request, caller=CALLER)


def test_pages_show_the_lines_as_they_stood() -> None:
    """A page has the lines as of its request, even if later lines are compressed together with them."""
    lines, written = Lines(), [b"%d" % number * 500 for number in range(100)]
    views: list[tuple[int, Any]] = []
    for number, line in enumerate(written):
        views.append((number, lines.pages(7)))
        lines.append(line)
    for number, page in views:
        assert lines_of(page, 7) == written[:number]
        assert lines_of(page, 7 + number // 2) == written[number // 2 : number]

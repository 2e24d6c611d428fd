"""The record of an LLM outage, and its description."""

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from holdfast import Agent, Catalog
from holdfast.activities.heartbeats import earlier_details
from holdfast.activities.llm_calls.call_llm import LLM
from holdfast.activities.llm_calls.outages import Attempt, lost_attempts, provider_error, record_failure
from holdfast.activities.llm_calls.transcript_cache import CachedTranscript, ChooseRoute, TranscriptCache
from holdfast.cli.screens.event_lines import event_summary
from holdfast.core.base.canonical import canonical
from holdfast.core.budget.account import Account, Cost
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.messages import Usage
from holdfast.core.llm.outages import KEPT, LLMFailure, Outage
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import LLMReplied, RunBlocked
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_LOST, LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import Failures, LLMRequest
from holdfast.core.run.rules.budget import actual_cost
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.endpoints import Endpoints
from holdfast.storage.in_memory.record import InMemoryArtifacts
from tests.security.test_heartbeats import ORDER, attempt
from tests.support.runs import agent_spec, loaded_thread

AT = datetime(2026, 1, 2, tzinfo=UTC)


def failed(times: int) -> Outage:
    """Return an outage with this number of attempts, one a second."""
    outage = None
    for number in range(times):
        at = AT + timedelta(seconds=number)
        outage = Outage.of(
            outage, LLMFailure(at=at, seconds=0.5, cause="InternalServerError", message=f"503: {number}")
        )
    assert outage
    return outage


def cost_of_attempts(times: int, *, costly: int | None) -> Cost:
    """Return the cost of a call after this many failed attempts, some of which may have been charged."""
    outage = failed(times).model_copy(update={"costly": costly})
    usage = Usage(prompt_tokens=100, completion_tokens=7)
    return actual_cost(Account.open(Budget(tokens=9), None, tokens=0), usage, None, steps=1, attempt=14, outage=outage)


def test_attempts_that_left_no_trace_or_may_have_cost_something_are_charged() -> None:
    """Every attempt that left no trace or may have been charged counts; without that detail, each timed-out attempt
    counts. The log keeps ten.
    """
    assert cost_of_attempts(13, costly=0).tokens == 107
    assert cost_of_attempts(13, costly=12).tokens == 107 + 12 * 100
    assert cost_of_attempts(11, costly=0).tokens == 107 + 2 * 100
    late = LLMFailure(at=AT, seconds=1, cause="APITimeoutError", message="timed out")
    outage = Outage.of(Outage.of(None, late), late.model_copy(update={"cause": "InternalServerError"}))
    assert outage.costly is None
    account = Account.open(Budget(tokens=9), None, tokens=0)
    assert actual_cost(account, Usage(prompt_tokens=5), None, steps=1, attempt=3, outage=outage).tokens == 5 + 5


def test_only_what_may_pass_is_tried_again() -> None:
    """An endpoint that is busy or broken may answer later; what it rejects, it rejects again."""
    too_long = {"error": {"code": "context_length_exceeded"}}
    cases: list[tuple[int, dict[str, Any], str, bool]] = [
        *((status, {}, "APIStatusError", False) for status in (408, 409, 425, 429, 500, 503, 529)),
        *((status, {}, LLM_REJECTED, True) for status in (400, 401, 403, 404, 418, 422)),
        (400, too_long, CONTEXT_TOO_LONG, True),
    ]
    for status, body, kind, final in cases:
        response = httpx2.Response(status, json=body, request=httpx2.Request("POST", "http://127.0.0.1:9/v1"))
        error = provider_error(openai.APIStatusError("no", response=response, body=None))
        assert (error.type, error.non_retryable) == (kind, final), status


class Transcripts(TranscriptCache):
    """Transcripts that are unreadable, or empty."""

    def __init__(self, *, readable: bool) -> None:
        self.readable = readable

    async def read(self, request: LLMRequest, choose: ChooseRoute) -> tuple[CachedTranscript, list[bytes]]:
        """Return an empty transcript.

        Raises:
            OSError: No worker answers.
        """
        if not self.readable:
            raise OSError("no worker answers for postgresql://holdfast:hunter22@db")
        return CachedTranscript(0, agent_spec(), choose(agent_spec()), b'{"messages":['), []


def llm_of(client: openai.AsyncOpenAI, *, readable: bool = True) -> LLM:
    """Return the activity of LLM calls, with transcripts that are empty or unreadable."""
    return LLM(
        Endpoints.only(client),
        Catalog(agents=[Agent(name="clerk", instructions="Work.")]),
        Transcripts(readable=readable),
        InMemoryArtifacts(),
        Secrets({}, more=[("DATABASE_PASSWORD", "hunter22")]),
    )


def answering(status: int) -> openai.AsyncOpenAI:
    """Return a client whose endpoint answers each request with this status."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status))
    http = httpx2.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(api_key="x", base_url="http://llm.test/v1", max_retries=0, http_client=http)


async def failed_attempt(client: openai.AsyncOpenAI, *, readable: bool = True, budgeted: bool = True) -> Outage:
    """Return the record of an attempt at an LLM call that fails."""
    beats: list[Any] = []
    request = ORDER.model_copy(update={"budgeted": budgeted})
    llm = llm_of(client, readable=readable)
    env = attempt()
    env.on_heartbeat = lambda *details: beats.append(details)
    with pytest.raises((ApplicationError, OSError)):
        await env.run(llm.call_llm, request)
    failures = attempt(beats[-1]).run(earlier_details, Failures, request)
    assert failures
    return failures.outage


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("budgeted", [False, True])
async def test_an_attempt_that_sent_nothing_says_so(readable: bool, budgeted: bool) -> None:
    """An attempt sends nothing if the transcript is unreadable or the endpoint unreachable; without a budget the text
    is unchanged.
    """
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but not listening
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as client:
            outage = await failed_attempt(client, readable=readable, budgeted=budgeted)
    assert (outage.failed, outage.costly) == (1, 0 if budgeted else None)
    assert outage.last[0].cause == ("APIConnectionError" if readable else "OSError")
    assert "hunter22" not in outage.model_dump_json()


async def test_a_gateway_that_no_longer_waits_rejects_nothing() -> None:
    """The endpoint behind it may still answer, so the attempt may have cost something; another status proves that it
    did not.
    """
    costly = []
    for status in (429, 500, 503, 504, 524):
        async with answering(status) as client:
            costly.append((await failed_attempt(client)).costly)
    assert costly == [0, 0, 0, 1, 1]


@given(st.integers(1, 60))
def test_an_outage_is_bounded_and_says_how_many_attempts_failed(times: int) -> None:
    """The record has the last ten failures, the number of all failures and the start of the first attempt."""
    outage = failed(times)
    assert (outage.failed, outage.began) == (times, AT)
    assert [each.message for each in outage.last] == [f"503: {n}" for n in range(max(0, times - KEPT), times)]
    assert Outage.from_details([outage.model_dump(mode="json")]) == outage
    attempts = "1 failed attempt" if times == 1 else f"{times} failed attempts"
    text = outage.words(AT + timedelta(seconds=42.2))
    assert text == f"after {attempts} in 42 s: InternalServerError: 503: {times - 1}"


@pytest.mark.parametrize(
    "claim",
    [
        None,
        "x",
        {"failed": 1},
        {"failed": 0, "began": "2026-01-02T00:00:00Z", "last": []},
        {
            "failed": 1,
            "began": "2026-01-02T00:00:00",
            "last": [{"at": "2026-01-02", "seconds": 1, "cause": "", "message": ""}],
        },
        failed(1).model_dump(mode="json") | {"last": [failed(1).last[0].model_dump(mode="json")] * 11},
        failed(1).model_dump(mode="json")
        | {"last": [{**failed(1).last[0].model_dump(mode="json"), "message": "x" * 301}]},
    ],
)
def test_invalid_details_of_an_error_are_dropped(claim: Any) -> None:
    """Any Temporal client can fail an activity with arbitrary details, so invalid ones are dropped."""
    assert Outage.from_details([claim]) is None
    assert Outage.from_details([]) is None


def test_a_blocked_run_reports_the_earlier_failures() -> None:
    """The event records the failures, the state describes them, and the Web UI shows that description."""
    thread = loaded_thread()
    thread.refuse(LLM_REJECTED, failed(3).model_dump(mode="json"))
    blocked = thread.log[-1]
    assert isinstance(blocked, RunBlocked)
    assert blocked.outage == failed(3)
    assert state_view(thread.state)["blocked"]["after"].startswith("after 3 failed attempts in ")
    assert "The run gave up after 3 failed attempts in" in current_details(thread.state)
    canonical(state_view(thread.state))
    thread.check_consistent()


def test_a_too_long_context_is_no_outage() -> None:
    """The context is compacted, even after failed attempts."""
    thread = loaded_thread()
    thread.refuse(CONTEXT_TOO_LONG, failed(1).model_dump(mode="json"))
    assert "context_exceeded" in thread.types()


def test_an_attempt_that_left_no_trace_is_counted() -> None:
    """A killed worker recorded nothing, but the attempt number reveals one more attempt."""
    event = LLMReplied(
        message=None, transcript_length=1, usage=Usage(), finish_reason="stop", llm="m", attempt=4, outage=failed(2)
    )
    line = event_summary(event_json(event.model_copy(update={"at": AT + timedelta(seconds=9)})))
    text = "after 2 failed attempts in 9 s: InternalServerError: 503: 1 (and 1 attempt that left no trace)"
    assert line.endswith(f", attempt 4), {text}")


@pytest.mark.parametrize(("lost", "seconds"), [(0, None), (1, 2), (3, 8), (40, 30)])
@pytest.mark.parametrize("error", [ApplicationError("503", type="InternalServerError"), OSError("disk full")])
def test_attempts_that_cost_something_again_and_again_wait_longer(
    error: Exception, lost: int, seconds: int | None
) -> None:
    """Each charged attempt ends its call, and the next call backs off as if all attempts belonged to one call."""
    request = ORDER.model_copy(update={"budgeted": True, "lost": lost})

    def fail() -> None:
        record_failure(error, request, None, Attempt(costly=True), Secrets({}))

    if seconds is None:
        attempt().run(fail)
        return
    with pytest.raises(ApplicationError) as raised:
        attempt().run(fail)
    assert raised.value.next_retry_delay == timedelta(seconds=seconds)


def test_an_attempt_after_a_lost_one_ends_the_call() -> None:
    """The call counts attempts reported as charged and those that left no trace."""
    for died, lost in ((0, 1), (2, 3)):
        env = attempt()
        env.info = replace(env.info, attempt=4 + died)
        before = Failures(answers=ORDER.order, outage=failed(3).model_copy(update={"costly": 1}))
        assert env.run(lost_attempts, before) == lost


async def test_a_run_without_a_budget_counts_no_attempt_as_lost() -> None:
    """It makes the call in a third attempt, too; with a budget, the first two, which left no trace, end the call."""
    async with answering(503) as client:
        for budgeted, cause in ((True, LLM_LOST), (False, "InternalServerError")):
            env = attempt()
            env.info = replace(env.info, attempt=3)
            with pytest.raises(ApplicationError) as raised:
                await env.run(llm_of(client).call_llm, ORDER.model_copy(update={"budgeted": budgeted}))
            assert raised.value.type == cause


@pytest.mark.parametrize(
    ("number", "recorded", "untraced", "again", "lost"),
    [
        (1, 0, False, False, 0),
        (3, 2, False, False, 0),
        (1, 0, False, True, 1),
        (1, 1, False, False, 1),
        (2, 5, False, False, 1),
        (2, 1, True, False, 1),
        (3, 1, True, False, 1),
    ],
    ids=["first", "later", "scheduled again", "reset to 1", "reset, then died", "died under way", "died, no reset"],
)
def test_a_reset_of_the_activity_hides_no_attempt(
    number: int, recorded: int, untraced: bool, again: bool, lost: int
) -> None:
    """A reset restarts Temporal's attempt numbers; an attempt that may have been charged is detected another way and
    stays recorded.
    """
    env = attempt()
    later = env.info.scheduled_time + timedelta(seconds=again)
    env.info = replace(env.info, attempt=number, current_attempt_scheduled_time=later)
    request = ORDER.model_copy(update={"budgeted": True})
    before = None
    if recorded:
        none = failed(recorded).model_copy(update={"costly": 0})
        before = Failures(answers=request.order, outage=none, untraced=untraced)
    beats: list[Any] = []
    env.on_heartbeat = lambda *details: beats.append(details)

    def fail() -> int:
        made = Attempt(lost_attempts(before))
        record_failure(OSError("the transcript cannot be read"), request, before, made, Secrets({}))
        return made.lost

    assert env.run(fail) == lost
    left = attempt(beats[-1]).run(earlier_details, Failures, request)
    assert left
    assert left.untraced is bool(lost)

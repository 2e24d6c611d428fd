"""Which of an agent's LLMs an attempt calls, and what follows from its failure."""

from datetime import timedelta
from typing import Any

import openai
import pytest
from temporalio.exceptions import ApplicationError

from holdfast.activities.llm_calls.fallback import COOLING, Fallback, Turn
from holdfast.core.llm.outages import LLMFailure, Outage
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import Failures
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.endpoints import Endpoint, Endpoints
from tests.support.runs import NOW, agent_spec

ORDER = ("anthropic/a", "openai/b", "chat/c")
BUSY = ApplicationError("503: busy", type="InternalServerError")
REJECTED = ApplicationError("401: key hunter22", type=LLM_REJECTED, non_retryable=True)


class Calls:
    """The attempts of one call after another, on one worker whose clock stands still."""

    def __init__(self, *order: str, missing: tuple[str, ...] = ()) -> None:
        self.time = 0.0
        client = openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9/v1")
        known = {
            name: Endpoint(name, "chat", client) for name in ("anthropic", "openai", "chat") if name not in missing
        }
        self.order = Endpoints(known, dict.fromkeys(missing, "no key")).routes(agent_spec(llms=order or ORDER))
        self.fallback = Fallback(Secrets({}, more=[("KEY", "hunter22")]), lambda: self.time)
        self.before: Failures | None = None

    def turn(self) -> Turn:
        """Return the next attempt."""
        return self.fallback.turn(self.order, self.before)

    def fail(self, error: ApplicationError, **how: Any) -> ApplicationError:
        """Let the next attempt fail; return what Temporal gets."""
        turn = self.turn()
        after = self.fallback.after(turn, error, **how)
        outage = Outage.of(None, LLMFailure(at=NOW, seconds=0, cause="x", message="x"))
        own = {"failing": turn.route.reference, "failed": turn.failed, "passed_over": turn.passed}
        self.before = Failures(answers="order", outage=outage).model_copy(update=own)
        return after

    def begin(self) -> None:
        """Begin another call."""
        self.before = None

    @property
    def next(self) -> str:
        """The LLM of the next attempt."""
        return self.turn().route.reference


def test_an_llm_gets_a_second_try_before_the_next_one_takes_over() -> None:
    """The first failure is retried with Temporal's delay; after the second, the next LLM is called at once."""
    calls = Calls()
    assert calls.fail(BUSY) is BUSY
    assert calls.next == "anthropic/a"
    after = calls.fail(BUSY)
    assert not after.non_retryable
    assert after.next_retry_delay
    assert after.next_retry_delay < timedelta(seconds=1)
    assert calls.next == "openai/b"
    assert [each.llm for each in calls.turn().earlier] == ["anthropic/a"]


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (REJECTED, {"status": 401}),
        (REJECTED, {"status": 404}),
        (BUSY, {"costly": True}),
        (ApplicationError("429", type="RateLimitError", next_retry_delay=timedelta(hours=1)), {"status": 429}),
    ],
)
def test_nothing_is_tried_twice_that_a_second_try_cannot_help(error: ApplicationError, how: dict[str, Any]) -> None:
    """A rejected key, a missing LLM, a cost and a long delay pass an LLM over at once; no reason holds a secret."""
    calls = Calls()
    assert not calls.fail(error, **how).non_retryable
    assert calls.next == "openai/b"
    assert "hunter22" not in calls.turn().earlier[0].message


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (ApplicationError("400: bad", type=LLM_REJECTED, non_retryable=True), {"status": 400}),
        (ApplicationError("too long", type=CONTEXT_TOO_LONG, non_retryable=True), {"status": 400}),
        (ApplicationError("refused by middleware", type=LLM_REJECTED, non_retryable=True), {}),
    ],
)
def test_what_another_provider_cannot_help_with_ends_the_call(error: ApplicationError, how: dict[str, Any]) -> None:
    """A malformed request and a context that is too long are the run's own."""
    calls = Calls()
    assert calls.fail(error, **how) is error
    assert calls.next == "anthropic/a"


def test_one_llm_alone_behaves_as_without_an_order() -> None:
    """Its errors are unchanged, and it is never passed over."""
    calls = Calls("anthropic/a")
    for error in (BUSY, BUSY, BUSY):
        assert calls.fail(error) is error
    assert calls.fail(REJECTED, status=401) is REJECTED


def test_other_calls_pass_over_what_failed_lately() -> None:
    """For a minute, on this worker: the reply says so. Then the LLM is called again, and a reply clears it."""
    calls = Calls()
    calls.fail(BUSY, costly=True)
    calls.begin()
    turn = calls.turn()
    assert turn.route.reference == "openai/b"
    assert [each.message for each in turn.earlier] == ["503: busy"]
    calls.time = COOLING.total_seconds() + 1
    assert calls.next == "anthropic/a"
    calls.fallback.answered(calls.turn())
    assert calls.turn().earlier == ()


def test_if_all_fail_the_call_starts_over_without_those_that_rejected_it() -> None:
    """It goes on for as long as it takes, with Temporal's delays; if all rejected it, it ends with each reason."""
    calls = Calls()
    calls.fail(REJECTED, status=401)
    calls.fail(BUSY, costly=True)
    after = calls.fail(BUSY, costly=True)
    assert (after.non_retryable, after.next_retry_delay) == (False, None)
    assert calls.next == "openai/b"
    assert not calls.fail(REJECTED, status=403).non_retryable
    assert calls.next == "chat/c"
    ended = calls.fail(REJECTED, status=401)
    assert (ended.type, ended.non_retryable) == (LLM_REJECTED, True)
    assert all(f"{name}: 401" in ended.message for name in ORDER)


def test_an_llm_without_an_endpoint_here_is_passed_over() -> None:
    """The reply says which variable is missing; without any endpoint, the run is blocked."""
    calls = Calls(missing=("anthropic",))
    turn = calls.turn()
    assert turn.route.reference == "openai/b"
    assert [(each.cause, each.message) for each in turn.earlier] == [("NoEndpoint", "no key")]
    alone = Calls("router/x")
    with pytest.raises(ApplicationError, match=r"no LLM endpoint named 'router'.*retry") as raised:
        alone.turn()
    assert raised.value.non_retryable

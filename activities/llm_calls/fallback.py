"""Fallback: which of an agent's LLMs an attempt calls, and what follows from its failure. An attempt calls one LLM.

1. The first LLM of the order that has not failed lately is called. An LLM is passed over if it fails `TRIES` times in a
   row, at once if it rejects its key or does not exist, asks for a longer delay than `PATIENCE`, or may have cost
   something; then for `COOLING` on this worker, so that other calls and runs need not find out again.
2. If all have failed, the call starts over with those that did not reject it, with Temporal's delays. If all have
   rejected it, the run is blocked.
3. Any other rejection (a malformed request, a context that is too long) is the run's own, and ends the call as if there
   were no order. So does middleware.
4. Nothing here follows an accepted reply: a reply that cannot be used goes back to the LLM that wrote it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.exceptions import ApplicationError

from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.base.text import one_line, visible
from holdfast.core.llm.names import NAME_CHARS
from holdfast.core.llm.outages import CAUSE_CHARS, MESSAGE_CHARS, PassedOver
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import Failures
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.endpoints import NoRoute, Route

log = SafeLogger(__name__)

TRIES = 2
"""How often in a row an LLM may fail in one call before the next one takes over."""

PATIENCE = timedelta(seconds=20)
"""The longest delay that a provider may ask for without being passed over."""

COOLING = timedelta(seconds=60)
"""How long an LLM that has failed is passed over, unless its provider asks for longer."""

COOLING_REJECTED = timedelta(minutes=5)
"""How long an LLM is passed over that rejects its key or does not exist."""

SOON: Final = timedelta(milliseconds=10)
"""The delay before the next LLM is called."""

_REJECTED: Final = (401, 402, 403, 404, 410)
"""Statuses of a rejected key, an unpaid account, and an LLM or an address that does not exist."""

_MOST = 1_000
"""The most LLMs whose failures are kept."""


@dataclass
class Turn:
    """The LLM that an attempt calls."""

    order: Sequence[Route | NoRoute]
    route: Route
    passed: tuple[PassedOver, ...] = ()
    """Those that this call has given up."""
    earlier: tuple[PassedOver, ...] = ()
    """Those before it in the order, each with its failure."""
    failed: int = 0
    """How often in a row the LLM has failed in this call."""


@dataclass
class _Cooling:
    until: float
    failure: PassedOver


@dataclass
class Fallback:
    """Chooses among the LLMs of agents that have several, for all calls of a worker.

    Args:
        secrets: Redacted from failures: a provider may repeat the key that it rejects.
        clock: Seconds of a clock that never goes back.
    """

    secrets: Secrets
    clock: Callable[[], float] = time.monotonic
    _cooling: dict[str, _Cooling] = field(default_factory=dict)

    def turn(self, order: Sequence[Route | NoRoute], before: Failures | None) -> Turn:
        """Return the LLM that the next attempt at a call of an agent calls.

        Args:
            order: The routes to the agent's LLMs.
            before: The failures of earlier attempts.

        Raises:
            ApplicationError: LLM_REJECTED: no LLM of the agent has an endpoint on this worker.
        """
        passed = before.passed_over if before else ()
        given_up = {each.llm for each in passed}
        routes = [each for each in order if isinstance(each, Route)]
        left = [each for each in routes if each.reference not in given_up] or routes
        if not left:
            why = "; ".join(f"{each.reference}: {each.why}" for each in order if isinstance(each, NoRoute))
            raise ApplicationError(
                f"{why}. Restart the worker then, and `retry`", type=LLM_REJECTED, non_retryable=True
            )
        route = next((each for each in left if not self._cools(each.reference)), left[0])
        failed = before.failed if before and before.failing == route.reference else 0
        return Turn(order, route, passed, self._earlier(order, route, passed), failed)

    def after(self, turn: Turn, error: ApplicationError, *, status: int = 0, costly: bool = False) -> ApplicationError:
        """Return what follows from a failure of the endpoint, and note it in the turn.

        Args:
            turn: The LLM that was called.
            error: The failure, as it ends a call without an order.
            status: The HTTP status of the response; 0 if there was none.
            costly: Whether the attempt may have cost something.
        """
        if len(turn.order) == 1 or error.type == CONTEXT_TOO_LONG:
            return error
        rejected = error.non_retryable and status in _REJECTED
        if error.non_retryable and not rejected:
            return error
        delay = error.next_retry_delay
        late = delay is not None and delay > PATIENCE
        if not (rejected or late or costly or turn.failed + 1 >= TRIES):
            turn.failed += 1
            return error
        failure = self._failure(turn.route.reference, error, rejected=rejected)
        self._cool(failure, COOLING_REJECTED if rejected else max(COOLING, delay or COOLING))
        log.warning("llm_passed_over", llm=failure.llm, cause=failure.cause, reason=failure.message)
        turn.failed = 0
        turn.passed = (*(each for each in turn.passed if each.llm != failure.llm), failure)
        given_up = {each.llm for each in turn.passed}
        if any(isinstance(each, Route) and each.reference not in given_up for each in turn.order):
            return ApplicationError(error.message, type=error.type, next_retry_delay=SOON)
        return self._after_all(turn, error)

    def answered(self, turn: Turn) -> None:
        """Note that the LLM replied."""
        self._cooling.pop(turn.route.reference, None)

    def _after_all(self, turn: Turn, error: ApplicationError) -> ApplicationError:
        """Return what follows when every LLM of the order has failed."""
        rejected = tuple(each for each in turn.passed if each.rejected)
        lost = [each for each in turn.order if isinstance(each, NoRoute)]
        if len(rejected) + len(lost) < len(turn.order):
            turn.passed = rejected
            delay = None if error.non_retryable else error.next_retry_delay
            return ApplicationError(error.message, type=error.type, next_retry_delay=delay)
        words = [f"{each.llm}: {each.message}" for each in rejected] + [
            f"{each.reference}: {each.why}" for each in lost
        ]
        return ApplicationError("; ".join(words), type=LLM_REJECTED, non_retryable=True)

    def _earlier(
        self, order: Sequence[Route | NoRoute], route: Route, passed: Sequence[PassedOver]
    ) -> tuple[PassedOver, ...]:
        """Return why each LLM before this one in the order is not called."""
        known = {each.llm: each for each in passed}
        found = []
        for each in order:
            if each is route:
                break
            if isinstance(each, NoRoute):
                why = one_line(visible(each.why), MESSAGE_CHARS)
                failure = PassedOver(
                    llm=each.reference, at=datetime.now(UTC), cause="NoEndpoint", message=why, rejected=True
                )
                found.append(failure)
            elif each.reference in known:
                found.append(known[each.reference])
            elif each.reference in self._cooling:
                found.append(self._cooling[each.reference].failure)
        return tuple(found)

    def _failure(self, reference: str, error: ApplicationError, *, rejected: bool) -> PassedOver:
        message = one_line(visible(self.secrets.redact(error.message)), MESSAGE_CHARS)
        cause = (error.type or "")[:CAUSE_CHARS]
        return PassedOver(
            llm=reference[:NAME_CHARS], at=datetime.now(UTC), cause=cause, message=message, rejected=rejected
        )

    def _cools(self, reference: str) -> bool:
        cooling = self._cooling.get(reference)
        return cooling is not None and cooling.until > self.clock()

    def _cool(self, failure: PassedOver, time: timedelta) -> None:
        while len(self._cooling) >= _MOST:
            del self._cooling[next(iter(self._cooling))]
        self._cooling[failure.llm] = _Cooling(self.clock() + time.total_seconds(), failure)

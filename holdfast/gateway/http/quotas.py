"""Quotas of each caller, so that one cannot starve the others.

Authenticated callers are counted by name, over all their connections; all others by address.
"""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.core.base.models import Frozen
from holdfast.gateway.http.problems import HTTPProblem

ADDRESSES = 10_000
"""The most addresses and names in memory."""


class Quota(Frozen):
    """The quota of one caller, or of one address."""

    at_once: int
    """The most requests under way, except streams of events."""
    a_second: float
    """The most requests a second, in the long run."""
    burst: int
    """The most requests in a burst, after a pause."""


EACH_CALLER = Quota(at_once=32, a_second=50, burst=200)
EACH_ADDRESS = Quota(at_once=16, a_second=20, burst=60)
"""For unauthenticated requests: health checks, Slack, and callers who guess tokens."""
UNKNOWN_AT_ONCE = 64
"""The most unauthenticated requests under way, of all addresses."""


class Quotas:
    """Enforces the quota of each caller, or of each address.

    Args:
        quota: The quota of each.
        all_at_once: The most requests under way in total; None for no limit.
        now: A clock, in seconds.
    """

    def __init__(
        self, quota: Quota, *, all_at_once: int | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._quota = quota
        self._all = all_at_once
        self._now = now
        self._under_way: Counter[str] = Counter()
        self._left: dict[str, tuple[float, float]] = {}
        """The rest of each burst, and when it was computed; the oldest first."""

    def take(self, name: str) -> None:
        """Count a request.

        Raises:
            HTTPProblem: 429: too many within a short time.
        """
        now, quota = self._now(), self._quota
        left, then = self._left.pop(name, (float(quota.burst), now))
        left = min(quota.burst, left + (now - then) * quota.a_second)
        self._left[name] = (max(left - 1, 0), now)
        if len(self._left) > ADDRESSES:
            del self._left[next(iter(self._left))]
        if left < 1:
            raise _too_many(f"more than {quota.a_second:g} requests a second")

    @contextmanager
    def under_way(self, name: str) -> Iterator[None]:
        """Count a request as under way for the length of the block.

        Raises:
            HTTPProblem: 429: too many at once.
        """
        if self._under_way[name] >= self._quota.at_once:
            raise _too_many(f"more than {self._quota.at_once} requests at once")
        if self._all is not None and self._under_way.total() >= self._all:
            raise _too_many(f"more than {self._all} unauthenticated requests at once")
        self._under_way[name] += 1
        try:
            yield
        finally:
            self._under_way[name] -= 1
            if not self._under_way[name]:
                del self._under_way[name]


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address to count by: for IPv6 the network, because a caller may use all of its addresses."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return client[0]
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _too_many(excess: str) -> HTTPProblem:
    return HTTPProblem(429, f"{excess}; wait a moment, and try again")


class Slots:
    """A limited number of slots for long requests, in total and for each caller.

    Args:
        what: The kind of request: `streams`.
        limit: The total number of slots.
        each: The most slots of one caller.
    """

    def __init__(self, what: str, limit: int, each: int) -> None:
        self._what = what
        self._limit = limit
        self._each = each
        self._counts: Counter[str] = Counter()

    def acquire(self, caller: str) -> None:
        """Acquire a slot.

        Raises:
            HTTPProblem: 429: this caller has too many; 503: all slots are taken.
        """
        if self._counts[caller] >= self._each:
            raise HTTPProblem(429, f"{caller} has {self._each} {self._what} open; end one, and try again")
        if self._counts.total() >= self._limit:
            raise HTTPProblem(503, f"{self._limit} {self._what} are open; try again later")
        self._counts[caller] += 1

    def release(self, caller: str) -> None:
        """Release a slot."""
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]

    @contextmanager
    def slot(self, caller: str) -> Iterator[None]:
        """Hold a slot for the length of the block."""
        self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

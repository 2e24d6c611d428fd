"""What one caller may take of the gateway, so that there is something left for the others.

Callers are counted by name, however many connections they have; those who are not known, by their address.
"""

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.base.models import Frozen
from holdfast.runtime.gateway.problems import Trouble

ADDRESSES = 10_000
"""Addresses and names that are remembered."""


class Quota(Frozen):
    """What each may take."""

    at_once: int
    """Requests under way, without those that follow events."""
    a_second: float
    """Requests, in the long run."""
    burst: int
    """Requests at a stroke, after some silence."""


EACH_CALLER = Quota(at_once=32, a_second=50, burst=200)
EACH_ADDRESS = Quota(at_once=16, a_second=20, burst=60)
"""For those who are not known yet: health checks, Slack, and callers who guess tokens."""
UNKNOWN_AT_ONCE = 64
"""Requests of all who are not known."""


class Quotas:
    """Counts what some kind of callers take.

    Args:
        share: Of each.
        all_at_once: Of all together; None for no such limit.
        now: A clock, in seconds.
    """

    def __init__(
        self, share: Quota, *, all_at_once: int | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share
        self._all = all_at_once
        self._now = now
        self._under_way: Counter[str] = Counter()
        self._left: dict[str, tuple[float, float]] = {}
        """What is left of each one's burst, and when that was; the longest ago first."""

    def take(self, who: str) -> None:
        """One more request.

        Raises:
            Trouble: 429: too many within a short time.
        """
        now, share = self._now(), self._share
        left, then = self._left.pop(who, (float(share.burst), now))
        left = min(share.burst, left + (now - then) * share.a_second)
        self._left[who] = (max(left - 1, 0), now)
        if len(self._left) > ADDRESSES:
            del self._left[next(iter(self._left))]
        if left < 1:
            raise _enough(f"more than {share.a_second:g} requests a second")

    @contextmanager
    def under_way(self, who: str) -> Iterator[None]:
        """A request, for as long as it takes.

        Raises:
            Trouble: 429: too many at once.
        """
        if self._under_way[who] >= self._share.at_once:
            raise _enough(f"more than {self._share.at_once} requests at once")
        if self._all is not None and self._under_way.total() >= self._all:
            raise _enough(f"more than {self._all} requests at once of callers that are not known")
        self._under_way[who] += 1
        try:
            yield
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]


def address_of(client: tuple[str, int] | None) -> str:
    """Whom an address stands for: one of IPv6 is as good as all of its network."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return client[0]
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def _enough(words: str) -> Trouble:
    return Trouble(429, f"{words}; wait a moment, and ask again")

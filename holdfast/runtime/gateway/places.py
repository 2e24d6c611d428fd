"""A limited number of places for what lasts long: streams, waits, downloads."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.runtime.gateway.problems import HTTPProblem


class Places:
    """Counts who has a place.

    Args:
        what: What the places are for: `streams`.
        limit: The most at once.
        each: The most of one caller.
    """

    def __init__(self, what: str, limit: int, each: int) -> None:
        self._what = what
        self._limit = limit
        self._each = each
        self._counts: Counter[str] = Counter()

    def enter(self, caller: str) -> None:
        """Take a place.

        Raises:
            HTTPProblem: 429, 503: this caller, or all of them, have too many.
        """
        if self._counts[caller] >= self._each:
            raise HTTPProblem(429, f"{caller} has {self._each} {self._what} open; end one, and try again")
        if self._counts.total() >= self._limit:
            raise HTTPProblem(503, f"{self._limit} {self._what} are open; try again later")
        self._counts[caller] += 1

    def leave(self, caller: str) -> None:
        """Give a place back."""
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Hold a place for the length of the block."""
        self.enter(caller)
        try:
            yield
        finally:
            self.leave(caller)

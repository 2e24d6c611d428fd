"""How often calls have ended in the same way since anything new happened.

1. The window holds the last distinct pairs of a call and its result. A new pair is news, and resets all counts; a
   known pair increments its count. So A, B, A, B, … counts like A, A, A, …; "edit, test, edit differently, test" does
   not, although both tests fail in the same way.
2. The refusal of a call is never news: it says nothing about the world.
"""

from dataclasses import dataclass

from holdfast.core.base.models import Frozen

WINDOW = 32
"""Pairs of a call and a result that are kept. A cycle of more distinct calls is not recognised."""

MAX_COUNT = 1_000
"""Counts stop here."""

DIGEST_CHARS = 24
"""Hex digits that are kept of each digest."""


class SeenResult(Frozen):
    """A call, and one of its results."""

    call: str
    """Digest of tool and arguments, shortened."""
    result: str
    """Digest of status and content, shortened."""
    count: int = 0
    """How often the call has had this result since the last news."""
    refused: bool = False
    """The call was refused, and did not run."""
    denied: bool = False
    """People were asked about these repeats, and denied the call."""

    def reset(self) -> "SeenResult":
        """Return the pair with its count reset, because something new has happened."""
        return SeenResult(call=self.call, result=self.result, refused=self.refused)


@dataclass(frozen=True)
class Repeats:
    """The last calls and results, the latest at the end."""

    seen: tuple[SeenResult, ...] = ()

    @property
    def highest(self) -> int:
        """How often the call that repeats most has ended in the same way."""
        return max((each.count for each in self.seen), default=0)

    @property
    def refusal(self) -> SeenResult | None:
        """The refusal that repeats most; None if there is none."""
        return max((each for each in self.seen if each.refused), key=lambda each: each.count, default=None)

    def count(self, call_digest: str) -> int:
        """Return how often a call has run and had its most frequent result since the last news."""
        call = shorten(call_digest)
        return max((each.count for each in self.seen if each.call == call and not each.refused), default=0)

    def reaches(self, call_digest: str, count: int) -> bool:
        """Return whether a call has ended or been refused in the same way `count` times since the last news."""
        call = shorten(call_digest)
        return any(each.count >= count for each in self.seen if each.call == call)

    def is_denied(self, call_digest: str) -> bool:
        """Return whether people denied this call because of its repeats, and nothing new has happened since."""
        call = shorten(call_digest)
        return any(each.denied for each in self.seen if each.call == call)

    def add(self, call_digest: str, result_digest: str, *, refused: bool) -> "Repeats":
        """Count the result of a call."""
        call, result = shorten(call_digest), shorten(result_digest)
        known = next((each for each in self.seen if each.result == result and each.call == call), None)
        others = tuple([each for each in self.seen if each is not known])
        if known is None and not refused:
            others = tuple([each.reset() if each.count or each.denied else each for each in others])
        before = known or SeenResult(call=call, result=result, refused=refused)
        current = before.model_copy(update={"count": min(before.count + 1, MAX_COUNT)})
        return Repeats((*others, current)[-WINDOW:])

    def deny(self, call_digest: str) -> "Repeats":
        """Record that people denied this call because of its repeats."""
        call = shorten(call_digest)
        return Repeats(
            tuple(each.model_copy(update={"denied": True}) if each.call == call else each for each in self.seen)
        )

    def latest(self) -> SeenResult:
        """Return the result that was counted last."""
        return self.seen[-1]


def shorten(digest: str) -> str:
    """Shorten a digest to the part that is kept."""
    return digest[:DIGEST_CHARS]

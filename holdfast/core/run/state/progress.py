"""The progress of a run: its steps, repeated calls, a pause by a person, the wait for a message, its closing work."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.core.authority.statements import Proof
from holdfast.core.base.models import Frozen, replace


@dataclass(frozen=True)
class Steps:
    """The steps of the whole thread, and their limit."""

    count: int = 0
    """LLM replies so far."""
    limit: int = 0
    """The step after which a person has to send `retry`, which raises the limit."""
    rejected_replies: int = 0
    """How many replies in a row were unusable."""

    @property
    def used_up(self) -> bool:
        """Whether the limit is reached."""
        return self.count >= self.limit

    def reject_reply(self) -> "Steps":
        """Count an unusable reply."""
        return replace(self, rejected_replies=self.rejected_replies + 1)

    def use_reply(self) -> "Steps":
        """Reset the count of unusable replies: a reply was usable, or a person asked for a retry."""
        return replace(self, rejected_replies=0) if self.rejected_replies else self


class Pause(Frozen):
    """A pause by a person: nothing starts before it ends; calls under way end, and are recorded."""

    by: str
    reason: str = ""
    since: datetime
    until: datetime | None = None
    """When it ends by itself; None for never."""
    proof: Proof = ""
    """How the person was authenticated: only a signed statement ends a signed pause."""

    def view(self) -> dict[str, Any]:
        """Return the pause as `show` presents it."""
        return self.model_dump(mode="json")


LONGEST_WAIT = 10 * 365 * 86_400
"""Maximum seconds of a wait. Anybody can start a run with any limit, and dates end with the year 9999."""


@dataclass(frozen=True)
class Idle:
    """The wait for a follow-up message."""

    awaiting: bool = False
    """The LLM has answered, and the run is open for a follow-up message."""
    limit: float | None = None
    """Seconds that the run stays open; None until its start or its agent sets them."""
    until: datetime | None = None
    """When the wait ends."""

    def begin(self, at: datetime) -> "Idle":
        """Begin to wait."""
        seconds = max(0, min(self.limit or 0, LONGEST_WAIT))
        return replace(self, awaiting=True, until=at + timedelta(seconds=seconds))

    def end(self) -> "Idle":
        """Stop waiting: a message arrived, or the run is over."""
        return replace(self, awaiting=False, until=None) if self.awaiting else self


PROGRESS_TOOL = "update_progress"
"""The tool that writes progress.txt: for the LLM, and for the run's own calls."""

LEARNING_TOOLS = ("remember", "note_learning")
"""The tools that the LLM may call in the step that asks it for its learnings."""

NOTE_TOOLS = (PROGRESS_TOOL, *LEARNING_TOOLS, "note_progress", "start_task", "complete_task", "block_task")
"""Tools that write notes themselves: the run's own notes do not name their calls."""

PROGRESS_WRITERS = (PROGRESS_TOOL, "note_progress", "start_task", "complete_task", "block_task")
"""Tools that write the agent's progress file."""

LEARNING_SECONDS = 3_600
"""How long the end of a run waits for that step: for the LLM's reply, and then for approval of its calls."""


NOTED_CALLS = 50
"""Maximum number of calls that one note in progress.txt names."""


@dataclass(frozen=True)
class Ending:
    """The progress of a run's closing work."""

    last_note: str = ""
    """The last note in progress.txt: `in progress`, `completed`, or `blocked` with the step."""
    learning: Literal["", "asked", "over"] = ""
    """Whether the LLM has been asked for its learnings; `over` once it has replied, or could not."""
    until: datetime | None = None
    """The deadline of its reply."""
    calls: tuple[str, ...] = ()
    """The calls that the next note names: a line for each, without line breaks."""

    def ask(self, at: datetime) -> "Ending":
        """Ask the LLM for its learnings."""
        return replace(self, learning="asked", until=at + timedelta(seconds=LEARNING_SECONDS))

    def note(self, note: str) -> "Ending":
        """Make a note, which names the calls since the last one."""
        return replace(self, last_note=note, calls=())

    def add_call(self, line: str) -> "Ending":
        """Add a call to the next note, which names the last `NOTED_CALLS`."""
        return replace(self, calls=(*self.calls, line)[-NOTED_CALLS:])

    def replied(self) -> "Ending":
        """Record that the LLM has replied, or could not; change nothing if it was not asked."""
        return replace(self, learning="over", until=None) if self.learning == "asked" else self

    def put_off(self) -> "Ending":
        """Postpone the end: a message has arrived."""
        return replace(self, learning="", until=None) if self.learning else self


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
    """The last calls and results, the latest at the end: how often calls ended alike since anything new happened.

    1. The window holds the last distinct pairs of a call and its result. A new pair is news, and resets all counts; a
       known pair increments its count. So A, B, A, B, … counts like A, A, A, …; "edit, test, edit differently, test"
       does not, although both tests fail in the same way.
    2. The refusal of a call is never news: it says nothing about the world.
    """

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

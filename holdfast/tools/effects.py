"""What a tool does to the world, the key that names one effect, and what a second attempt may do.

1. A call's key is the same on every attempt, after every crash and in every continued run of the thread;
   it differs when the call differs, and when a workflow id is used again.
2. The ledger has a row `started` before the effect and `finished` with the result after it.
3. An attempt that finds `finished` returns the recorded result. One that finds `started` does what
   `second_attempt` says: nobody guesses.
4. A run that was reset, or whose thread was closed in mid-call, meets effects of a past that its own log does not
   have. They keep their keys: the same call is that effect, and not another one.
"""

from enum import StrEnum
from typing import Literal

from holdfast.base.digests import digest
from holdfast.base.models import Frozen


class Effect(StrEnum):
    """What a call of a tool does to the world, as its author declares it."""

    READ = "read"
    """Nothing: it may run any number of times."""
    IDEMPOTENT = "idempotent"
    """Something, but running it again with the same key (or arguments) changes nothing more."""
    VERIFIABLE = "verifiable"
    """Something, and the tool's `check` can find out afterwards whether it happened."""
    UNSAFE = "unsafe"
    """Something that nobody but a person can find out about afterwards."""


SecondAttempt = Literal["run", "check", "ask"]
"""Run it again · ask the tool's `check` · ask a person."""


def second_attempt(effect: Effect) -> SecondAttempt:
    """What an attempt may do that finds its effect started by an earlier one, and not finished."""
    match effect:
        case Effect.READ | Effect.IDEMPOTENT:
            return "run"
        case Effect.VERIFIABLE:
            return "check"
        case Effect.UNSAFE:
            return "ask"


def effect_key(*, thread: str, first_run_id: str, number: int, call_digest: str) -> str:
    """Name one effect: 40 hex digits, fit for the idempotency header of any API.

    Args:
        thread: The workflow id.
        first_run_id: Temporal's first execution run id: the same after continue-as-new and reset.
        number: The call's number in the thread, counted from 1.
        call_digest: Digest of tool and arguments (`ToolCall.digest`).
    """
    return digest([thread, first_run_id, number, call_digest])[:40]


class PastEffect(Frozen):
    """An effect that the ledger has, and that the run which finds it there has not begun itself."""

    number: int
    """The call's number in the branch of the thread that began it."""
    first_run_id: str
    """Of the chain of Temporal runs that began it: part of its key."""
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    key: str
    epoch: int = 0
    """The last row of the ledger under that key."""
    call: str = ""
    """The call in a line."""
    status: str = "started"
    """What it came to (`ToolStatus`); `started` where nobody has recorded that."""
    content: str = ""
    """The head of its result."""

    @property
    def words(self) -> str:
        """What is known of it, as a sentence without its full stop."""
        if self.status == "started":
            return f"it may have taken place before, as call {self.number}: it was begun, and its end is not recorded"
        return f"it was made before, as call {self.number}, and came to: {self.status}: {self.content}"


def words_of(what: str, past: PastEffect | None) -> str:
    """What is said of a call that does not run; where it has run before, that nothing of this takes it back."""
    return what if past is None else f"{what.rstrip('.')}. But {past.words.rstrip('.')}. That was not taken back."

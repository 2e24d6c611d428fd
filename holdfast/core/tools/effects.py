"""Effect classes of tools, the key that names one effect, and the rules for a second attempt.

1. A call's key is the same on every attempt, after every crash and in every continued run of the thread. It differs for
   a different call, and if a workflow id is reused.
2. The ledger has a row `started` before the effect, and `finished` with the result after it.
3. An attempt that finds `finished` returns the recorded result. One that finds `started` follows `second_attempt`
   and never guesses.
4. After a reset, or if a thread was closed during a call, the ledger holds effects that the run's own log lacks. They
   keep their keys: repeating the same call refers to the same effect.
"""

import json
from enum import StrEnum
from typing import Literal

from holdfast.core.base.canonical import digest, parsed
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall


class Effect(StrEnum):
    """The effect class of a tool's calls, as its author declares it."""

    READ = "read"
    """No effect: the call may run any number of times."""
    IDEMPOTENT = "idempotent"
    """An effect, but a repeated call with the same key (or arguments) changes nothing more."""
    VERIFIABLE = "verifiable"
    """An effect, and the tool's `check` can verify afterwards whether it happened."""
    UNSAFE = "unsafe"
    """An effect that only a person can verify afterwards."""


SecondAttempt = Literal["run", "check", "ask"]
"""Run it again · ask the tool's `check` · ask a person."""


def second_attempt(effect: Effect) -> SecondAttempt:
    """Return the action of an attempt if an earlier one started the effect and did not finish."""
    match effect:
        case Effect.READ | Effect.IDEMPOTENT:
            return "run"
        case Effect.VERIFIABLE:
            return "check"
        case Effect.UNSAFE:
            return "ask"


def effect_key(*, thread: str, first_run_id: str, number: int, call_digest: str) -> str:
    """Name one effect, format `effect/1`, with 40 hex digits, suitable as the idempotency key of any API.

    Args:
        thread: The workflow id.
        first_run_id: Temporal's first execution run id: the same after continue-as-new and reset.
        number: The call's number in the thread, counted from 1.
        call_digest: Digest of tool and arguments (`ToolCall.digest`).
    """
    return digest(["effect/1", thread, first_run_id, number, call_digest])[:40]


class PastEffect(Frozen):
    """An effect in the ledger that the current run did not start itself."""

    number: int
    """The call's number in the branch of the thread that started it."""
    first_run_id: str
    """First run id of the chain of Temporal runs that started it; part of its key."""
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    key: str
    epoch: int = 0
    """The last row of the ledger under that key."""
    call: str = ""
    """The call on one line."""
    status: str = "started"
    """The outcome (`ToolStatus`); `started` if none is recorded."""
    content: str = ""
    """The beginning of its result."""

    @property
    def words(self) -> str:
        """Describe the effect in a sentence, without the full stop."""
        if self.status == "started":
            return f"it may have run before, as call {self.number}: its start is recorded, but not its outcome"
        return f"it ran before, as call {self.number}, with the outcome {self.status}: {self.content}"


def words_of(reason: str, past: PastEffect | None) -> str:
    """Return the reason that a call does not run; if it ran before, add that the earlier effect was not undone."""
    return reason if past is None else f"{reason.rstrip('.')}. But {past.words.rstrip('.')}. That was not undone."


def describe_call(call: ToolCall) -> str:
    """Return a tool call as the Web UI lists it: `read_file(path="CHANGELOG.md")`.

    The ledger keeps these words with an effect, and `verify` compares them. So they never change for a call; to change
    them, compare rows of earlier releases with the earlier words.
    """
    arguments = parsed(call.arguments)
    if not isinstance(arguments, dict):
        return one_line(f"{call.name}({call.arguments})")
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return one_line(f"{call.name}({shown})")

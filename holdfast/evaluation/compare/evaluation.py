"""The result of playing a recorded run again: where the play differs from the recording. A pure function of both."""

import json
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import zip_longest
from operator import itemgetter
from typing import Any, Final, Literal

from holdfast.core.base.models import Frozen
from holdfast.core.run.views.diff import ComparedCost
from holdfast.core.tools.effects import Effect
from holdfast.evaluation.compare.trajectory import Call, Course, Ended

Expectation = Literal["same_calls", "same_effects", "same_result", "nothing_refused", "nothing_missing"]
"""What a set may expect of a play: the fields of `Evaluation` of that name have to be true."""

USUAL: Final[tuple[Expectation, ...]] = ("same_calls",)
"""What is expected of a run for which the set says nothing."""


class Refusal(Frozen):
    """A call that the policy did not let run, or about which it asks."""

    step: int
    """Counted from 1."""
    tool: str
    arguments: str
    verdict: Literal["ask", "deny", "cannot"]
    """`cannot`: a constraint refuses it, because a tool said that it cannot."""
    rule: str
    answered: bool
    """A recorded decision answered the question."""
    denied: bool = False
    """That decision denied it."""


class Measured(Frozen):
    """What a course has cost."""

    steps: int
    tokens: int
    usd: float | None = None
    """By list prices; None where the price of an LLM is unknown."""
    llm_seconds: float
    """How long its LLM calls took together."""


class Evaluation(Frozen):
    """A recorded run beside its play."""

    run: str
    """The name of the file."""
    thread: str = ""
    """The recorded thread."""
    unplayable: str = ""
    """Why it was not played; empty if it was. Then all else is as it was before."""
    ended: Ended = "open"
    """How the play ended; `asked`: it was stopped where nobody had decided in the recording."""
    recorded_ended: Ended = "open"
    result: str = ""
    recorded_result: str = ""
    same_result: bool = False
    """Both ended alike, with the same text but for spaces, or the same JSON but for spaces and the order of keys."""
    same_calls: bool = False
    """The LLM made the same calls in each step, and as many of them were refused."""
    same_effects: bool = False
    """The same calls with an effect ran, in any order."""
    diverges_at: int | None = None
    """The first step whose calls differ, counted from 1; None for none."""
    divergence: str = ""
    """What differs there."""
    refusals: tuple[Refusal, ...] = ()
    missing: tuple[str, ...] = ()
    """The calls that the recording has no result of, and the set no stub."""
    recorded: Measured = Measured(steps=0, tokens=0, llm_seconds=0)
    played: Measured = Measured(steps=0, tokens=0, llm_seconds=0)
    failed: tuple[str, ...] = ()
    """What the set expects and does not hold, in words."""

    @property
    def nothing_refused(self) -> bool:
        """Whether the policy allowed every call that it judged, or a recorded decision did."""
        return not any(map(_stays_refused, self.refusals))

    @property
    def nothing_missing(self) -> bool:
        """Whether every call that ran got a recorded result, or a stub."""
        return not self.missing

    @property
    def holds(self) -> bool:
        """Whether it was played, and all that is expected of it holds."""
        return not self.unplayable and not self.failed


def compare(run: str, recorded: Course, played: Course, *, thread: str = "", missing: Sequence[str] = ()) -> Evaluation:
    """Compare a play with its recording.

    Args:
        run: The name of the recording.
        recorded: What the recorded run did.
        played: What the play did.
        thread: The recorded thread.
        missing: The calls of the play that got no result, in words.
    """
    at, words = _divergence(recorded, played)
    return Evaluation(
        run=run,
        thread=thread,
        ended=played.ended,
        recorded_ended=recorded.ended,
        result=played.result,
        recorded_result=recorded.result,
        same_result=played.ended == recorded.ended and _meaning(played.result) == _meaning(recorded.result),
        same_calls=at is None,
        same_effects=_effects(played) == _effects(recorded),
        diverges_at=at,
        divergence=words,
        refusals=_refusals(played),
        missing=tuple(missing),
        recorded=_measured(recorded),
        played=_measured(played),
    )


def expected(found: Evaluation, expect: Sequence[Expectation], *, result_has: Sequence[str] = ()) -> Evaluation:
    """Return an evaluation with what does not hold of what is expected.

    A play that breaks off never holds: what did not happen in it cannot differ.

    Args:
        found: The evaluation.
        expect: What has to be true.
        result_has: Texts that the result has to contain, in upper or lower case.
    """
    failed = [f"it ended {found.ended}: {found.result}"] if _broke_off(found) else []
    failed += [f"{name}: {_why(found, name)}" for name in expect if not getattr(found, name)]
    failed += [f"the result lacks {text!r}" for text in result_has if text.casefold() not in found.result.casefold()]
    return found.model_copy(update={"failed": tuple(failed)})


def _broke_off(found: Evaluation) -> bool:
    return found.ended in ("failed", "blocked", "open") and found.ended != found.recorded_ended


def _stays_refused(refusal: Refusal) -> bool:
    return refusal.verdict != "ask" or refusal.denied or not refusal.answered


def _why(found: Evaluation, expectation: Expectation) -> str:
    match expectation:
        case "same_calls":
            return f"step {found.diverges_at}: {found.divergence}"
        case "same_effects":
            return "other calls with an effect ran than in the recording"
        case "same_result":
            return f"it ended {found.ended}, the recording {found.recorded_ended}, or with another text"
        case "nothing_refused":
            return "; ".join(f"{each.tool} ({each.rule})" for each in found.refusals if _stays_refused(each))
        case "nothing_missing":
            return "; ".join(found.missing)


# Where do they part?


def _divergence(recorded: Course, played: Course) -> tuple[int | None, str]:
    """Return the first step whose calls differ, and how; None if none does."""
    for step, (before, now) in enumerate(zip_longest(recorded.steps, played.steps, fillvalue=()), 1):
        for one, other in zip_longest(before, now):
            if one is None or other is None or (one.digest, one.refused) != (other.digest, other.refused):
                return step, f"the recording {_said(one)}, the play {_said(other)}"
    return None, ""


def _said(call: Call | None) -> str:
    if call is None:
        return "makes no further call"
    return f"calls {call.tool}({call.arguments[:200]})" + (f" [{call.status}]" if call.refused else "")


def _effects(course: Course) -> Counter[str]:
    return Counter(call.ran for call in course.calls if call.ran and call.effect is not Effect.READ)


def _refusals(course: Course) -> tuple[Refusal, ...]:
    found: list[Refusal] = []
    for step, calls in enumerate(course.steps, 1):
        for call in calls:
            kind: Literal["ask", "deny", "cannot"] | None = None
            if call.status == "cannot" and not call.ran:
                kind = "cannot"
            elif call.verdict in ("ask", "deny"):
                kind = call.verdict
            if kind:
                answered = kind == "ask" and call.status != "open"
                given = {"tool": call.tool, "arguments": call.arguments, "rule": call.rule}
                denied = answered and call.status == "denied"
                found.append(Refusal(step=step, verdict=kind, answered=answered, denied=denied, **given))
    return tuple(found)


def _meaning(text: str) -> tuple[str, str]:
    """What counts of a result: of JSON its values, exactly and with their types; of other text all but its spaces."""
    try:
        return "json", repr(json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_members))
    except (ValueError, ArithmeticError, RecursionError):
        return "text", " ".join(text.split())


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """An object as a tuple, which no array is."""
    return tuple(sorted(pairs, key=itemgetter(0)))


def _measured(course: Course) -> Measured:
    return Measured(steps=len(course.steps), tokens=sum(map(_tokens, course.costs)), llm_seconds=course.llm_ms / 1000)


def _tokens(cost: ComparedCost) -> int:
    return cost.usage.prompt_tokens + cost.usage.completion_tokens

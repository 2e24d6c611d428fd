"""The result of rerunning a recorded run: how the rerun differs from the recording. A pure function of both."""

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
from holdfast.evaluation.compare.trajectory import Call, Ended, Trajectory

Expectation = Literal["same_calls", "same_effects", "same_result", "nothing_refused", "nothing_missing"]
"""The expectations that a dataset may set: the fields of `Evaluation` with these names must be true."""

USUAL: Final[tuple[Expectation, ...]] = ("same_calls",)
"""The expectations of a run for which the dataset sets none."""


class UnauthorizedCall(Frozen):
    """A call that the policy denied, or for which it required approval."""

    step: int
    """Counted from 1."""
    tool: str
    arguments: str
    verdict: Literal["ask", "deny", "cannot"]
    """`cannot`: a constraint blocks it, because a tool reported that it cannot."""
    rule: str
    answered: bool
    """A recorded decision answered the approval request."""
    denied: bool = False
    """That decision denied it."""


class RunCost(Frozen):
    """The cost of a trajectory."""

    steps: int
    tokens: int
    usd: float | None = None
    """By list prices; None if the price of an LLM is unknown."""
    llm_seconds: float
    """The total duration of its LLM calls."""


class Evaluation(Frozen):
    """A recorded run compared with its rerun."""

    run: str
    """The name of the file."""
    thread: str = ""
    """The recorded thread."""
    unplayable: str = ""
    """Why the run was not rerun: then all other fields have their defaults. Empty if it was."""
    ended: Ended = "open"
    """How the rerun ended; `asked`: it stopped at an approval request without a recorded decision."""
    recorded_ended: Ended = "open"
    result: str = ""
    recorded_result: str = ""
    same_result: bool = False
    """Both ended alike, with the same text up to white space, or the same JSON up to white space and key order."""
    same_calls: bool = False
    """The LLM made the same calls in each step, and the same ones were refused."""
    same_effects: bool = False
    """The same calls with effects ran, in any order."""
    diverges_at: int | None = None
    """The first step whose calls differ, counted from 1; None if none does."""
    divergence: str = ""
    """The difference in that step."""
    refusals: tuple[UnauthorizedCall, ...] = ()
    missing: tuple[str, ...] = ()
    """The calls with neither a recorded result nor a stub."""
    recorded: RunCost = RunCost(steps=0, tokens=0, llm_seconds=0)
    played: RunCost = RunCost(steps=0, tokens=0, llm_seconds=0)
    failed: tuple[str, ...] = ()
    """The expectations that failed, as sentences."""

    @property
    def nothing_refused(self) -> bool:
        """Whether the policy or a recorded decision allowed every call that was judged."""
        return not any(map(_stays_refused, self.refusals))

    @property
    def nothing_missing(self) -> bool:
        """Whether every call that ran got a recorded result, or a stub."""
        return not self.missing

    @property
    def holds(self) -> bool:
        """Whether the run was rerun and meets all expectations."""
        return not self.unplayable and not self.failed


def compare(
    run: str, recorded: Trajectory, rerun: Trajectory, *, thread: str = "", missing: Sequence[str] = ()
) -> Evaluation:
    """Compare a rerun with its recording.

    Args:
        run: The name of the recording.
        recorded: The trajectory of the recorded run.
        rerun: The trajectory of the rerun.
        thread: The recorded thread.
        missing: The calls of the rerun that got no result, as text.
    """
    at, divergence = _divergence(recorded, rerun)
    return Evaluation(
        run=run,
        thread=thread,
        ended=rerun.ended,
        recorded_ended=recorded.ended,
        result=rerun.result,
        recorded_result=recorded.result,
        same_result=rerun.ended == recorded.ended and _meaning(rerun.result) == _meaning(recorded.result),
        same_calls=at is None,
        same_effects=_effects(rerun) == _effects(recorded),
        diverges_at=at,
        divergence=divergence,
        refusals=_refusals(rerun),
        missing=tuple(missing),
        recorded=_cost_of(recorded),
        played=_cost_of(rerun),
    )


def expected(evaluation: Evaluation, expect: Sequence[Expectation], *, result_has: Sequence[str] = ()) -> Evaluation:
    """Return an evaluation with the expectations that failed.

    A rerun that breaks off always fails, because events that never happened cannot differ.

    Args:
        evaluation: The evaluation.
        expect: The expectations.
        result_has: Texts that the result must contain; case is ignored.
    """
    failed = [f"it ended {evaluation.ended}: {evaluation.result}"] if _broke_off(evaluation) else []
    failed += [f"{name}: {_why(evaluation, name)}" for name in expect if not getattr(evaluation, name)]
    failed += [
        f"the result lacks {text!r}" for text in result_has if text.casefold() not in evaluation.result.casefold()
    ]
    return evaluation.model_copy(update={"failed": tuple(failed)})


def _broke_off(evaluation: Evaluation) -> bool:
    return evaluation.ended in ("failed", "blocked", "open") and evaluation.ended != evaluation.recorded_ended


def _stays_refused(refusal: UnauthorizedCall) -> bool:
    return refusal.verdict != "ask" or refusal.denied or not refusal.answered


def _why(evaluation: Evaluation, expectation: Expectation) -> str:
    match expectation:
        case "same_calls":
            return f"step {evaluation.diverges_at}: {evaluation.divergence}"
        case "same_effects":
            return "other calls with an effect ran than in the recording"
        case "same_result":
            return f"it ended {evaluation.ended}, the recording {evaluation.recorded_ended}, or with another text"
        case "nothing_refused":
            return "; ".join(f"{each.tool} ({each.rule})" for each in evaluation.refusals if _stays_refused(each))
        case "nothing_missing":
            return "; ".join(evaluation.missing)


def _divergence(recorded: Trajectory, rerun: Trajectory) -> tuple[int | None, str]:
    """Return the first step whose calls differ, and how; None if none does."""
    for step, (before, now) in enumerate(zip_longest(recorded.steps, rerun.steps, fillvalue=()), 1):
        for one, other in zip_longest(before, now):
            if one is None or other is None or (one.digest, one.refused) != (other.digest, other.refused):
                return step, f"the recording {_described(one)}, the rerun {_described(other)}"
    return None, ""


def _described(call: Call | None) -> str:
    if call is None:
        return "makes no further call"
    return f"calls {call.tool}({call.arguments[:200]})" + (f" [{call.status}]" if call.refused else "")


def _effects(trajectory: Trajectory) -> Counter[str]:
    return Counter(call.ran for call in trajectory.calls if call.ran and call.effect is not Effect.READ)


def _refusals(trajectory: Trajectory) -> tuple[UnauthorizedCall, ...]:
    refusals: list[UnauthorizedCall] = []
    for step, calls in enumerate(trajectory.steps, 1):
        for call in calls:
            kind: Literal["ask", "deny", "cannot"] | None = None
            if call.status == "cannot" and not call.ran:
                kind = "cannot"
            elif call.verdict in ("ask", "deny"):
                kind = call.verdict
            if kind:
                answered = kind == "ask" and call.status != "open"
                fields = {"tool": call.tool, "arguments": call.arguments, "rule": call.rule}
                denied = answered and call.status == "denied"
                refusals.append(UnauthorizedCall(step=step, verdict=kind, answered=answered, denied=denied, **fields))
    return tuple(refusals)


def _meaning(text: str) -> tuple[str, str]:
    """Normalise a result for comparison: the exact, typed values of JSON, or other text up to white space."""
    try:
        return "json", repr(json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_members))
    except (ValueError, ArithmeticError, RecursionError):
        return "text", " ".join(text.split())


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Represent an object as a tuple, since arrays are lists."""
    return tuple(sorted(pairs, key=itemgetter(0)))


def _cost_of(trajectory: Trajectory) -> RunCost:
    return RunCost(
        steps=len(trajectory.steps), tokens=sum(map(_tokens, trajectory.costs)), llm_seconds=trajectory.llm_ms / 1000
    )


def _tokens(cost: ComparedCost) -> int:
    return cost.usage.prompt_tokens + cost.usage.completion_tokens

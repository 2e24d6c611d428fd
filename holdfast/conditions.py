"""Conditions of policy rules: expressions in CEL, the Common Expression Language, over one tool call.

An expression ends always, changes nothing, and sees nothing but the variables it is given. Its regular expressions run
in linear time, whatever an LLM writes into the arguments. Language: https://cel.dev
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from temporalio import workflow

if TYPE_CHECKING:
    import cel

VARIABLES = ("args", "tool", "effect", "agent", "depth", "workspace")
"""What an expression may name: the call's arguments as JSON, the tool's name and effect class, the agent's name,
how many agents stand between the run and a person, and the run's folder."""

_EXAMPLE: dict[str, Any] = {"args": {}, "tool": "", "effect": "", "agent": "", "depth": 0, "workspace": ""}


class ConditionFailed(Exception):
    """An expression has no answer for these values; the text says why."""


def check_condition(expression: str) -> None:
    """Refuse an expression that can never have an answer.

    Raises:
        ValueError: It is not CEL, or names a variable or function that does not exist.
    """
    try:
        program = _compiled(expression)
    except ValueError as error:
        raise ValueError(_first_line(error)) from None
    try:
        program.execute(_EXAMPLE)
    except RuntimeError as error:
        if "Undefined variable or function" in str(error):
            name = str(error).partition("'")[2].partition("'")[0]
            known = ", ".join(VARIABLES)
            raise ValueError(f"there is no variable or function {name!r}; the variables are {known}") from None
    except Exception:  # with no arguments at all, most expressions have no answer
        pass


def holds(expression: str, variables: Mapping[str, Any]) -> bool:
    """Whether the condition is met.

    Raises:
        ConditionFailed: It has no answer: an argument is missing, or has another type than the expression expects.
    """
    try:
        answer = _compiled(expression).execute(dict(variables))
    except Exception as error:
        raise ConditionFailed(f"{type(error).__name__}: {_first_line(error)}"[:300]) from None
    if not isinstance(answer, bool):
        raise ConditionFailed(f"it gives {type(answer).__name__}, and not true or false")
    return answer


@lru_cache(maxsize=1_024)
def _compiled(expression: str) -> "cel.Program":
    # Here, for it brings a command line of its own, and most processes meet no condition.
    with workflow.unsafe.imports_passed_through():
        import cel

        return cel.compile(expression)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

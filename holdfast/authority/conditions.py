"""Conditions of policy rules: expressions in CEL, the Common Expression Language, over one tool call.

An expression ends always, changes nothing, and sees nothing but the variables it is given. Its regular expressions run
in linear time, whatever an LLM writes into the arguments. Language: https://cel.dev
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from temporalio import workflow

if TYPE_CHECKING:
    import cel

VARIABLES = ("args", "paths", "tool", "effect", "agent", "depth", "workspace", "trust")
"""What an expression may name: the call's arguments as JSON, those of them that are text as normalised paths relative
to the run's folder (`holdfast.base.paths`), the tool's name and effect class, the agent's name, how many agents stand
between the run and a person, the run's folder, and what the LLM's words are worth after all that it has read (`agent`,
`tool` or `web`)."""

CHARS = 2_000
"""Length of an expression: the library reads it by recursion, and a very long one would end the process."""

MACROS = 2
"""Loops over lists in an expression (`all`, `exists`, …), and the items they may find in the arguments: time in a
workflow is short, and the LLM says how long the lists are."""
ITEMS = 300

_EXAMPLE: dict[str, Any] = {
    "args": {},
    "paths": {},
    "tool": "",
    "effect": "",
    "agent": "",
    "depth": 0,
    "workspace": "",
    "trust": "",
}
_TEXT = re.compile(r"""[rRbB]*(?:\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w+)\s*,")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*\()")


class ConditionFailed(Exception):
    """An expression has no answer for these values; the text says why."""


def check_condition(expression: str) -> None:
    """Refuse an expression that can never have an answer, or could take too long to find it.

    Raises:
        ValueError: It is not CEL, too long, loops too often, or names a variable or function that does not exist.
    """
    if len(expression) > CHARS:
        raise ValueError(f"it is over {CHARS:,} characters long")
    bare = _TEXT.sub('""', expression)
    loops = _MACRO.findall(bare)
    if len(loops) > MACROS:
        raise ValueError(f"it loops {len(loops)} times, and may {MACROS} times")
    known = {*VARIABLES, *loops, "true", "false", "null", "in"}
    if unknown := next((name for name in _NAME.findall(bare) if name not in known), None):
        raise ValueError(f"there is no variable {unknown!r}; the variables are {', '.join(VARIABLES)}")
    try:
        _compiled(expression).execute(_EXAMPLE)
    except RuntimeError as error:
        if "Undefined variable or function" in str(error):
            name = str(error).partition("'")[2].partition("'")[0]
            raise ValueError(f"there is no function {name!r}") from None
    except ValueError as error:
        raise ValueError(_first_line(error)) from None
    except Exception:  # noqa: S110  # with no arguments at all, most expressions have no answer
        pass


def holds(expression: str, variables: Mapping[str, Any]) -> bool:
    """Whether the condition is met.

    Raises:
        ConditionFailed: It has no answer: an argument is missing, or has another type than the expression expects.
    """
    if _MACRO.search(expression) and _items(variables.get("args")) > ITEMS:
        raise ConditionFailed(f"the arguments have lists of more than {ITEMS} items, and it loops over lists")
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


def _items(value: Any) -> int:
    """How many items the lists and objects in a JSON value have."""
    if isinstance(value, dict):
        value = list(value.values())
    return len(value) + sum(map(_items, value)) if isinstance(value, list) else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

"""Conditions of policy rules: expressions in CEL, the Common Expression Language, over one tool call.

An expression always terminates, has no side effects, and sees only the variables it is given. Its regular expressions
run in linear time, even on hostile arguments. Language: https://cel.dev
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from temporalio import workflow

from holdfast.core.authority.condition_costs import Budget, cost

if TYPE_CHECKING:
    import cel

VARIABLES = ("args", "paths", "tool", "effect", "agent", "depth", "workspace", "trust", "context")
"""The variables of an expression: the call's arguments as JSON; its text arguments as normalised paths relative to the
workspace (`holdfast.core.base.paths`); the tool's name and effect class; the agent's name; the number of agents between
the run and a person; the workspace; the trust level of what the LLM writes, given everything it has read (`agent`,
`tool` or `web`); and the fields of the run's typed context.
"""

CHARS = 2_000
"""Maximum length of an expression: the library parses recursively, and a very long one would crash the process."""

MACROS = 2
"""Maximum number of loops over lists in an expression (`all`, `exists`, …), and of items in the arguments that they
loop over: a workflow task must be short, and the LLM controls the length of the lists."""
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
    "context": {},
}
_TEXT = re.compile(
    r"""
    //[^\n]*                                                               # a comment: a quote in it begins no text
    | [rR] (?: \"{3} .*? \"{3} | '{3} .*? '{3} | "[^"]*" | '[^']*' )        # without escapes
    | \"{3} (?: \\. | [^\\] )*? \"{3} | '{3} (?: \\. | [^\\] )*? '{3}
    | "(?: \\. | [^"\\] )*" | '(?: \\. | [^'\\] )*'
    """,
    re.DOTALL | re.VERBOSE,
)
_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w+)\s*,")
_MATCHES = re.compile(r"\bmatches\b(?=\s*(?:\(|//|$))")
_MATCHER = "holdfast_matches"
_UNCONVERTED = "Conversion Error"
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\s*\()")


class ConditionFailed(Exception):
    """An expression cannot be evaluated for these values; the message says why."""


def check_condition(expression: str) -> None:
    """Reject an expression that can never be evaluated, or could take too long.

    Raises:
        ValueError: It is not CEL, is too long, loops too often, or names an unknown variable or function.
    """
    if len(expression) > CHARS:
        raise ValueError(f"it is over {CHARS:,} characters long")
    bare = _without_text(expression)
    looped = _MACRO.findall(bare)
    if len(looped) > MACROS:
        raise ValueError(f"it loops over lists {len(looped)} times, but at most {MACROS} loops are allowed")
    known = {*VARIABLES, *looped, "true", "false", "null", "in"}
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
    except Exception:  # noqa: S110  # without any arguments, most expressions cannot be evaluated
        pass


@lru_cache(maxsize=1_024)
def loops(expression: str) -> int:
    """Return the number of loops over lists in an expression."""
    return len(_MACRO.findall(_without_text(expression)))


@lru_cache(maxsize=1_024)
def _reads_context(expression: str) -> bool:
    return "context" in _NAME.findall(_without_text(expression))


def holds(expression: str, variables: Mapping[str, Any], budget: Budget | None = None) -> bool:
    """Whether the condition is met.

    Args:
        expression: The condition.
        variables: The values of `VARIABLES`.
        budget: Limits its cost; None for no limit, as in 0.1.0.

    Raises:
        ConditionFailed: It cannot be evaluated: an argument is missing or has an unexpected type, or it costs too much.
    """
    if loops(expression) and _items(variables.get("args")) > ITEMS:
        raise ConditionFailed(f"it loops over lists, and the arguments have lists of more than {ITEMS} items")
    if "context" in variables and not _reads_context(expression):
        variables = {name: value for name, value in variables.items() if name != "context"}
    if loops(expression) and _items(variables.get("context")) > ITEMS:
        raise ConditionFailed(f"it loops over lists, and the context has lists of more than {ITEMS} items")
    if budget and not budget.spend(cost(_without_text(expression), loops(expression), variables)):
        raise ConditionFailed("it would take too long for these arguments")
    try:
        answer = _evaluated(expression, variables, budget)
    except Exception as error:
        raise ConditionFailed(f"{type(error).__name__}: {_first_line(error)}"[:300]) from None
    if budget and budget.why:
        raise ConditionFailed(budget.why)
    if not isinstance(answer, bool):
        raise ConditionFailed(f"it gives {type(answer).__name__}, not true or false")
    return answer


def _evaluated(expression: str, variables: Mapping[str, Any], budget: Budget | None) -> Any:
    if budget is None:
        return _compiled(expression).execute(dict(variables))
    matching = _with_matcher(expression)
    if matching == expression:  # without our matcher, the language needs no context, which is slow to make
        budget.why = ""
        named = _named(expression)
        try:
            return _compiled(expression).execute({name: each for name, each in variables.items() if name in named})
        except ValueError as error:
            if _UNCONVERTED not in str(error):
                raise
            # Nothing has been evaluated yet, and below, the error names the variable.
    with workflow.unsafe.imports_passed_through():
        import cel
    return _compiled(matching).execute(cel.Context(dict(variables), {_MATCHER: budget.matcher()}))


@lru_cache(maxsize=1_024)
def _named(expression: str) -> frozenset[str]:
    """Return the variables to convert for an expression: those that its text may name, and always the arguments, which
    may hold what the language does not have.
    """
    return frozenset(name for name in VARIABLES if name == "args" or name in expression)


@lru_cache(maxsize=1_024)
def _with_matcher(expression: str) -> str:
    """Return an expression that calls our `Matcher` in place of `matches`, outside string literals and comments."""
    kept, end = "", 0
    for text in (*_TEXT.finditer(expression), None):
        begin = text.start() if text else len(expression)
        kept += _MATCHES.sub(_MATCHER, expression[end:begin]) + (text[0] if text else "")
        end = text.end() if text else end
    return kept


@lru_cache(maxsize=1_024)
def _compiled(expression: str) -> "cel.Program":
    # Imported here because it also loads a command line, and most processes evaluate no condition.
    with workflow.unsafe.imports_passed_through():
        import cel

        return cel.compile(expression)


@lru_cache(maxsize=1_024)
def _without_text(expression: str) -> str:
    """Return an expression without comments and with empty string literals, so that neither can hide a loop."""
    return _TEXT.sub(lambda found: " " if found[0].startswith("//") else '""', expression)


def _items(value: Any) -> int:
    """Count the items of the lists and objects in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    return len(value) + sum(map(_items, value)) if isinstance(value, list) else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]

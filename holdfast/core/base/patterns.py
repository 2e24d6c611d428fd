"""Regular expressions for untrusted text: they match in linear time and are compiled once.

The engine is Rust's, which comes with pydantic; it has neither look-around nor backreferences. Python's engine
backtracks: a few dozen characters can keep it busy for years.
"""

import re
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

MOST_STATES = 5_000
"""Maximum size of an expression, in states of its automaton; one of this size takes about 0.1 s to compile."""

_CLASS_STATES = 20
"""Estimated states of a character class, which has ranges all over Unicode."""

_TOKEN = re.compile(
    r"""
      \\[pP]\{[^}]*\} | \\. | \[\^?\]?(?:\\.|[^\]\\])*\]      # an escape, or a class of characters
    | \{(\d{1,6})(?:,(\d{0,6}))?\}                             # how often the last part is repeated
    | \(\?[^:)=]*[:)=]? | [()] | .
    """,
    re.DOTALL | re.VERBOSE,
)


class PatternInvalid(ValueError):
    """A regular expression cannot be used; the message says why."""


def states(pattern: str) -> int:
    """Estimate the number of states of a regular expression's automaton: its cost per character of text."""
    sums, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token[1]:
            times = max(int(token[1]), int(token[2] or 0), 1)
            sums[-1] += last * (times - 1)
            last *= times
        elif text.startswith("(") and not text.endswith(")"):
            sums.append(0)
        elif text == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif text not in "*+?|":
            wide = text == "." or text.startswith("[") or (text.startswith("\\") and text[1:2].isalpha())
            last = _CLASS_STATES if wide else 1
            sums[-1] += last
        if sums[-1] > MOST_STATES:
            break
    return sum(sums)


def check_pattern(pattern: str) -> None:
    """Reject a regular expression that cannot be used.

    Raises:
        PatternInvalid: It is malformed, has look-around or a backreference, or is too large.
    """
    if states(pattern) > MOST_STATES:
        raise PatternInvalid(f"the regular expression {pattern[:60]!r} is too large: it repeats too much")
    _compiled(pattern)


def matches(pattern: str, text: str) -> bool:
    """Whether a regular expression matches anywhere in a text.

    Raises:
        PatternInvalid: The expression cannot be used.
    """
    check_pattern(pattern)
    return _compiled(pattern).isinstance_python(text)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        why = " ".join(str(error).split())[:200]
        raise PatternInvalid(f"the regular expression {pattern[:60]!r} cannot be used: {why}") from None

"""`Partial`: a tool's result of which a part is missing, with the part that is missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.base.text import one_line, visible
from holdfast.core.tools.results import result_text

MISSING_CHARS = 500
"""Maximum characters of the description of the missing part, on one line."""

MISSING_ITEMS = 20
"""Maximum number of missing items that are named; the others are counted."""


@dataclass(frozen=True)
class Partial:
    """A tool's result: a part of what the call asks for.

    The call has ended as `ok`, and the LLM reads the result with the description of the missing part. From a call with
    an effect, it states that this part of the effect happened, and that the missing part did not.
    """

    result: Any
    """The part that there is: any value that a tool may return."""
    missing: str | Sequence[Any]
    """The part that is missing: a sentence, or a list of items, such as the pages that could not be read. An empty one
    means that the result is complete."""


def missing_text(missing: str | Sequence[Any]) -> str:
    """Return the description of a missing part as text of any length; empty if nothing is missing.

    Raises:
        Exception: The methods of an item may raise anything.
    """
    if isinstance(missing, str):
        return missing
    items = list(missing)
    more = f"; and {len(items) - MISSING_ITEMS:,} more" if len(items) > MISSING_ITEMS else ""
    return "; ".join(result_text(item) for item in items[:MISSING_ITEMS]) + more


def shorten_missing(text: str) -> str:
    """Put a description on one line, without invisible characters, and cut it to `MISSING_CHARS`."""
    return one_line(visible(text), MISSING_CHARS)

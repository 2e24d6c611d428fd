"""Where a function is in the source, for messages to the person who wrote it."""

import inspect
from collections.abc import Callable
from typing import Any

from holdfast.tools.signatures import plain


def place(function: Callable[..., Any]) -> str:
    """Return file and line of a function, as `app/tools.py:12`; empty for what is not written in Python."""
    code = getattr(inspect.unwrap(plain(function)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def placed(function: Callable[..., Any], message: str) -> str:
    """Return a message that begins with file and line of the function that it is about."""
    where = place(function)
    return f"{where}: {message}" if where else message

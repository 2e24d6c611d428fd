"""The log of activities: a failure to write a line never fails an activity.

A program that embeds a worker, or a test, has its own output, which may be closed or unable to encode a file's name.
An effect that has happened must not be lost because of that.
"""

from contextlib import suppress
from typing import Any

import structlog


class SafeLogger:
    """Writes facts with key-values to the log; ignores a log that cannot be written.

    Args:
        name: The module that writes.
    """

    def __init__(self, name: str) -> None:
        self._log = structlog.get_logger(name)

    def info(self, event: str, **fields: Any) -> None:
        """Write a fact."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a fact that somebody may have to act on."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write a fault."""
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        write = getattr(self._log, level)
        try:
            write(event, **fields)
        except Exception:  # a program's own logging may raise anything
            with suppress(Exception):
                write(event, **{name: _ascii(value) for name, value in fields.items()})


def _ascii(value: Any) -> Any:
    return value.encode("ascii", "backslashreplace").decode() if isinstance(value, str) else value

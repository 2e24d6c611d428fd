"""The loggers of everything that runs inside a worker, and so perhaps inside a program of a user.

A process of ours configures structlog, which then renders each event. A program that has not done so gets the events
from the standard library's loggers `holdfast.…`, at the levels that it chose: a library prints nothing on its own.
"""

import logging
import sys
from typing import Any


class EventLogger:
    """Writes facts with key-values: `log.info("migrated", migration="0007")`.

    Args:
        name: The component or module that writes: `worker`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = logging.getLogger(name if name.startswith("holdfast") else f"holdfast.{name}")

    def info(self, event: str, **fields: Any) -> None:
        """Write a fact."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a fact that somebody may have to act on."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write a fault."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        # Its import takes 50 ms, which commands that log nothing should not pay; whoever configures it, imports it.
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            getattr(structlog.get_logger(self._name), logging.getLevelName(level).lower())(event, **fields)
        elif self._plain.isEnabledFor(level):
            words = [event, *(f"{name}={value!r}" for name, value in fields.items())]
            self._plain.log(level, "%s", " ".join(words), extra={"holdfast": fields}, stacklevel=3)

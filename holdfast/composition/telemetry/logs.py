"""Logging: renders structlog's events and the standard library's records (Temporal's, the clients') alike.

1. An event is a `snake_case` fact with key-values. Ids always; prompts, arguments and secrets never.
2. Tracebacks show no local variables, which hold prompts and secrets.
3. Each finished line, including its traceback, is redacted: values of secrets are removed.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio.exceptions import ApplicationError

from holdfast.config.traced_lines import line_trace
from holdfast.core.tools.secrets import NO_SECRETS, Secrets

WITHHELD = frozenset(
    {
        *("cookie", "database_url", "headers", "set_cookie"),
        *("arguments", "content", "instructions", "messages", "prompt", "result", "task", "transcript"),
    }
)
"""Keys whose values are never logged, by any logger."""

_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|access_?key|private_?key|encryption_?keys?|authorization|bearer|credentials?"
    r"|passwd|password|passphrase|secret|token)$"
)
"""Keys whose last words mark a secret: `x-api-key`, `github_token`; not `tokens`."""

# Loggers that log every request or retry; our own events cover what matters.
QUIET = ("asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "openai", "psycopg", "psycopg.pool", "urllib3")


def configure_logging(
    level: str, form: Literal["console", "json"], *, stream: TextIO | None = None, secrets: Secrets = NO_SECRETS
) -> None:
    """Send all logs to `stream` (stderr by default), as lines for people or as one JSON object per line.

    Args:
        level: The least severe level to log, for our events and Temporal's, for example `INFO`.
        form: `console` has colours if the stream is a terminal.
        stream: Receives the lines.
        secrets: The secrets to redact; a later call can replace them.
    """
    target = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace_of_workflow,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        _extract_temporal_ids,
        _shorten_activity_errors,
        _withhold,
    ]
    output = logging.StreamHandler(target)
    output.setFormatter(
        _Redacting(
            secrets,
            foreign_pre_chain=[structlog.stdlib.PositionalArgumentsFormatter(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(form, target)],
        )
    )
    root = logging.getLogger()
    for previous in root.handlers[:]:  # removes ours of an earlier call, and keeps handlers of others
        if isinstance(previous.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(previous)
    root.addHandler(output)
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


class _Redacting(structlog.stdlib.ProcessorFormatter):
    """Redacts the finished line: a secret can be in a key-value, in a message or in a traceback."""

    def __init__(self, secrets: Secrets, **options: Any) -> None:
        super().__init__(**options)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.redact(super().format(record))


def _renderers(form: Literal["console", "json"], stream: TextIO) -> list[Processor]:
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    return [
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=32
        )
    ]


def _add_trace_of_workflow(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the ids of the trace of the workflow that writes the line, as activities bind theirs."""
    if (trace := line_trace.get()) is not None:
        span = trace()
        event.setdefault("trace_id", span.trace)
        event.setdefault("span_id", span.span)
    return event


def _extract_temporal_ids(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace the dictionary that temporalio appends to a message as text by keys of the event."""
    for source in ("temporal_workflow", "temporal_activity"):
        ids = event.pop(source, None)
        if isinstance(ids, dict):
            event["event"] = str(event["event"]).removesuffix(f" ({ids})")
            for key, value in ids.items():
                event.setdefault(key, value)
    return event


def _shorten_activity_errors(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace the traceback of an error that an activity raised on purpose by its message."""
    info = event.get("exc_info")
    error = info[1] if isinstance(info, tuple) else sys.exc_info()[1] if info is True else info
    if isinstance(error, ApplicationError):
        del event["exc_info"]
        event["reason"] = str(error)
    return event


def _withhold(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace values that must not be logged by a placeholder."""
    return _without(event)


def _without(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: "(withheld)" if _is_withheld(key) else _inside(value) for key, value in fields.items()}


def _inside(value: Any) -> Any:
    """Apply `_without` to mappings within a value."""
    if isinstance(value, Mapping):
        return _without(value)
    return [_inside(each) for each in value] if type(value) is list else value


def _is_withheld(key: Any) -> bool:
    name = str(key).lower().replace("-", "_")
    return name in WITHHELD or _SECRET_KEY.search(name) is not None

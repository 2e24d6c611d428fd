"""Logging: structlog's events and the standard library's records (Temporal's, the clients') rendered the same way.

1. An event is a `snake_case` fact with key-values. Ids always; prompts, arguments and secrets never.
2. Tracebacks show no local variables: prompts and secrets live there.
3. A line is searched for the values of secrets when it is finished, traceback and all.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio.exceptions import ApplicationError

from holdfast.tools.secrets import NO_SECRETS, Secrets

WITHHELD = frozenset(
    {
        *("cookie", "database_url", "headers", "set_cookie"),
        *("arguments", "content", "instructions", "messages", "prompt", "result", "task", "transcript"),
    }
)
"""Keys whose values are not logged, whoever logs them."""

_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|access_?key|private_?key|encryption_?keys?|authorization|bearer|credentials?"
    r"|passwd|password|passphrase|secret|token)$"
)
"""Keys that say by their last words that the value is a secret: `x-api-key`, `github_token`; not `tokens`."""

# Loggers that tell each request or retry of theirs; what matters of it is an event of ours.
QUIET = ("asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "openai", "psycopg", "psycopg.pool", "urllib3")


def configure_logging(
    level: str, form: Literal["console", "json"], *, stream: TextIO | None = None, secrets: Secrets = NO_SECRETS
) -> None:
    """Send all logs to `stream` (stderr by default), as lines for people or as one JSON object per line.

    Args:
        level: the least severe level of ours and of Temporal's workers to log, for example `INFO`.
        form: `console` has colours if the stream is a terminal.
        stream: where to write.
        secrets: what no line may hold; a later call can name more.
    """
    target = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        _lift_temporal_ids,
        _tell_in_words,
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
    for previous in root.handlers[:]:  # ours, of an earlier call; others put there what they need
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
    """Redacts the finished line, for a value can come in by a key, in a message or in a traceback."""

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


def _lift_temporal_ids(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Turn what temporalio appends to a message, a dictionary as text, into the keys that it also passes along."""
    for source in ("temporal_workflow", "temporal_activity"):
        ids = event.pop(source, None)
        if isinstance(ids, dict):
            event["event"] = str(event["event"]).removesuffix(f" ({ids})")
            for key, value in ids.items():
                event.setdefault(key, value)
    return event


def _tell_in_words(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace the traceback of an error that an activity raised on purpose by what it says."""
    info = event.get("exc_info")
    error = info[1] if isinstance(info, tuple) else sys.exc_info()[1] if info is True else info
    if isinstance(error, ApplicationError):
        del event["exc_info"]
        event["reason"] = str(error)
    return event


def _withhold(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replace values that must not be logged, so that a reader sees that there was one."""
    return _without(event)


def _without(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: "(withheld)" if _is_withheld(key) else _inside(value) for key, value in fields.items()}


def _inside(value: Any) -> Any:
    """The same for mappings in values."""
    if isinstance(value, Mapping):
        return _without(value)
    return [_inside(each) for each in value] if type(value) is list else value


def _is_withheld(key: Any) -> bool:
    name = str(key).lower().replace("-", "_")
    return name in WITHHELD or _SECRET_KEY.search(name) is not None

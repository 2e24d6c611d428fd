"""Redacts secrets in the errors of activities, which Temporal records in the history and the worker logs."""

import traceback
from typing import Any

from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.core.tools.secrets import Secrets


class Redacting(Interceptor):
    """An interceptor that redacts the errors of every activity.

    Args:
        secrets: The secrets to redact.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._secrets)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, secrets: Secrets) -> None:
        super().__init__(next)
        self._secrets = secrets

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except Exception as error:
            text = "".join(traceback.format_exception(error)) + "".join(map(str, _details(error)))
            if self._secrets.redact(text) == text:
                raise
            raise _redacted(error, self._secrets) from None


def _redacted(error: Exception, secrets: Secrets) -> ApplicationError:
    """Return an error that Temporal treats alike, without causes and details, which may also contain the secret."""
    if isinstance(error, ApplicationError):
        return ApplicationError(
            secrets.redact(error.message),
            type=error.type,
            non_retryable=error.non_retryable,
            next_retry_delay=error.next_retry_delay,
        )
    return ApplicationError(secrets.redact(str(error)), type=type(error).__name__)


def _details(error: Exception) -> tuple[Any, ...]:
    return tuple(error.details) if isinstance(error, ApplicationError) else ()

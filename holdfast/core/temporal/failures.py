"""Errors from history. Anybody with access to Temporal can fail an activity, so an error's details may be anything."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter

from holdfast.core.base.models import is_unread


class LenientFailureConverter(DefaultFailureConverter):
    """Temporal's failure converter, except that details which do not decode become text.

    An exception would fail the workflow task, and each of its retries.
    """

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Decode a failure into an exception. The failure's payloads never make it raise."""
        lenient = payload_converter if isinstance(payload_converter, _Details) else _Details(payload_converter)
        return super().from_failure(failure, lenient)


class EncodingFailureConverter(LenientFailureConverter):
    """A lenient failure converter that moves messages and stack traces into a payload, which can be encrypted."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)


class _Details(PayloadConverter):
    """Decodes the payloads of a failure; those that do not decode become text."""

    def __init__(self, converter: PayloadConverter) -> None:
        self._converter = converter

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return self._converter.to_payloads(values)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        return [self._detail(payload) for payload in payloads]

    def _detail(self, payload: Payload) -> Any:
        try:
            value = self._converter.from_payload(payload)
        except Exception:  # each converter raises its own
            return payload.data.decode("utf-8", "replace")
        return value.sent.decode("utf-8", "replace") if is_unread(value) else value

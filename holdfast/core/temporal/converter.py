"""Payload conversion: JSON without defaults, because history stores every byte; and seals on values that only our own
processes may create (`holdfast.core.mac.seals`).

1. A value of a type with `SEALED` is sealed when encoded. Without a valid seal it decodes as `Unsealed`, never as that
   type.
2. A type that also has `OPEN` decodes either way. The converter sets its field `sealed`; the payload cannot.
3. The data stays readable, because the seal is in the payload's metadata.
4. A value without a type is an unverified claim: the argument of a signal or an update. If it does not decode, it
   becomes `Unread`.
5. A codec that cannot decrypt a payload puts a placeholder with the reason in its place, until the type of the value is
   known: then the error is raised, or the value is rejected. Nobody can send a placeholder.
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar, Final, Self, cast

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    SerializationContext,
)

from holdfast.core.base.models import Unread
from holdfast.core.base.text import one_line
from holdfast.core.mac.seals import FleetKeys, Unsealed, WorkflowRef, sealing_id
from holdfast.core.run.state.features import require_features
from holdfast.core.temporal.failures import LenientFailureConverter
from holdfast.errors import HoldfastError

SEAL = "seal"
"""The metadata key of a payload's seal."""

ENCRYPTED: Final = b"binary/encrypted"
"""The encoding in the metadata of an encrypted payload."""

PLACE: Final = "encryption-place"
"""The metadata key of the place (namespace and workflow id) that an encrypted payload is bound to."""

UNREADABLE: Final = b"binary/unreadable"
"""The encoding of the placeholder for a payload that could not be decrypted; used only within a process."""

_WHY, _ERROR = "why", "error"


class DecryptionFailed(HoldfastError):
    """An encrypted payload cannot be read."""


class KeyUnknown(DecryptionFailed):
    """The payload was encrypted with a key that this process does not have."""


class PayloadAltered(DecryptionFailed):
    """The payload was altered, or another key has the same id."""


class PayloadMisplaced(DecryptionFailed):
    """The payload was encrypted for another workflow."""


class PlaintextRefused(DecryptionFailed):
    """A sealed payload is not encrypted, although our own processes encrypt all that they seal."""


_ERRORS = {kind.__name__: kind for kind in (KeyUnknown, PayloadAltered, PayloadMisplaced, PlaintextRefused)}


class _LeanJSON(PydanticJSONPlainPayloadConverter):
    def to_payload(self, value: Any) -> Payload | None:
        """Encode a model without its defaults, and any other value as Temporal does."""
        if not isinstance(value, BaseModel):
            return super().to_payload(value)
        data = value.model_dump_json(exclude_defaults=True).encode()
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)


_LEAN = tuple(
    _LeanJSON() if isinstance(each, JSONPlainPayloadConverter) else each
    for each in DefaultPayloadConverter.default_encoding_payload_converters
)
"""Created once, because the SDK creates new converters for every workflow task."""

_PROTOBUF_BYTES = 50_000
"""Maximum size of a claim in Protocol Buffers, which no client of ours uses and Python parses slowly."""

_WHY_CHARS = 200
"""Maximum length of the reason that a claim does not decode."""

_MAX_WORKFLOWS = 1_000
"""Number of workflows for which converters are cached."""


class LeanPayloadConverter(CompositePayloadConverter):
    """Temporal's default converters, but with lean JSON and seals."""

    seals: ClassVar[FleetKeys] = FleetKeys()
    """No keys by default, which suffices to read. `sealing` makes the converter of a process that acts."""

    def __init__(self) -> None:
        super().__init__(*_LEAN)
        self._workflow: WorkflowRef | None = None

    def with_context(self, context: SerializationContext) -> Self:
        """Return this converter bound to the values of one workflow."""
        bound = copy.copy(self)
        bound._workflow = workflow_of(context)
        return bound

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Encode values and seal those whose type requires it."""
        payloads = super().to_payloads(values)
        if self.seals and self._workflow:
            for value, payload in zip(values, payloads, strict=True):
                if getattr(type(value), "SEALED", False):
                    encoding = payload.metadata["encoding"]
                    kind = type(value).__name__
                    payload.metadata[SEAL] = self.seals.seal(self._workflow, kind, encoding, payload.data)
        return payloads

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decode values and verify seals.

        Raises:
            SealKeyUnknown: A value is sealed with a key that this process does not have.
            DecryptionFailed: A value with a type could not be decrypted.
            FeaturesUnknown: The input of a workflow requires a newer release.
        """
        values: list[Any] = []
        for payload, hint in zip_longest(payloads, type_hints or []):
            if getattr(hint, "SEALED", False):
                values.append(self._opened(payload, hint))
            elif hint in (None, Any):
                values.append(self._claim(payload))
            else:
                values += super().from_payloads([payload if hint is RawValue else self._readable(payload)], [hint])
        return values

    def _claim(self, payload: Payload) -> Any:
        """Decode a payload that anybody may have sent, in any form."""
        encoding = payload.metadata.get("encoding", b"").decode("utf-8", "replace")
        if _is_placeholder(payload):
            return Unread(str(why_unreadable(payload)), payload.data)
        if encoding.endswith("/protobuf") and len(payload.data) > _PROTOBUF_BYTES:
            return Unread(f"it has more than {_PROTOBUF_BYTES:,} bytes in the encoding {encoding!r}", payload.data)
        try:
            (value,) = super().from_payloads([payload])
        except Exception as error:  # each converter raises its own
            reason = one_line(str(error.__cause__ or error), _WHY_CHARS)
            return Unread(f"it does not decode as {one_line(encoding, 40)!r} ({reason})", payload.data)
        return value

    def _readable(self, payload: Payload) -> Payload:
        """Return the payload unless it could not be decrypted.

        Raises:
            DecryptionFailed: It could not be decrypted.
        """
        if _is_placeholder(payload):
            raise why_unreadable(payload)
        return payload

    def _opened(self, payload: Payload, hint: Any) -> Any:
        metadata = payload.metadata
        encoding, seal = metadata.get("encoding", b""), metadata.get(SEAL, b"")
        error = why_unreadable(payload) if _is_placeholder(payload) else None
        is_open = getattr(hint, "OPEN", False)
        if error and not (is_open and not isinstance(error, KeyUnknown | PlaintextRefused)):
            raise error  # Temporal retries on a worker that has the key, so a key rotation ends no run
        fault = self.seals.fault(seal, self._workflow, hint.__name__, encoding, payload.data)
        if is_open:
            claimed = self._claimed(payload, hint)
            if claimed.malformed and not fault:
                _require_features(payload)
            return claimed.model_copy(update={"sealed": not fault, "seal_fault": fault if seal else ""})
        if fault:
            return Unsealed(hint.__name__, fault)
        if issubclass(hint, bytes):
            return hint(payload.data)
        if issubclass(hint, dict | list):
            return hint(json.loads(payload.data))
        (value,) = super().from_payloads([payload], [hint])
        return value

    def _claimed(self, payload: Payload, hint: Any) -> Any:
        """Decode an input that anybody may have sent. An exception here would fail the workflow task forever."""
        try:
            (value,) = super().from_payloads([self._readable(payload)], [hint])
        except Exception as error:
            return hint(malformed=f"{type(error).__name__}: {error}"[:500])
        if not isinstance(value, BaseModel):
            return hint(malformed="it is null")
        return value.model_copy(update={"malformed": ""})


def _is_placeholder(payload: Payload) -> bool:
    return payload.metadata.get("encoding") == UNREADABLE


def unreadable(payload: Payload, error: DecryptionFailed) -> Payload:
    """Return the placeholder for a payload that could not be decrypted, to use until its type is known."""
    why = {_WHY: str(error).encode(), _ERROR: type(error).__name__.encode()}
    return Payload(metadata={"encoding": UNREADABLE, **why}, data=payload.data)


def without_placeholder(payload: Payload) -> Payload:
    """Return a payload as received: one that somebody sent as a placeholder has no encoding; any other is unchanged."""
    return Payload(data=payload.data) if _is_placeholder(payload) else payload


def why_unreadable(payload: Payload) -> DecryptionFailed:
    """Return the error in a placeholder."""
    kind = _ERRORS.get(payload.metadata.get(_ERROR, b"").decode("utf-8", "replace"), DecryptionFailed)
    return kind(payload.metadata.get(_WHY, b"it is no payload of ours").decode("utf-8", "replace"))


def seals_in(converter: DataConverter) -> FleetKeys:
    """Return the fleet keys of our data converter, alone or in a composed one; no keys for any other converter."""
    own: DataConverter = getattr(converter, "own", converter)  # of a `ComposedDataConverter`, which imports this module
    kind = own.payload_converter_class
    return kind.seals if issubclass(kind, LeanPayloadConverter) else FleetKeys()


def _require_features(payload: Payload) -> None:
    """Reject a sealed input that a newer release wrote and this one cannot read.

    Raises:
        FeaturesUnknown: Its feature level is above that of this release. The workflow task fails, but not the run.
    """
    try:
        features = json.loads(payload.data).get("features")
    except (ValueError, AttributeError):
        return
    if isinstance(features, int):
        require_features(features)


@dataclass(frozen=True)
class WorkflowDataConverter(DataConverter):
    """A data converter that uses only the workflow of a context. It caches the converter of each workflow,
    because the SDK requests one a dozen times per workflow task.

    It never retrieves a payload from external storage, which Holdfast does not use: the SDK would fail the workflow
    task for a signal that claims to be stored there. Such a payload does not decode, like any other in an unknown
    encoding.
    """

    _by_workflow: dict[WorkflowRef | None, DataConverter] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def with_context(self, context: SerializationContext) -> Self:
        """Return this converter bound to the values of one workflow."""
        workflow = workflow_of(context)
        if (bound := self._by_workflow.get(workflow)) is None:
            if len(self._by_workflow) >= _MAX_WORKFLOWS:
                self._by_workflow.clear()
            bound = self._by_workflow[workflow] = super().with_context(context)
        return cast(Self, bound)

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def _external_retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


def workflow_of(context: SerializationContext) -> WorkflowRef | None:
    """Return the workflow that values of a serialization context are sealed for; None if it has none."""
    # Contexts of workflows and activities both have these fields; `activity_type` is documented as unreliable.
    namespace, workflow_id = getattr(context, "namespace", None), getattr(context, "workflow_id", None)
    return WorkflowRef(namespace, sealing_id(workflow_id)) if namespace and workflow_id else None


data_converter = WorkflowDataConverter(
    payload_converter_class=LeanPayloadConverter, failure_converter_class=LenientFailureConverter
)
"""The data converter for reading only: it neither seals nor verifies."""


def sealing(seals: FleetKeys) -> type[LeanPayloadConverter]:
    """Make the payload converter of a process that has fleet keys."""
    return type("SealingPayloadConverter", (LeanPayloadConverter,), {"seals": seals})

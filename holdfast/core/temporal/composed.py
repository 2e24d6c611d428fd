"""Two data converters in one client: the program's own, and Holdfast's for what belongs to Holdfast.

A worker has one data converter for all of its workflows. If it runs agents beside a program's workflows, each payload
is encoded as its readers expect:

1. All payloads of Holdfast's workflows and of their activities are Holdfast's, byte for byte as on a worker of Holdfast
   alone. Any other worker, client or gateway of the fleet can read them.
2. All payloads of the program's workflows are the program's, as without Holdfast. The exceptions are values that go to
   a run or come from it: those of sealed types, and those wrapped in `Own`.
3. A `PersonInput` is the program's, with Holdfast's JSON, and with a proof in the metadata if its process vouches for
   it.
4. A payload to decode is Holdfast's if it carries a seal, or is encrypted for a place. A claim of either kind that
   somebody else makes is not decoded by the program's codec, and does not verify.

The SDK tells a converter the type of an activity's workflow, but not the type of a workflow. So the worker's runner
marks the contexts of Holdfast's runs (`OwnContext`), and `_with_contexts` sees the type when a run enters the cache.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar, Self, TypeVar, cast

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultPayloadConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from holdfast.core.mac.seals import FleetKeys, WorkflowRef
from holdfast.core.mac.vouched import PersonInput, is_person_input
from holdfast.core.run.contracts.runs import WORKFLOW_TYPES
from holdfast.core.temporal.converter import ENCRYPTED, PLACE, SEAL, LeanPayloadConverter, data_converter, workflow_of

PartT = TypeVar("PartT")

OWN = "holdfast"
"""The metadata key by which the payload converter marks Holdfast's payloads for the codec, which removes it."""


PROOF = "holdfast-person"
"""The metadata key of the seal of a `PersonInput`: the program's codec encodes it with the rest."""


@dataclass(frozen=True)
class Own:
    """A value for a run of Holdfast's, of a type that does not show it: the payload of a signal, a memo, a summary."""

    value: Any


@dataclass(frozen=True)
class OwnContext(WorkflowSerializationContext):
    """The context of payloads of Holdfast's workflows."""


@dataclass(frozen=True)
class ComposedDataConverter(DataConverter):
    """The data converter of a client whose workers run agents beside a program's workflows; `compose` makes it."""

    own: DataConverter = field(default=data_converter, repr=False)
    """Holdfast's data converter, with seals and encryption."""

    def with_context(self, context: SerializationContext) -> Self:
        """Return the converter for this context: Holdfast's for its workflows and their activities."""
        activity = isinstance(context, ActivitySerializationContext) and context.workflow_type in WORKFLOW_TYPES
        if activity or isinstance(context, OwnContext):
            return cast(Self, self.own.with_context(context))
        return super().with_context(context)

    def _with_contexts(
        self, serialization_ctx: SerializationContext, store_ctx: StorageDriverStoreContext
    ) -> DataConverter:
        target = store_ctx.target
        own = isinstance(target, StorageDriverWorkflowInfo) and target.type in WORKFLOW_TYPES
        if own and isinstance(serialization_ctx, WorkflowSerializationContext):
            return self.own.with_context(serialization_ctx)
        return super()._with_contexts(serialization_ctx, store_ctx)


def compose(theirs: DataConverter, own: DataConverter) -> ComposedDataConverter:
    """Compose a program's data converter with Holdfast's.

    Args:
        theirs: The program's: its payload converter, codec, failure converter and external storage are used.
        own: Holdfast's (`holdfast.encryption.codec.build_converter`).
    """
    parts = {"theirs": theirs.payload_converter_class, "ours": own.payload_converter_class}
    return ComposedDataConverter(
        payload_converter_class=type("ComposedPayloadConverter", (_PayloadConverter,), parts),
        payload_codec=_Codec(theirs.payload_codec, own.payload_codec),
        failure_converter_class=theirs.failure_converter_class,
        external_storage=theirs.external_storage,
        own=own,
    )


def own_converter(converter: DataConverter) -> DataConverter | None:
    """Return Holdfast's data converter within a client's; None if the client cannot encode Holdfast's values."""
    if isinstance(converter, ComposedDataConverter):
        return converter.own
    return converter if issubclass(converter.payload_converter_class, LeanPayloadConverter) else None


def can_encode(converter: PayloadConverter) -> bool:
    """Return whether a payload converter, as a workflow has it, is that of a composed data converter."""
    try:
        return OWN in converter.to_payload(Own(None)).metadata
    except Exception:  # each converter raises its own for a type that it does not know
        return False


class _PayloadConverter(PayloadConverter, WithSerializationContext):
    """Converts values of sealed types as Holdfast does, and all others as the program does."""

    theirs: ClassVar[type[PayloadConverter]] = DefaultPayloadConverter
    ours: ClassVar[type[PayloadConverter]] = LeanPayloadConverter

    def __init__(self) -> None:
        self._theirs, self._ours = self.theirs(), self.ours()
        self._place: WorkflowRef | None = None

    def with_context(self, context: SerializationContext) -> Self:
        placed = copy.copy(self)
        placed._place = workflow_of(context)
        placed._theirs, placed._ours = _in_context(self._theirs, context), _in_context(self._ours, context)
        return placed

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        if not any(map(_is_own_value, values)):
            return self._theirs.to_payloads(values)
        return [payload for value in values for payload in self._to_payloads(value)]

    def _to_payloads(self, value: Any) -> list[Payload]:
        if is_person_input(type(value)):
            return self._with_proof(value)
        if not _is_own_value(value):
            return self._theirs.to_payloads([value])
        payloads = self._ours.to_payloads([value.value if isinstance(value, Own) else value])
        for payload in payloads:
            payload.metadata[OWN] = b"1"
        return payloads

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        if not any(map(_is_own_hint, type_hints or ())):
            return self._theirs.from_payloads(payloads, type_hints)
        values: list[Any] = []
        for payload, hint in zip_longest(payloads, type_hints or ()):
            if is_person_input(hint):
                values.append(self._proven(payload, hint))
                continue
            by = self._ours if _is_own_hint(hint) else self._theirs
            values += by.from_payloads([payload], [hint])
        return values

    def _with_proof(self, value: PersonInput) -> list[Payload]:
        payloads, seals = self._ours.to_payloads([value]), self._seals
        if value._vouched and seals and self._place:
            (payload,) = payloads
            kind = type(value).__name__
            payload.metadata[PROOF] = seals.seal(self._place, kind, payload.metadata["encoding"], payload.data)
        return payloads

    def _proven(self, payload: Payload, hint: type[PersonInput]) -> PersonInput:
        value: PersonInput
        (value,) = self._ours.from_payloads([payload], [hint])
        encoding, proof = payload.metadata.get("encoding", b""), payload.metadata.get(PROOF, b"")
        if proof and self._seals:  # without a key, nothing is verified
            value._vouched = not self._seals.fault(proof, self._place, hint.__name__, encoding, payload.data)
        return value

    @property
    def _seals(self) -> FleetKeys:
        return self.ours.seals if issubclass(self.ours, LeanPayloadConverter) else FleetKeys()


class _Codec(PayloadCodec, WithSerializationContext):
    """Encodes Holdfast's payloads with its codec, and all others with the program's.

    Args:
        theirs: The program's codec; None for none.
        ours: Holdfast's.
    """

    def __init__(self, theirs: PayloadCodec | None, ours: PayloadCodec | None) -> None:
        self._theirs, self._ours = theirs, ours

    def with_context(self, context: SerializationContext) -> Self:
        placed = copy.copy(self)
        placed._theirs, placed._ours = _in_context(self._theirs, context), _in_context(self._ours, context)
        return placed

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not any(OWN in payload.metadata for payload in payloads):
            return await self._theirs.encode(payloads) if self._theirs else list(payloads)
        encoded: list[Payload] = []
        for payload in payloads:
            own = OWN in payload.metadata
            codec = self._ours if own else self._theirs
            given = _unmarked(payload) if own else payload
            encoded += await codec.encode([given]) if codec else [given]
        return encoded

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not any(map(_is_own_payload, payloads)):
            return await self._theirs.decode(payloads) if self._theirs else list(payloads)
        decoded: list[Payload] = []
        for payload in payloads:
            codec = self._ours if _is_own_payload(payload) else self._theirs
            decoded += await codec.decode([payload]) if codec else [payload]
        return decoded


def _in_context(part: PartT, context: SerializationContext) -> PartT:
    return cast(PartT, part.with_context(context)) if isinstance(part, WithSerializationContext) else part


def _is_own_value(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, Own) or getattr(kind, "SEALED", False) is True or is_person_input(kind)


def _is_own_hint(hint: Any) -> bool:
    return getattr(hint, "SEALED", False) is True or is_person_input(hint)


def _is_own_payload(payload: Payload) -> bool:
    metadata = payload.metadata
    return SEAL in metadata or (metadata.get("encoding") == ENCRYPTED and PLACE in metadata)


def _unmarked(payload: Payload) -> Payload:
    given = Payload()
    given.CopyFrom(payload)
    del given.metadata[OWN]
    return given

"""Decryption of the payloads in a message of Temporal's API, such as a history event or a description.

1. Temporal's client decodes the values that it returns, but returns histories and descriptions as stored.
2. Anybody can send a signal, an update or a start with a payload that claims to be encrypted. Such a claim stays as it
   is and counts as malformed. A payload that only our own processes write raises an error instead.
"""

import json
from collections.abc import Iterator

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import PayloadCodec

from holdfast.core.temporal.converter import (
    ENCRYPTED,
    UNREADABLE,
    DecryptionFailed,
    unreadable,
    without_placeholder,
)

_CLAIMS = (
    "workflow_execution_signaled_event_attributes",
    "workflow_execution_update_accepted_event_attributes",
    "workflow_execution_update_admitted_event_attributes",
)
"""The events that record input that anybody may have sent."""


async def decrypt_in_place(message: Message, codec: PayloadCodec | None) -> None:
    """Decode every payload of a message in place, and restore the texts of encoded failures.

    Args:
        message: Any message; it is modified.
        codec: The client's codec, or None. Its exceptions propagate, except for claims.
    """
    if codec is None:
        return
    claimed = isinstance(message, HistoryEvent) and message.WhichOneof("attributes") in _CLAIMS
    if not claimed:  # a claim is decoded as the worker decoded it that received it, whatever it holds
        # Most messages hold nothing encrypted, and searching bytes is a hundred times as fast as walking fields.
        serialized = message.SerializeToString()
        if ENCRYPTED not in serialized and UNREADABLE not in serialized:
            return
    parts = list(_parts(message))
    for payload in parts:
        if not isinstance(payload, Payload):
            continue
        try:
            (opened,) = await codec.decode([without_placeholder(payload)])
        except DecryptionFailed as error:
            if not claimed:
                raise
            opened = unreadable(payload, error)
        if opened is not payload:
            payload.CopyFrom(opened)
    for part in parts:
        if isinstance(part, Failure) and part.HasField("encoded_attributes"):
            _restore(part)


def _parts(message: Message) -> Iterator[Message]:
    """Yield a message and all messages within it, at any depth."""
    yield message
    if isinstance(message, Payload):
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in value.values():
                    yield from _parts(each)
        elif isinstance(value, Message):
            yield from _parts(value)
        else:
            for each in value:
                yield from _parts(each)


def _restore(failure: Failure) -> None:
    """Restore the texts that `EncodingFailureConverter` moved into a payload."""
    try:
        attributes = json.loads(failure.encoded_attributes.data)
        message, stack_trace = str(attributes["message"]), str(attributes["stack_trace"])
    except (ValueError, KeyError, TypeError):
        return  # another converter encoded it; keep the failure as it is
    failure.message, failure.stack_trace = message, stack_trace
    failure.ClearField("encoded_attributes")

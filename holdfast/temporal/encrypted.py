"""Decrypts the payloads in a message of Temporal's API, such as a history event or a description.

Temporal's client decodes the values that it returns, but returns histories and descriptions as stored.
"""

import json
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadCodec

ENCRYPTED: Final = b"binary/encrypted"
"""The encoding in the metadata of an encrypted payload."""


async def decrypt_in_place(message: Message, codec: PayloadCodec | None) -> None:
    """Decode every payload of a message in place, and restore the texts of encoded failures.

    Args:
        message: Any message; it is modified.
        codec: The client's codec, or None. Its exceptions propagate.
    """
    # Most messages hold nothing encrypted, and searching bytes is a hundred times as fast as walking fields.
    if codec is None or ENCRYPTED not in message.SerializeToString():
        return
    parts = list(_parts(message))
    payloads = [part for part in parts if isinstance(part, Payload)]
    for payload, opened in zip(payloads, await codec.decode(payloads), strict=True):
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
        return  # encoded by another converter; keep the failure as it is
    failure.message, failure.stack_trace = message, stack_trace
    failure.ClearField("encoded_attributes")

"""Decrypts what a payload codec encrypted in a message of Temporal's API: a history's events, a description.

Temporal's client decodes what it hands out as values; histories and descriptions it hands out as they are stored.
"""

import json
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadCodec

ENCRYPTED: Final = b"binary/encrypted"
"""The encoding that an encrypted payload names."""


async def decrypt_in_place(message: Message, codec: PayloadCodec | None) -> None:
    """Decode every payload of a message in its place, and put the words of failures back where they belong.

    Args:
        message: Any message; it is altered.
        codec: Of the client; None for none. What it raises is raised.
    """
    # Most messages have nothing to open, and bytes are searched a hundred times as fast as fields.
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
    """A message and all that it holds, of any depth."""
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
    """What `DefaultFailureConverterWithEncodedAttributes` moved away."""
    try:
        words = json.loads(failure.encoded_attributes.data)
        message, stack_trace = str(words["message"]), str(words["stack_trace"])
    except (ValueError, KeyError, TypeError):
        return  # of another converter, whose failures say themselves what they can
    failure.message, failure.stack_trace = message, stack_trace
    failure.ClearField("encoded_attributes")

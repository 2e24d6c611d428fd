"""Payloads that nobody can decode, and some that take long to read, by their fault."""

import json
from functools import cache

from temporalio.api.common.v1 import Payload

LARGE = 1_900_000
"""The size of a large one in bytes. Temporal accepts signals and starts of up to 2 MB."""


def as_json(data: bytes) -> Payload:
    """Return a payload that claims to be JSON."""
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def _encrypted(**metadata: bytes) -> Payload:
    named = {name.replace("_", "-"): value for name, value in metadata.items()}
    return Payload(metadata={"encoding": b"binary/encrypted", **named}, data=b"\0" * 40)


UNREADABLE: dict[str, Payload] = {
    "encrypted with a key that nobody has": _encrypted(encryption_key_id=b"nobody's"),
    "encrypted without a key": _encrypted(),
    "encrypted, too short": Payload(
        metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"test"}, data=b"\0"
    ),
    "what stands for an encrypted one within a worker": Payload(
        metadata={"encoding": b"binary/unreadable", "error": b"KeyUnknown", "why": b"none"}, data=b"{}"
    ),
    "kept in an external store": Payload(
        metadata={"encoding": b"json/none", "__temporal_external_storage_reference": b"true"}, data=b"{}"
    ),
    "kept in an external store, in the old form": Payload(
        metadata={"encoding": b"json/external-storage-reference"}, data=b'{"driver_name":"s3"}'
    ),
    "of an unknown encoding": Payload(metadata={"encoding": b"binary/none"}, data=b"{}"),
    "of an encoding that is no text": Payload(metadata={"encoding": b"\xff\xfe"}, data=b"{}"),
    "without an encoding": Payload(data=b"{}"),
    "no JSON": as_json(b'{"request": "1", "by"'),
    "empty": as_json(b""),
    "no UTF-8": as_json(b'{"by": "\xff"}'),
    "half a character": as_json(b'{"by": "\\ud800"}'),
    "deep": as_json(b"[" * 100_000),
    "a number of many digits": as_json(b"9" * 10_000),
    "a message of a protocol that does not exist": Payload(
        metadata={"encoding": b"json/protobuf", "messageType": b"nobody.Knows"}, data=b"{}"
    ),
}


@cache
def laborious(size: int) -> dict[str, Payload]:
    """Return payloads of about this many bytes that could take long to read, by their content."""
    marks = "a" + "\u0301\u0316" * (size // 4)
    return {
        "combining marks": as_json(json.dumps({"by": marks}, ensure_ascii=False).encode()),
        "combining marks in each field": as_json(
            json.dumps(dict.fromkeys(("to", "by", "request", "message", "delegated_to"), marks[: size // 8])).encode()
        ),
        "other letters": as_json(json.dumps({"by": "ж" * (size // 2)}, ensure_ascii=False).encode()),
        "floats": as_json(b'{"data":[' + b",".join([b"1e22"] * (size // 5)) + b"]}"),
        "different floats": as_json(b'{"arguments":{"a":[' + b",".join(b"%de7" % n for n in range(size // 9)) + b"]}}"),
        "no numbers": as_json(b"[" + b",".join([b"NaN"] * (size // 4)) + b"]"),
        "large numbers": as_json(b"[" + b",".join([b"9" * 4_000] * (size // 4_001)) + b"]"),
        "keys": as_json(b"{" + b",".join(b'"\xc3\xa9%d":1' % n for n in range(size // 12)) + b"}"),
        "lists": as_json(b'{"message":[' + b",".join([b"[]"] * (size // 3)) + b"]}"),
        "blocks": as_json(b'{"message":[' + b",".join([b'{"type":"text"}'] * (size // 16)) + b"]}"),
        "good blocks": as_json(b'{"message":[' + b",".join([b'{"type":"text","text":"x"}'] * (size // 27)) + b"]}"),
        "a reason": as_json(b'{"request":"1","by":"alice","reason":"' + b"x" * size + b'"}'),
        "white space": as_json(b'{"request":"1","by":"alice","reason":"' + b" " * size + b'"}'),
        "a text": as_json(b'"' + b"\\u0001" * (size // 6) + b'"'),
        "a text that is JSON": as_json(json.dumps("[" * (size // 2)).encode()),
        "a text with an object": as_json(json.dumps(json.dumps({"by": "a", "reason": "\\" * (size // 8)})).encode()),
        "a protocol's message": Payload(
            metadata={"encoding": b"json/protobuf", "messageType": b"google.protobuf.Struct"},
            data=b'{"a":[' + b",".join([b"1"] * (size // 2)) + b"]}",
        ),
    }

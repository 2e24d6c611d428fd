"""The base of every model that is persisted or crosses a process boundary, and its canonical encoding."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

GENESIS = "0" * 64
"""The digest before the first entry of any chain."""

PAGE_BYTES = 1_000_000
"""What the reply to one query holds, or little more: well below the 2 MB that Temporal allows a payload."""


class Frozen(BaseModel):
    """An immutable pydantic model whose field docstrings reach the JSON schema.

    Unknown fields are ignored on decoding, so that an older worker can read what a newer one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


def canonical(value: Any) -> bytes:
    """Encode `value` (JSON types only) as the one JSON text that digests are computed over.

    Keys sorted, no white space, UTF-8 without escapes: RFC 8785 in spirit, with Python's number format.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """SHA-256 of `canonical(value)`, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def chain(previous: str, encoded: bytes) -> str:
    """The digest of a chain after one more entry: SHA-256 of the previous digest (hex) and the entry's bytes."""
    return hashlib.sha256(previous.encode() + encoded).hexdigest()


def page(lines: Iterable[bytes]) -> bytes:
    """The first of `lines` that fit a page (at least one, if there is one), joined by line breaks."""
    taken: list[bytes] = []
    size = 0
    for line in lines:
        if taken and size + len(line) > PAGE_BYTES:
            break
        taken.append(line)
        size += len(line)
    return b"\n".join(taken)

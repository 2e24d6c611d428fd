"""Digests: of values, as canonical JSON; chains of them; and addresses of content."""

import hashlib
import re
from typing import Any

from holdfast.core.base.canonical import canonical
from holdfast.errors import ArtifactNotFound

GENESIS = "0" * 64
"""The digest that precedes the first entry of every chain."""


def digest(value: Any) -> str:
    """Return the SHA-256 of `canonical(value)`, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def chain(previous: str, encoded: bytes) -> str:
    """Return a chain's digest after one more entry: SHA-256 of the previous digest (hex) and the entry's bytes."""
    return hashlib.sha256(previous.encode() + encoded).hexdigest()


_ADDRESS = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


def address_of(content: bytes) -> str:
    """Return the address of `content`: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest_of(address: str) -> str:
    """Return the 64 hex digits of an address, safe as a file name or a key even if the address is untrusted.

    Raises:
        ArtifactNotFound: The address is malformed.
    """
    if match := _ADDRESS.fullmatch(address):
        return match[1]
    raise ArtifactNotFound(f"{address[:100]!r} is not an artifact address; it must be 'sha256:' and 64 hex digits")

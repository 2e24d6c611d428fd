"""Seals: MACs that prove a value comes from our own processes and bind it to its place (RFC 2104, HMAC-SHA256).

1. A seal covers the namespace, the workflow id, the kind of value, its encoding and its bytes. It is invalid if the
   value is copied to another workflow or presented as another kind of value.
2. The first key seals, all keys verify. To rotate, add the new key after the old one on every process, then move it to
   the front, then remove the old key once no run has values that it sealed.
3. An unknown key is an error, not a missing seal: a worker that lacks a new key fails its workflow task, and another
   worker takes it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeGuard

from holdfast.errors import HoldfastError

MAC_BYTES = 16
"""Half of HMAC-SHA256, the minimum by RFC 2104; history stores every byte of a seal."""


class SealKeyUnknown(HoldfastError):
    """A value is sealed with a key that this process does not have."""


class Place(NamedTuple):
    """The workflow that a value belongs to."""

    namespace: str
    workflow_id: str


@dataclass(frozen=True)
class Unsealed:
    """Stands in for a value that must be sealed and is not."""

    UNSEALED: ClassVar[bool] = True
    """Identifies the class: in Temporal's sandbox, workflow code has another copy of it."""

    kind: str
    """The kind of value that was expected."""
    reason: str

    def __str__(self) -> str:
        return f"this {self.kind} does not come from our own processes: {self.reason}"


@dataclass(frozen=True)
class Seals:
    """The fleet keys by id; the first seals.

    Without keys nothing is sealed, and a value counts as sealed if it carries any seal: enough to read a history, but
    not to act on it.
    """

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        """Whether there is a key to seal with."""
        return bool(self.keys)

    def seal(self, place: Place, kind: str, encoding: bytes, data: bytes) -> bytes:
        """Compute the seal of a value: `key id:MAC`.

        Raises:
            StopIteration: There is no key.
        """
        key_id = next(iter(self.keys))
        return key_id.encode() + b":" + _mac(self.keys[key_id], place, kind, encoding, data)

    def fault(self, seal: bytes, place: Place | None, kind: str, encoding: bytes, data: bytes) -> str:
        """Return why a value does not count as sealed; empty if it does.

        Args:
            seal: The seal that it carries; empty for none.
            place: The workflow in which it was found; None if unknown.
            kind: The type that it is to be decoded as.
            encoding: The encoding that its metadata names.
            data: Its bytes.

        Raises:
            SealKeyUnknown: The seal names a key that this process does not have.
        """
        if not seal:
            return "it carries no seal"
        if not self.keys:
            return ""
        name, _, mac = seal.partition(b":")
        key_id = name.decode("utf-8", "replace")
        if (key := self.keys.get(key_id)) is None:
            raise SealKeyUnknown(
                f"it is sealed with the fleet key {key_id!r}, but HOLDFAST_FLEET_KEYS of this process has only "
                f"{', '.join(self.keys)}; add that key"
            )
        if place is None:
            return "the workflow that it belongs to is unknown"
        if not hmac.compare_digest(mac, _mac(key, place, kind, encoding, data)):
            return (
                f"its seal names the fleet key {key_id!r}, and is not by the key of that name here (this process has "
                f"{', '.join(self.keys)}): another stack's key made it, or the value was copied or altered"
            )
        return ""


def is_unsealed(value: Any) -> TypeGuard[Unsealed]:
    """Whether `value` stands in for one that must be sealed."""
    return getattr(type(value), "UNSEALED", False) is True


def _mac(key: bytes, place: Place, kind: str, encoding: bytes, data: bytes) -> bytes:
    parts = (b"holdfast seal 1", place.namespace.encode(), place.workflow_id.encode(), kind.encode(), encoding, data)
    # The length before each part keeps two lists of parts from encoding to the same text.
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    mac = _keyed(key).copy()
    if len(text) > _LONG:
        mac.update(text)
    else:
        for begin in range(0, len(text), _AT_ONCE):
            mac.update(text[begin : begin + _AT_ONCE])
    return mac.digest()[:MAC_BYTES]


@lru_cache(maxsize=16)
def _keyed(key: bytes) -> hmac.HMAC:
    """Return the MAC of nothing, to copy."""
    return hmac.new(key, digestmod="sha256")


_AT_ONCE, _LONG = 2047, 64_000
"""Python releases its global lock to hash more bytes at once than the first, as `hmac.digest` always does. A workflow's
thread then waits for the worker's event loop, for many times as long as it hashes. A long text is worth that."""

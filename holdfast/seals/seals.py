"""Seals: what only our own processes may say carries a MAC that binds it to its place (RFC 2104, HMAC-SHA256).

1. A seal covers the namespace, the workflow id, the kind of value, its encoding and its bytes. A sealed value that is
   copied to another workflow, or handed over as another kind of value, has no valid seal there.
2. The first key seals, all keys verify. To rotate, add a new key behind the old one on every process, then put it in
   front, then remove the old one when no run is left that it sealed.
3. An unknown key is an error, not a missing seal: a worker that was not given the new key yet fails its workflow task,
   and another worker takes it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeGuard

from holdfast.errors import HoldfastError

MAC_BYTES = 16
"""Half of HMAC-SHA256: RFC 2104 allows no less, and every byte of a seal is kept in history."""


class SealKeyUnknown(HoldfastError):
    """A value is sealed with a key that this process does not have."""


class Place(NamedTuple):
    """Where a value belongs."""

    namespace: str
    workflow_id: str


@dataclass(frozen=True)
class Unsealed:
    """What is decoded in the place of a value that had to be sealed, and is not."""

    UNSEALED: ClassVar[bool] = True
    """What it is known by: in Temporal's sandbox, workflow code has another copy of this class."""

    kind: str
    """The kind of value that was expected."""
    reason: str

    def __str__(self) -> str:
        return f"this {self.kind} does not come from our own processes: {self.reason}"


@dataclass(frozen=True)
class Seals:
    """The fleet keys by id; the first seals.

    Without keys nothing is sealed, and a value counts as sealed if it carries any seal at all: enough to read a
    history, and never enough to act on it.
    """

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        """Whether there is a key to seal with."""
        return bool(self.keys)

    def seal(self, place: Place, kind: str, encoding: bytes, data: bytes) -> bytes:
        """The seal of a value: `key id:MAC`.

        Raises:
            StopIteration: There is no key.
        """
        key_id = next(iter(self.keys))
        return key_id.encode() + b":" + _mac(self.keys[key_id], place, kind, encoding, data)

    def fault(self, seal: bytes, place: Place | None, kind: str, encoding: bytes, data: bytes) -> str:
        """Why a value does not count as sealed; empty if it does.

        Args:
            seal: What it carries; empty for none.
            place: Where it was found; None where that is not known.
            kind: What it is to be decoded as.
            encoding: As its metadata names it.
            data: Its bytes.

        Raises:
            SealKeyUnknown: It names a key that is not here.
        """
        if not seal:
            return "it carries no seal"
        if not self.keys:
            return ""
        name, _, mac = seal.partition(b":")
        key_id = name.decode("utf-8", "replace")
        if (key := self.keys.get(key_id)) is None:
            raise SealKeyUnknown(
                f"it is sealed with the fleet key {key_id!r}, and HOLDFAST_FLEET_KEYS has only "
                f"{', '.join(self.keys)} here; add that key"
            )
        if place is None:
            return "nothing says which workflow it belongs to"
        if not hmac.compare_digest(mac, _mac(key, place, kind, encoding, data)):
            return "its seal was made for something else, or it was altered"
        return ""


def is_unsealed(value: Any) -> TypeGuard[Unsealed]:
    """Whether this stands in the place of a value that had to be sealed."""
    return getattr(type(value), "UNSEALED", False) is True


def _mac(key: bytes, place: Place, kind: str, encoding: bytes, data: bytes) -> bytes:
    parts = (b"holdfast seal 1", place.namespace.encode(), place.workflow_id.encode(), kind.encode(), encoding, data)
    # Each part with its length, so that no two lists of parts are the same text.
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, text, "sha256")[:MAC_BYTES]

"""MACs (seals) that prove a value comes from our own processes and bind it to one place (RFC 2104, HMAC-SHA256).

1. A seal covers the namespace, the workflow id, the kind of value, its encoding and its bytes. It is invalid if the
   value is copied to another workflow or presented as another kind of value.
2. The first key seals, all keys verify. To rotate, add the new key after the old one on every process, then move it to
   the front, then remove the old key once no run has values that it sealed.
3. An unknown key is an error, not a missing seal: a worker that lacks a new key fails its workflow task, and another
   worker takes it.
4. An activity request and its result are bound to one call by its name, which derives from the workflow id, the first
   run id of the chain of Temporal runs, and a counter that continues through the chain. It is therefore the same on
   replay, after continue-as-new and after a reset, and unique to the chain. A result repeats the name, so a sealed
   result that was copied from one call to another is rejected.
5. Temporal starts a schedule's workflow under the id `PREFIX-TIME`: the schedule's prefix, and the time at which it was
   due. So its input is sealed for the prefix, which is the place of all launchers of a schedule. No thread's id begins
   with the prefix, or two threads could share a place.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeGuard

from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Sealed
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


NAME_HEX = 16
"""Hex digits of the digest in a name. So few suffice, because the seal protects the name."""


class Order(Sealed):
    """Base of the inputs of activities."""

    order: str = ""
    """The name of the call: `NUMBER.DIGEST`."""


class Answer(Sealed):
    """Base of the results of activities."""

    answers: str = ""
    """The name of the call that this answers."""


def order_name(*, workflow_id: str, first_run_id: str, number: int) -> str:
    """Name the call of this number in this chain of runs."""
    return f"{number}.{digest(['order/1', workflow_id, first_run_id, number])[:NAME_HEX]}"


def belongs(order: Order, *, workflow_id: str, first_run_id: str) -> bool:
    """Whether a run of this chain issued the order."""
    number = order.order.partition(".")[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return False
    return order.order == order_name(workflow_id=workflow_id, first_run_id=first_run_id, number=int(number))


def answers(answer: Any, order: Order) -> bool:
    """Whether `answer` is the sealed answer to `order`."""
    return not is_unsealed(answer) and getattr(answer, "answers", None) == order.order


LAUNCHER = "holdfast-schedule/"
"""The beginning of the ids of launchers."""

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
"""How Temporal writes the time that a run was due, in UTC."""

_LAUNCHED = re.compile(rf"{re.escape(LAUNCHER)}(?P<thread>(?P<name>.+)-{TIME})", re.DOTALL)


def launcher_prefix(schedule: str) -> str:
    """Return the prefix of the workflow ids of a schedule's launchers: the place of their input."""
    return LAUNCHER + schedule


def place_id(workflow_id: str) -> str:
    """Return the id that values of a workflow are sealed for: its own, and of a launcher that of its schedule."""
    found = _LAUNCHED.fullmatch(workflow_id)
    return launcher_prefix(found["name"]) if found else workflow_id


def launched(workflow_id: str) -> tuple[str, str] | None:
    """Return the schedule's name and the run's thread id; None if Temporal started no launcher under this id."""
    found = _LAUNCHED.fullmatch(workflow_id)
    return (found["name"], found["thread"]) if found else None

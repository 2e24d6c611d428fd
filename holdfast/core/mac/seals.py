"""MACs (seals) that prove a value comes from our own processes and bind it to one workflow (RFC 2104, HMAC-SHA256).

1. A seal covers the namespace, the workflow id, the kind of value, its encoding and its bytes. It is invalid if the
   value is copied to another workflow or presented as another kind of value.
2. The first key seals; all keys verify. To rotate, add the new key after the old one in every process, then move it to
   the front, then remove the old key once no run has values that it sealed.
3. An unknown key is an error, not a missing seal: a worker that lacks a new key fails its workflow task, and Temporal
   retries the task on another worker.
4. An activity request and its result are bound to one call by its name, which derives from the workflow id, the first
   run id of the chain of Temporal runs, and a counter that continues through the chain. It is therefore the same on
   replay, after continue-as-new and after a reset, and unique to the chain. A result repeats the name, so a sealed
   result that was copied from one call to another is rejected.
5. Temporal starts a schedule's workflow, a launcher, under the id `PREFIX-TIME`: the schedule's prefix and the time at
   which it was due. So its input is sealed for the prefix, which all launchers of a schedule share. No thread's id may
   begin with the prefix, or a value sealed for one workflow would be valid in another.
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


class WorkflowRef(NamedTuple):
    """The workflow that a value belongs to, and that its seal is bound to."""

    namespace: str
    workflow_id: str


@dataclass(frozen=True)
class Unsealed:
    """A placeholder for a value that must be sealed and is not."""

    UNSEALED: ClassVar[bool] = True
    """Identifies the class: in Temporal's sandbox, workflow code has another copy of it."""

    kind: str
    """The kind of value that was expected."""
    reason: str

    def __str__(self) -> str:
        return f"this {self.kind} does not come from our own processes: {self.reason}"


@dataclass(frozen=True)
class FleetKeys:
    """The fleet keys by id; the first seals.

    Without keys, nothing is sealed, and a value counts as sealed if it carries any seal. That is enough to read a
    history, but not to act on it.
    """

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        """Whether there is a key to seal with."""
        return bool(self.keys)

    def seal(self, workflow: WorkflowRef, kind: str, encoding: bytes, data: bytes) -> bytes:
        """Compute the seal of a value: `key id:MAC`.

        Raises:
            StopIteration: There is no key.
        """
        key_id = next(iter(self.keys))
        return key_id.encode() + b":" + _mac(self.keys[key_id], workflow, kind, encoding, data)

    def fault(self, seal: bytes, workflow: WorkflowRef | None, kind: str, encoding: bytes, data: bytes) -> str:
        """Return why a value's seal is missing or invalid; empty if it is valid.

        Args:
            seal: The seal that the value carries; empty for none.
            workflow: The workflow in which it was found; None if unknown.
            kind: The name of the type that it is about to be decoded as.
            encoding: The encoding in its metadata.
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
        if workflow is None:
            return "the workflow that it belongs to is unknown"
        if not hmac.compare_digest(mac, _mac(key, workflow, kind, encoding, data)):
            return (
                f"its seal names the fleet key {key_id!r}, and is not by the key of that name here (this process has "
                f"{', '.join(self.keys)}): another stack's key made it, or the value was copied or altered"
            )
        return ""


def is_unsealed(value: Any) -> TypeGuard[Unsealed]:
    """Whether `value` is the placeholder for one that must be sealed and is not."""
    return getattr(type(value), "UNSEALED", False) is True


def _mac(key: bytes, workflow: WorkflowRef, kind: str, encoding: bytes, data: bytes) -> bytes:
    parts = (
        b"holdfast seal 1",
        workflow.namespace.encode(),
        workflow.workflow_id.encode(),
        kind.encode(),
        encoding,
        data,
    )
    # The length before each part makes the encoding of a list of parts unambiguous.
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
    """Return the state of a MAC over no data; copying it is cheaper than deriving it from the key."""
    return hmac.new(key, digestmod="sha256")


_AT_ONCE, _LONG = 2047, 64_000
"""Python releases the GIL to hash more than `_AT_ONCE` bytes in one call, as `hmac.digest` always does. A workflow's
thread then waits for the worker's event loop many times longer than it hashes, which is worth it only for a text longer
than `_LONG`."""


NAME_HEX = 16
"""Hex digits of the digest in a name. So few suffice because the seal protects the name."""


class ActivityRequest(Sealed):
    """Base of activity requests, the inputs of activities."""

    order: str = ""
    """The name of the call: `NUMBER.DIGEST`."""
    trace_run: str = ""
    """The first run id of the chain of Temporal runs whose trace a moved run keeps; empty for the trace of its own.
    Recorded from feature level 2 on."""


class ActivityResult(Sealed):
    """Base of the results of activities."""

    answers: str = ""
    """The name of the call that this is the result of."""


def call_name(*, workflow_id: str, first_run_id: str, number: int) -> str:
    """Return the name of the call with this number in this chain of Temporal runs."""
    return f"{number}.{digest(['order/1', workflow_id, first_run_id, number])[:NAME_HEX]}"


def belongs(request: ActivityRequest, *, workflow_id: str, first_run_id: str) -> bool:
    """Whether a run of this chain issued the request."""
    number = request.order.partition(".")[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return False
    return request.order == call_name(workflow_id=workflow_id, first_run_id=first_run_id, number=int(number))


def answers(answer: Any, request: ActivityRequest) -> bool:
    """Whether `answer` is the sealed result of `request`."""
    return not is_unsealed(answer) and getattr(answer, "answers", None) == request.order


LAUNCHER = "holdfast-schedule/"
"""Prefix of the workflow ids of all launchers."""

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
"""Matches the time at which a run was due, as Temporal writes it, in UTC."""

_LAUNCHED = re.compile(rf"{re.escape(LAUNCHER)}(?P<thread>(?P<name>.+)-{TIME})", re.DOTALL)


def launcher_prefix(schedule: str) -> str:
    """Return the prefix of the workflow ids of a schedule's launchers, for which their input is sealed."""
    return LAUNCHER + schedule


def sealing_id(workflow_id: str) -> str:
    """Return the id that a workflow's values are sealed for: its own id, or a launcher's prefix."""
    match = _LAUNCHED.fullmatch(workflow_id)
    return launcher_prefix(match["name"]) if match else workflow_id


def launched(workflow_id: str) -> tuple[str, str] | None:
    """Return the schedule's name and the thread id of the run; None if this is not the id of a launcher."""
    match = _LAUNCHED.fullmatch(workflow_id)
    return (match["name"], match["thread"]) if match else None

"""MACs of recorded outcomes: only a process with a fleet key can record that an effect happened, and how it ended.

The owner of the database can write and copy rows of the effect ledger. So a MAC covers the whole identity of the effect
and the exact text of its outcome: it is valid for that one row only.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from holdfast.core.base.canonical import canonical
from holdfast.core.mac.seals import FleetKeys, SealKeyUnknown, WorkflowRef

NO_SEALS: Final = FleetKeys()

_KIND: Final = "outcome of an effect"

MACVerdict = Literal["valid", "wrong", "missing", "unknown key", "unchecked"]
"""The result of checking a MAC: a worker of this fleet recorded the outcome; the MAC is for another effect or outcome;
there is no MAC; it was made with a key that this process does not have; this process has no key at all."""


class Recorded(NamedTuple):
    """An outcome and the effect that it belongs to."""

    thread: str
    key: str
    epoch: int
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    outcome: str
    """A `ToolOutcome`: the exact text in the row."""


@dataclass(frozen=True)
class OutcomeMACs:
    """Makes and verifies the MACs of a ledger.

    Args:
        seals: The fleet keys. Without any, nothing is made or verified; only tests run like that, never a worker.
    """

    seals: FleetKeys = NO_SEALS

    def make(self, recorded: Recorded) -> str | None:
        """Return the MAC of an outcome as `KEY_ID:HEX`; None without a key."""
        if not self.seals:
            return None
        key_id, _, mac = self.seals.seal(*_sealed(recorded)).partition(b":")
        return f"{key_id.decode()}:{mac.hex()}"

    def verify(self, mac: str | None, recorded: Recorded) -> MACVerdict:
        """Check the MAC of an outcome."""
        if not self.seals:
            return "unchecked"
        if not mac:
            return "missing"
        key_id, _, digits = mac.rpartition(":")
        try:
            fault = self.seals.fault(key_id.encode() + b":" + bytes.fromhex(digits), *_sealed(recorded))
        except SealKeyUnknown:
            return "unknown key"
        except ValueError:
            return "wrong"
        return "wrong" if fault else "valid"


def _sealed(recorded: Recorded) -> tuple[WorkflowRef, str, bytes, bytes]:
    workflow = WorkflowRef("", recorded.thread)  # never that of a Temporal payload, which has a namespace
    effect = canonical([recorded.key, recorded.epoch, recorded.tool, recorded.call_digest])
    return workflow, _KIND, b"", effect + b"\n" + recorded.outcome.encode()  # canonical JSON has no line feed

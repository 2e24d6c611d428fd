"""MACs of recorded outcomes: only a process with a fleet key can say that an effect has happened, and how it ended.

The database's owner can write rows of the effect ledger, and copy them. So a MAC covers all that identifies the effect
and the very text of its outcome: it is good for that one row.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from holdfast.core.base.canonical import canonical
from holdfast.core.mac.seals import Place, SealKeyUnknown, Seals

NO_SEALS: Final = Seals()

_KIND: Final = "outcome of an effect"

MACVerdict = Literal["valid", "wrong", "missing", "unknown key", "unchecked"]
"""What the MAC of an outcome shows: a worker of this fleet has recorded it; it is of another effect or outcome; there
is none; it is by a key that is not set here; no key is set here."""


class Recorded(NamedTuple):
    """An outcome, with the effect that it belongs to."""

    thread: str
    key: str
    epoch: int
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    outcome: str
    """A `ToolOutcome`, as the row has it."""


@dataclass(frozen=True)
class OutcomeMACs:
    """Makes and verifies the MACs of a ledger.

    Args:
        seals: The fleet keys. Without one, nothing is made or verified, as in tests: no worker runs without.
    """

    seals: Seals = NO_SEALS

    def make(self, recorded: Recorded) -> str | None:
        """Return the MAC of an outcome, as text: the id of the key, and the MAC in hex; None without a key."""
        if not self.seals:
            return None
        key_id, _, mac = self.seals.seal(*_sealed(recorded)).partition(b":")
        return f"{key_id.decode()}:{mac.hex()}"

    def verify(self, mac: str | None, recorded: Recorded) -> MACVerdict:
        """Return what a MAC shows of an outcome."""
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


def _sealed(recorded: Recorded) -> tuple[Place, str, bytes, bytes]:
    place = Place("", recorded.thread)  # no payload of Temporal's has an empty namespace
    effect = canonical([recorded.key, recorded.epoch, recorded.tool, recorded.call_digest])
    return place, _KIND, b"", effect + b"\n" + recorded.outcome.encode()  # canonical JSON has no line feed

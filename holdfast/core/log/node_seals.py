"""Node seals (signed checkpoints): a machine's signed statement of the length and digest of a thread's permanent
record.

1. A seal contains the number of events in the record and the digest of the last. Because digests form a chain, it
   covers all earlier events, so the latest seal of a thread suffices to detect that its log was rewritten or truncated.
2. Seals are kept outside the database (in anchors, the external witnesses), so that the database's owner cannot change
   them.
3. A seal is evidence only if its signature verifies with the key of a node that the verifier trusts.
4. The database's owner can make a log look archived by a reset, or pruned. A node therefore also seals that it removes
   a log from the record (`gone`): only such a seal explains an earlier seal that the record no longer matches. A
   restored backup keeps the first events of a log, so that seal says how many (`kept`).

They are unrelated to `holdfast.core.mac.seals`, the MACs by which Holdfast's processes authenticate each other.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from holdfast.core.authority.signatures import check_key, is_signed, public_key, sign
from holdfast.core.base.canonical import canonical
from holdfast.core.base.models import Frozen
from holdfast.errors import NotPortable

Gone = Literal["", "reset", "pruned", "restored"]
"""Why a node removes a log from the record: a reset abandoned it, its retention ended, or a backup was restored that
has only its beginning; empty if it does not."""


class SignRecord(Protocol):
    """Seals the current state of a thread's record. Raises nothing, and returns within seconds."""

    async def __call__(self, thread: str, events: int, head: str, *, gone: Gone = "", kept: int = 0) -> None:
        """Make and anchor a seal.

        Args:
            thread: The thread's id.
            events: The number of events in its record.
            head: The digest of the last.
            gone: Why this log is removed from the record.
            kept: How many of its events stay in the record.
        """
        ...


_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class SignedCheckpoint(Frozen):
    """A node's statement about a thread."""

    FORMAT: ClassVar[str] = "node-seal/1"

    namespace: str
    """Temporal's namespace of the thread."""
    thread: str
    events: int = Field(ge=1, strict=True)
    """Number of events in the permanent record."""
    head: _Digest
    """The digest of the last of them."""
    gone: Gone = ""
    """Why the node was about to remove this log from the record; empty, and omitted from the JSON, if it was not."""
    kept: int = Field(default=0, ge=0, strict=True)
    """How many events of the removed log stay in the record; omitted from the JSON if 0."""
    at: AwareDatetime
    """When the node made the seal, by its own clock."""
    node: Annotated[str, AfterValidator(check_key)]
    """The node's public key."""
    signature: str = ""
    """Ed25519 signature of `signed_bytes`, in URL-safe base64."""

    def signed_bytes(self) -> bytes:
        """Return the bytes to sign: canonical JSON of the format and all fields but the signature.

        Raises:
            NotPortable: The thread's id or the namespace has no canonical JSON.
        """
        return canonical(self._fields())

    def line(self) -> bytes:
        """Return the seal in its anchored form: canonical JSON, without a line break.

        Raises:
            NotPortable: As `signed_bytes`.
        """
        return canonical({**self._fields(), "signature": self.signature})

    def is_signed(self) -> bool:
        """Whether the seal's node signed exactly these fields."""
        try:
            return is_signed(self.node, self.signature, self.signed_bytes())
        except NotPortable:
            return False

    def _fields(self) -> dict[str, Any]:
        left_out = {"signature"} | {name for name in ("gone", "kept") if not getattr(self, name)}
        return {"holdfast": self.FORMAT, **self.model_dump(mode="json", exclude=left_out)}


def make_seal(
    private: str,
    *,
    namespace: str,
    thread: str,
    events: int,
    head: str,
    at: datetime,
    gone: Gone = "",
    kept: int = 0,
) -> SignedCheckpoint:
    """Make and sign a seal.

    Args:
        private: The node's private key.
        namespace: Temporal's namespace.
        thread: The thread.
        events: Number of events in its permanent record.
        head: The digest of the last.
        at: Now.
        gone: Why this log is removed from the record.
        kept: How many of its events stay in the record.

    Raises:
        ValueError: `private` is not a key, or a field is invalid.
        NotPortable: The thread's id or the namespace has no canonical JSON.
    """
    fields = {"namespace": namespace, "thread": thread, "events": events, "head": head, "at": at}
    seal = SignedCheckpoint.model_validate({**fields, "node": public_key(private), "gone": gone, "kept": kept})
    return seal.model_copy(update={"signature": sign(private, seal.signed_bytes())})


def read_seal(line: bytes) -> SignedCheckpoint | None:
    """Parse a line; None if it is not a seal. Does not verify the signature."""
    try:
        given = from_json(line)
        if not isinstance(given, dict) or given.get("holdfast") != SignedCheckpoint.FORMAT:
            return None
        return SignedCheckpoint.model_validate(given)
    except (ValueError, ValidationError):
        return None


async def unsealed(thread: str, events: int, head: str, *, gone: Gone = "", kept: int = 0) -> None:
    """Do nothing: the `SignRecord` of a process without anchors."""

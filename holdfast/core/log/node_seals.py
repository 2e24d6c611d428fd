"""Node seals: a machine's signed statement of where a thread's permanent record stood.

1. A seal says how many events the record had, and the digest of the last. As digests form a chain, it covers every
   event before it, so the latest seal of a thread is enough to find that its log was rewritten or truncated.
2. Seals are kept outside the database (anchors), so that whoever owns the database cannot change them.
3. A seal is evidence only if its signature verifies with the key of a node that the verifier trusts.
4. Who owns the database can make a log look as if a reset had set it aside, or as if it had been pruned. So a node also
   seals that it takes a log out of the record (`gone`): only such a seal accounts for one that the record no longer
   bears out.

They are not `holdfast.core.mac.seals`, the MACs by which our own processes recognise each other.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from holdfast.core.authority.signatures import check_key, is_signed, public_key, sign
from holdfast.core.base.canonical import canonical
from holdfast.core.base.models import Frozen
from holdfast.errors import NotPortable

Gone = Literal["", "reset", "pruned"]
"""Why a node takes a log out of the record: a reset has abandoned it, or its time is over; empty if it does not."""


class SealRecord(Protocol):
    """Seals where a thread's record stands. Raises nothing, and returns within seconds."""

    async def __call__(self, thread: str, events: int, head: str, *, gone: Gone = "") -> None:
        """Seal.

        Args:
            thread: The thread's id.
            events: The number of its events.
            head: The digest of the last.
            gone: Why this log is taken out of the record.
        """
        ...


_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class NodeSeal(Frozen):
    """A node's statement about a thread."""

    FORMAT: ClassVar[str] = "node-seal/1"

    namespace: str
    """Temporal's namespace of the thread."""
    thread: str
    events: int = Field(ge=1, strict=True)
    """How many events the permanent record had."""
    head: _Digest
    """The digest of the last of them."""
    gone: Gone = ""
    """Why the node was about to take this log out of the record; empty, and left out of the JSON, if it was not."""
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
        """Return the seal as it is anchored: canonical JSON, without a line break.

        Raises:
            NotPortable: As `signed_bytes`.
        """
        return canonical({**self._fields(), "signature": self.signature})

    def is_signed(self) -> bool:
        """Whether the seal's own node signed exactly this."""
        try:
            return is_signed(self.node, self.signature, self.signed_bytes())
        except NotPortable:
            return False

    def _fields(self) -> dict[str, Any]:
        left_out = {"signature"} if self.gone else {"signature", "gone"}
        return {"holdfast": self.FORMAT, **self.model_dump(mode="json", exclude=left_out)}


def make_seal(
    private: str, *, namespace: str, thread: str, events: int, head: str, at: datetime, gone: Gone = ""
) -> NodeSeal:
    """Make and sign a seal.

    Args:
        private: The node's private key.
        namespace: Temporal's namespace.
        thread: The thread.
        events: How many events its permanent record has.
        head: The digest of the last.
        at: Now.
        gone: Why this log is taken out of the record.

    Raises:
        ValueError: `private` is no key, or a field is not what it must be.
        NotPortable: The thread's id or the namespace has no canonical JSON.
    """
    node = public_key(private)
    seal = NodeSeal(namespace=namespace, thread=thread, events=events, head=head, at=at, node=node, gone=gone)
    return seal.model_copy(update={"signature": sign(private, seal.signed_bytes())})


def read_seal(line: bytes) -> NodeSeal | None:
    """Parse a line; None if it is no seal. The signature is not checked."""
    try:
        given = from_json(line)
        if not isinstance(given, dict) or given.get("holdfast") != NodeSeal.FORMAT:
            return None
        return NodeSeal.model_validate(given)
    except (ValueError, ValidationError):
        return None


async def unsealed(thread: str, events: int, head: str, *, gone: Gone = "") -> None:
    """Do nothing: without anchors nothing is sealed."""

"""Signed statements of people: decisions, delegations, revocations, removals of constraints; messages are in
`follow_ups`.

1. A signature covers the canonical JSON of the whole statement, and the thread.
2. A signed statement that would take effect again if replayed has an expiry time; until then the run keeps its digest
   to detect a replay.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import to_json

from holdfast.core.base.canonical import canonical, parsed, too_deep
from holdfast.core.base.constraint_names import constraint_number
from holdfast.core.base.models import Frozen
from holdfast.core.base.names import PersonName
from holdfast.errors import NotPortable

DecisionKind = Literal["approve", "deny", "respond", "happened", "absent", "undo", "abandon"]

Proof = Literal["", "signed", "vouched"]
"""The proof of a statement's author: none · the approver's own signature · a gateway's signature."""

LONGEST_DELEGATION = 365 * 86_400
"""Maximum number of seconds for which approval authority can be delegated."""

ARGUMENT_CHARS = 100_000
"""Maximum length of edited arguments, as JSON."""


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000)]
_Short = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
_Id = Annotated[_Short, BeforeValidator(_as_text), Field(min_length=1)]


class Signed(Frozen):
    """A statement by a named person, optionally signed. Each kind names its format, which the signature covers."""

    FORMAT: ClassVar[str]
    """The name and version of the signed format, such as `decision/1`; a change of meaning requires a new version."""

    by: PersonName = "unknown"
    """The person who makes the statement. The policy decides whether the bare name suffices."""
    signature: str = Field(default="", max_length=200)
    """Ed25519 signature of `signed_bytes`, in URL-safe base64."""

    def signed_bytes(self, thread: str) -> bytes:
        """Return the bytes to sign: canonical JSON of the format, the thread and the fields.

        The signature, the login, and fields that have their default are omitted.

        Raises:
            NotPortable: The statement has no canonical JSON.
        """
        fields = self.model_dump(mode="json", exclude={"signature", "via"}, exclude_defaults=True)
        return canonical({"holdfast": self.FORMAT, "thread": thread, **fields})

    def signed_digest(self, thread: str) -> str:
        """Return a digest that identifies the statement independently of its signature."""
        return hashlib.sha256(self.signed_bytes(thread)).hexdigest()


class Reasoned(Signed):
    """A statement with an optional reason."""

    reason: _Text = ""


class Once(Signed):
    """A statement that counts once, by its id, and has an expiry time if it is signed. Each kind declares these fields
    itself: the order of a kind's fields is that of the errors in a recorded explanation.
    """

    if TYPE_CHECKING:
        id: str
        until: datetime | None


class Decision(Reasoned):
    """A person's decision on a request; the JSON of the signals `approve`, `deny`, `respond` and `reconcile`."""

    FORMAT: ClassVar[str] = "decision/1"

    decision: DecisionKind
    request: _Id
    digest: str | None = Field(default=None, max_length=100)
    """If given, must equal the request's digest; required for a signed decision."""
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened` and `respond`: the result of the call that the LLM reads."""
    arguments: dict[str, Any] | None = None
    """For `approve`: arguments that replace those of the LLM."""
    remember: bool = False
    """For `approve`: allow the same call from now on in this thread, if all who approve it set this."""
    say: _Text = ""
    """For `approve`: feedback that the LLM reads with the call's result, from feature level 2 on."""
    via: _Short = ""
    """The login that sends it, as claimed by the sender's program: `ann@host`, or `gateway ann`. No signature covers
    it, because it authorizes nothing: the log uses it to show when one login has cast the votes of several people."""


class AuthorityDelegation(Reasoned):
    """An approver's delegation of authority within a thread; the JSON of the signal `delegate_authority`."""

    FORMAT: ClassVar[str] = "delegation/1"

    to: Annotated[PersonName, Field(min_length=1)]
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_DELEGATION)
    """Duration in seconds from its arrival."""
    until: AwareDatetime | None = None
    """When it expires; required if signed, because a signed duration could be replayed for ever."""

    @model_validator(mode="after")
    def _has_one_duration(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give `until`, or `seconds`")
        return self


class Revocation(Reasoned):
    """An approver's revocation of a remembered rule or a delegation; the JSON of the signal `revoke`."""

    FORMAT: ClassVar[str] = "revocation/1"

    remembered: _Id | None = None
    """The id of a remembered rule."""
    delegated_to: Annotated[PersonName, Field(min_length=1)] | None = None
    """The person to whom authority was delegated."""

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.remembered is None) == (self.delegated_to is None):
            raise ValueError("give `remembered`, or `delegated_to`")
        return self


class Lift(Reasoned):
    """An approver's removal of a constraint; the JSON of the signal `lift`. A constraint's number is never reused."""

    FORMAT: ClassVar[str] = "lift/1"

    constraint: Annotated[int, BeforeValidator(constraint_number)] = Field(ge=0, le=1_000_000_000)
    """The constraint's number, which is that of the call that created it; 0 for the constraint that makes a fork's
    effects require approval. A text is read as a name (`holdfast.core.base.constraint_names`)."""


SignedT = TypeVar("SignedT", bound=Signed)


def speaker_words(by: str, proof: str) -> str:
    """Return a person's name for display: with its proof, or marked as claimed.

    Args:
        by: The name.
        proof: The proof that the name is theirs (`Proof`).
    """
    return f"{by} ({proof or 'claimed'})"


def read_signed(payload: Any, kind: type[SignedT], **given: Any) -> SignedT | str:
    """Parse a signal's payload as a statement; if it is invalid, return a sentence that explains why.

    Args:
        payload: An object, or its JSON text.
        kind: The type of the statement.
        given: Fields that the signal's name determines; None for one that the payload determines.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= 2 * ARGUMENT_CHARS else payload
    if not isinstance(payload, dict):
        return f'expected an object such as {{"request": "1", "by": "alice"}}, got {type(payload).__name__}'
    if too_deep(payload):
        return "it is nested too deeply"
    try:
        read = kind.model_validate({**payload, **{name: value for name, value in given.items() if value is not None}})
        size = len(canonical(read.model_dump(mode="json")).decode())
    except ValidationError as error:
        return validation_message(error)
    except NotPortable as error:
        return f"it cannot be recorded: it holds {error}"
    except ValueError as error:
        return f"it cannot be written as JSON: {error}"
    return read if size <= ARGUMENT_CHARS else f"it is over {ARGUMENT_CHARS:,} characters long"


def read_given(payload: Any, kind: type[SignedT], *, name: str, example: str) -> SignedT | str:
    """Parse a decoded payload as a statement; if it is invalid, return a sentence that explains why.

    Args:
        payload: The payload, decoded.
        kind: The type of the statement.
        name: The statement's name, for the sentence.
        example: An example as JSON, for the sentence.
    """
    if not isinstance(payload, dict):
        return f"expected an object such as {example}, got {type(payload).__name__}"
    if too_deep(payload):
        return f"the {name} is nested too deeply"
    try:
        return kind.model_validate(payload)
    except ValidationError as error:
        return validation_message(error)[:2_000]


def read_decision(payload: Any, *, decision: DecisionKind | None = None) -> Decision | str:
    """Parse a signal's payload as a decision; if it is invalid, return a sentence that explains why."""
    return read_signed(payload, Decision, decision=decision)


def validation_message(error: ValidationError) -> str:
    """Describe the errors in a payload, field by field."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


CLAIM_BYTES = 1_500_000
"""Maximum size of any message, as JSON: a message to the agent in content blocks is the largest."""

STATEMENT_BYTES = 2 * ARGUMENT_CHARS
"""Maximum size of a decision, an event, or any other message that is not for the agent, as JSON."""

REASON_CHARS = 2_000
"""Maximum length of the reason for a cancellation, which Temporal keeps."""


def too_large(payload: Mapping[str, Any], *, limit: int = STATEMENT_BYTES) -> str:
    """Return a sentence that explains why a message is too large to send; empty if it is not.

    Args:
        payload: The message.
        limit: Maximum size as JSON, in bytes.
    """
    sizes = {name: len(to_json(value, fallback=str)) for name, value in payload.items()}
    if sum(sizes.values()) <= limit:
        return ""
    largest = max(sizes, key=lambda name: sizes[name])
    return (
        f"`{largest}` has {sizes[largest]:,} bytes as JSON, and the whole message may have {limit:,}. Nothing was "
        "sent: shorten it, or put it into a file in the workspace and name the file"
    )

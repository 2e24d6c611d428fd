"""What people say with their name under it: decisions, delegations, revocations; messages are in
`holdfast.authority.follow_ups`.

1. A signature is over the canonical JSON of all that is said, and over the thread.
2. A statement that could be repeated with effect says until when it is good; its digest is known until then.
"""

import hashlib
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import from_json

from holdfast.base.digests import canonical
from holdfast.base.models import Frozen
from holdfast.base.names import PersonName
from holdfast.llm.messages import too_deep

DecisionKind = Literal["approve", "deny", "respond", "happened", "absent", "undo", "abandon"]

Proof = Literal["", "signed", "vouched"]
"""How it is known who said something: not at all · by the approver's own key · by a gateway's."""

LONGEST_DELEGATION = 365 * 86_400
"""Seconds for which a right can be lent."""

ARGUMENT_CHARS = 100_000
"""Length of edited arguments, as JSON."""


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000)]
_Short = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
_Id = Annotated[_Short, BeforeValidator(_as_text), Field(min_length=1)]


class Signed(Frozen):
    """What a person says with their name under it, and perhaps a signature."""

    by: PersonName = "unknown"
    """Who says it. What it is worth, the policy says."""
    signature: str = Field(default="", max_length=200)
    """Ed25519, over `signed_bytes`; URL-safe base64."""

    def signed_bytes(self, thread: str) -> bytes:
        """What is signed: the canonical JSON of this, but for the signature and for defaults, and of the thread."""
        said = self.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
        return canonical({"holdfast": type(self).__name__, "thread": thread, **said})

    def signed_digest(self, thread: str) -> str:
        """Names what was said, whoever signed it and however the signature is written."""
        return hashlib.sha256(self.signed_bytes(thread)).hexdigest()


class Reasoned(Signed):
    """A statement that may say why."""

    reason: _Text = ""


class Decision(Reasoned):
    """What a person says of a request; the JSON of the signals `approve`, `deny`, `respond` and `reconcile`."""

    decision: DecisionKind
    request: _Id
    digest: str | None = Field(default=None, max_length=100)
    """When given, must equal the request's digest; a signed decision has to give it."""
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened` and `respond`: what the LLM is to be told the call returned."""
    arguments: dict[str, Any] | None = None
    """For `approve`: the arguments to run with, in place of the LLM's."""
    remember: bool = False
    """For `approve`: the same call is allowed from now on, in this thread, if all who approve it say so."""


class AuthorityDelegation(Reasoned):
    """An approver lends a right to another, within a thread; the JSON of the signal `delegate_authority`."""

    to: Annotated[PersonName, Field(min_length=1)]
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_DELEGATION)
    """For how long, from when it arrives."""
    until: AwareDatetime | None = None
    """Until when: a signature needs this one, or it would be good for ever."""

    @model_validator(mode="after")
    def _for_how_long(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give `until`, or `seconds`")
        return self


class Revocation(Reasoned):
    """An approver takes back what was remembered, or delegated; the JSON of the signal `revoke`."""

    remembered: _Id | None = None
    """The id of a remembered rule."""
    delegated_to: Annotated[PersonName, Field(min_length=1)] | None = None
    """Whom a right was lent to."""

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if (self.remembered is None) == (self.delegated_to is None):
            raise ValueError("give `remembered`, or `delegated_to`")
        return self


SignedT = TypeVar("SignedT", bound=Signed)


def read_signed(payload: Any, kind: type[SignedT], **given: Any) -> SignedT | str:
    """A signal's payload as what it is to be, or a sentence that says why it is not.

    Args:
        payload: What was sent: an object, or its JSON text.
        kind: What it is to be.
        given: What the signal's name says; None where the payload says it.
    """
    if isinstance(payload, str):
        payload = parsed(payload) if len(payload) <= 2 * ARGUMENT_CHARS else payload
    if not isinstance(payload, dict):
        return f'expected an object such as {{"request": "1", "by": "alice"}}, got {type(payload).__name__}'
    if too_deep(payload):
        return "it is nested too deeply"
    try:
        read = kind.model_validate({**payload, **{name: value for name, value in given.items() if value is not None}})
        size = len(read.model_dump_json())
    except ValidationError as error:
        return in_words(error)
    except ValueError as error:  # half a surrogate pair
        return f"it cannot be written as JSON: {error}"
    return read if size <= ARGUMENT_CHARS else f"it is over {ARGUMENT_CHARS:,} characters long"


def read_decision(payload: Any, *, decision: DecisionKind | None = None) -> Decision | str:
    """A signal's payload as a decision, or a sentence that says why it is none."""
    return read_signed(payload, Decision, decision=decision)


def in_words(error: ValidationError) -> str:
    """What is wrong with a payload, field by field."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


def parsed(arguments: str) -> Any:
    """Arguments as JSON for people and programs to read; verbatim where they are none that everybody can read.

    Half a surrogate pair, a number that is none and thousands of brackets are no JSON to some.
    """
    try:
        return from_json(arguments or "{}", allow_inf_nan=False)
    except (ValueError, TypeError):
        return arguments

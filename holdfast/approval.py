"""Requests to people, and decisions on them, as data. What a decision leads to is `holdfast.authority`'s.

1. A request asks about one tool call: may it run (`approval`), or did it happen (`reconcile`)?
2. Several may be open at once; they are decided in any order, each once.
3. A decision is bound to the digest of tool, arguments and agent, and can be signed.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import from_json

from holdfast.messages import ToolCall, too_deep
from holdfast.model import Frozen, canonical, digest
from holdfast.policy import Terms

RequestKind = Literal["approval", "reconcile"]
DecisionKind = Literal["approve", "deny", "respond", "happened", "absent", "undo", "abandon"]
DecisionOutcome = Literal[
    "accepted",
    "waiting_for_quorum",
    "duplicate",
    "unknown_request",
    "wrong_kind",
    "digest_mismatch",
    "malformed",
    "too_late",
    "not_entitled",
    "unsigned",
    "bad_signature",
    "against_policy",
]
"""What became of a decision. Only the first two change anything."""

ANSWERS: dict[RequestKind, tuple[DecisionKind, ...]] = {
    "approval": ("approve", "deny", "respond"),
    "reconcile": ("happened", "absent", "undo", "abandon"),
}
"""The decisions that fit each kind of request."""

Proof = Literal["", "signed", "vouched"]
"""How it is known who decided: not at all · by the approver's own key · by a gateway's."""

LONGEST_LOAN = 365 * 86_400
"""Seconds for which a right can be lent."""

ARGUMENT_CHARS = 100_000
"""Length of edited arguments, as JSON."""


class Request(Frozen):
    """A question to people about one tool call."""

    request: str
    """Short id within the thread, to be typed by a person: `1`, `2`, …"""
    kind: RequestKind
    number: int
    """The call's number in the thread."""
    tool: str
    arguments: str
    """As they are to run: what the tool reads in what the LLM wrote, or what a person put in its place."""
    digest: str
    """Digest of tool, arguments and agent spec: what exactly is decided on."""
    why: str
    """The rule that asks, or why nobody knows whether the effect happened."""
    asked_at: datetime
    terms: Terms = Terms()
    """Who may decide, how many have to, until when."""
    undoable: bool = False
    """The tool can take its effect back, so `undo` is an answer to a `reconcile`."""
    approved_by: tuple[str, ...] = ()
    """Who has approved, where more have to."""
    reminded: int = 0
    """How often those who may decide were reminded."""
    level: int = 0
    """How often it was escalated."""

    @property
    def who(self) -> tuple[str, ...]:
        """The people and roles who may decide now; empty for every approver."""
        return self.terms.who(self.level)

    @property
    def answers(self) -> tuple[DecisionKind, ...]:
        """The decisions that fit."""
        return tuple(answer for answer in ANSWERS[self.kind] if answer != "undo" or self.undoable)

    @property
    def expires_at(self) -> datetime | None:
        """When it is decided without people; None for never. Nobody but people can tell whether an effect happened."""
        return self._after(self.terms.expires_after) if self.kind == "approval" else None

    @property
    def remind_at(self) -> datetime | None:
        """When to remind those who may decide."""
        every = self.terms.remind_every
        return self._after(every * (self.reminded + 1)) if every else None

    @property
    def escalate_at(self) -> datetime | None:
        """When to ask more people."""
        steps = self.terms.escalate[self.level :]
        return self._after(steps[0].after) if steps else None

    @property
    def due_at(self) -> datetime | None:
        """When something is to be done about it though nobody decides."""
        return min((time for time in (self.expires_at, self.remind_at, self.escalate_at) if time), default=None)

    def _after(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self.asked_at + timedelta(seconds=seconds)

    def view(self) -> dict[str, Any]:
        """The request as `show`, `pending` and the Web UI present it."""
        return {
            "request": self.request,
            "kind": self.kind,
            "tool": self.tool,
            "arguments": parsed(self.arguments),
            "digest": self.digest,
            "why": self.why,
            "asked_at": self.asked_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "answers": list(self.answers),
            "who": list(self.who),
            "on_expiry": self.terms.on_expiry,
            "veto": list(self.terms.veto),
            "quorum": self.terms.quorum,
            "approved_by": list(self.approved_by),
        }


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000)]
_Short = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
_Id = Annotated[_Short, BeforeValidator(_as_text), Field(min_length=1)]


class Signed(Frozen):
    """What a person says with their name under it, and perhaps a signature."""

    by: _Short = "unknown"
    """Who says it. What it is worth, the policy says."""
    reason: _Text = ""
    signature: _Short = ""
    """Ed25519, over `signed_bytes`; URL-safe base64."""

    def signed_bytes(self, thread: str) -> bytes:
        """What is signed: the canonical JSON of this, but for the signature and for defaults, and of the thread."""
        said = self.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
        return canonical({"holdfast": type(self).__name__, "thread": thread, **said})


class Decision(Signed):
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
    """For `approve`: the same call is allowed from now on, in this thread."""


class Delegation(Signed):
    """An approver lends a right to another, within a thread; the JSON of the signal `delegate`."""

    to: _Id
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_LOAN)
    """For how long, from when it arrives."""
    until: AwareDatetime | None = None
    """Until when: a signature needs this one, or it would be good for ever."""

    @model_validator(mode="after")
    def _for_how_long(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("give `until`, or `seconds`")
        return self


class Revocation(Signed):
    """An approver takes back what was remembered, or delegated; the JSON of the signal `revoke`."""

    remembered: _Id | None = None
    """The id of a remembered rule."""
    delegated_to: _Id | None = None
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
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    except ValueError as error:  # half a surrogate pair
        return f"it cannot be written as JSON: {error}"
    return read if size <= ARGUMENT_CHARS else f"it is over {ARGUMENT_CHARS:,} characters long"


def read_decision(payload: Any, *, decision: DecisionKind | None = None) -> Decision | str:
    """A signal's payload as a decision, or a sentence that says why it is none."""
    return read_signed(payload, Decision, decision=decision)


def approval_digest(call: ToolCall, spec_hash: str) -> str:
    """Digest over tool, canonical arguments and agent spec, the policy among it: what an approval is bound to."""
    return digest([call.digest, spec_hash])


def parsed(arguments: str) -> Any:
    """Arguments as JSON for people and programs to read; verbatim where they are none that everybody can read.

    Half a surrogate pair, a number that is none and thousands of brackets are no JSON to some.
    """
    try:
        return from_json(arguments or "{}", allow_inf_nan=False)
    except (ValueError, TypeError):
        return arguments

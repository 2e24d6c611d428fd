"""Requests to a person, and what a decision on one leads to.

1. A request asks about one tool call: may it run (`approval`), or did it happen (`reconcile`)?
2. Several may be open at once; they are decided in any order, each once.
3. A decision that cannot count (unknown request, decided before, other digest) is recorded and changes nothing.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from holdfast.messages import ToolCall
from holdfast.model import Frozen, digest

RequestKind = Literal["approval", "reconcile"]
DecisionKind = Literal["approve", "deny", "happened", "absent", "abandon"]
DecisionOutcome = Literal[
    "accepted", "duplicate", "unknown_request", "wrong_kind", "digest_mismatch", "malformed", "too_late"
]

ANSWERS: dict[RequestKind, tuple[DecisionKind, ...]] = {
    "approval": ("approve", "deny"),
    "reconcile": ("happened", "absent", "abandon"),
}
"""The decisions that fit each kind of request."""


class Request(Frozen):
    """A question to a person about one tool call."""

    request: str
    """Short id within the thread, to be typed by a person: `1`, `2`, …"""
    kind: RequestKind
    number: int
    """The call's number in the thread."""
    tool: str
    arguments: str
    """Verbatim, as the LLM wrote them."""
    digest: str
    """Digest of tool, arguments and agent spec: what exactly is decided on."""
    why: str
    """The rule that asks, or why nobody knows whether the effect happened."""
    asked_at: datetime

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
            "expires_at": None,
        }


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000)]


class Decision(Frozen):
    """What a person says of a request; the JSON of the signals `approve`, `deny` and `reconcile`."""

    decision: DecisionKind
    request: Annotated[_Text, BeforeValidator(_as_text), Field(min_length=1)]
    by: _Text = "unknown"
    """Who decides. Taken on trust until decisions are signed."""
    reason: _Text = ""
    digest: str | None = None
    """When given, must equal the request's digest."""
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened`: what the LLM is to be told the call returned."""


def read_decision(payload: Any, *, decision: DecisionKind | None = None) -> Decision | str:
    """A signal's payload as a decision, or a sentence that says why it is none.

    Args:
        payload: What was sent: an object, or its JSON text.
        decision: What the signal's name says; None where the payload says it.
    """
    if isinstance(payload, str):
        payload = parsed(payload)
    if not isinstance(payload, dict):
        return f'expected an object such as {{"request": "1", "by": "alice"}}, got {type(payload).__name__}'
    try:
        return Decision.model_validate(payload | ({"decision": decision} if decision else {}))
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


def approval_digest(call: ToolCall, spec_hash: str) -> str:
    """Digest over tool, canonical arguments and agent spec: what an approval is bound to."""
    return digest([call.digest, spec_hash])


def parsed(arguments: str) -> Any:
    """Arguments as JSON for people and programs to read; verbatim where they are none that everybody can read.

    Half a surrogate pair, a number that is none and thousands of brackets are no JSON to some.
    """
    try:
        return from_json(arguments or "{}", allow_inf_nan=False)
    except (ValueError, TypeError):
        return arguments

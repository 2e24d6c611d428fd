"""Requests to people, as data. Answers are in `holdfast.authority.statements`, what they lead to in
`holdfast.run.decisions`.

1. A request asks about one tool call: may it run (`approval`), or did it happen (`reconcile`)?
2. Several may be open at once; they are decided in any order, each once.
3. A decision is bound to the request's digest: the call, the agent, and the one effect that it has.
"""

from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.authority.policy import Terms
from holdfast.authority.statements import DecisionKind, parsed
from holdfast.authority.votes import Seen, Vote
from holdfast.base.digests import canonical, digest
from holdfast.base.models import Frozen
from holdfast.llm.messages import ToolCall

RequestKind = Literal["approval", "reconcile"]
DecisionOutcome = Literal[
    "accepted",
    "waiting_for_quorum",
    "judged_anew",
    "duplicate",
    "unknown_request",
    "wrong_kind",
    "digest_mismatch",
    "malformed",
    "too_late",
    "too_many",
    "not_entitled",
    "unsigned",
    "bad_signature",
    "against_policy",
]
"""What became of a decision. Only the first three change anything: the third opens another request."""

COUNTING: tuple[DecisionOutcome, ...] = ("accepted", "waiting_for_quorum")
"""The outcomes of decisions that count."""

ANSWERS: dict[RequestKind, tuple[DecisionKind, ...]] = {
    "approval": ("approve", "deny", "respond"),
    "reconcile": ("happened", "absent", "undo", "abandon"),
}
"""The decisions that fit each kind of request."""


class ApprovalRequest(Frozen):
    """A question to people about one tool call."""

    id: str
    """Short id within the thread, to be typed by a person: `1`, `2`, …"""
    kind: RequestKind
    number: int
    """The call's number in the thread."""
    tool: str
    arguments: str
    """As they are to run: what the tool reads in what the LLM wrote, or what a person put in its place."""
    digest: str
    """Of what is decided on (`seen`)."""
    spec_hash: str = ""
    """Digest of the agent, its policy included."""
    effect_key: str = ""
    """Names the call's one effect."""
    epoch: int = 0
    """Which row of the ledger."""
    why: str
    """The rule that asks, or why nobody knows whether the effect happened."""
    rule: str = ""
    """The label of the rule that asks."""
    asked_at: datetime
    terms: Terms = Terms()
    """Who may decide, how many have to, until when."""
    undoable: bool = False
    """The tool can take its effect back, so `undo` is an answer to a `reconcile`."""
    votes: tuple[Vote, ...] = ()
    """The answers so far, one of each person, where more have to answer."""
    edited_by: str = ""
    """Who put other arguments in place of the LLM's."""
    reminded: int = 0
    """How often those who may decide were reminded."""
    level: int = 0
    """How often it was escalated."""

    @property
    def seen(self) -> Seen:
        """What is decided on."""
        return Seen(
            tool=self.tool,
            call_digest=self.call().digest,
            spec_hash=self.spec_hash,
            effect_key=self.effect_key,
            epoch=self.epoch,
        )

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

    def edit(self, arguments: dict[str, Any] | None) -> str:
        """Arguments that a person gives, as JSON; empty where they are none, or those that the request has."""
        if arguments is None:
            return ""
        text = canonical(arguments).decode("utf-8", "replace")
        return "" if self.call(text).digest == self.call().digest else text

    def edited(self, arguments: str, *, by: str, effect_key: str) -> "ApprovalRequest":
        """The same question about other arguments: nobody has answered it yet."""
        asked = {"arguments": arguments, "effect_key": effect_key, "edited_by": by, "votes": ()}
        changed = self.model_copy(update=asked)
        return changed.model_copy(update={"digest": changed.seen.digest})

    def call(self, arguments: str = "") -> ToolCall:
        """The call that it is about, or the same with other arguments."""
        return ToolCall(id="", name=self.tool, arguments=arguments or self.arguments)

    def _after(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self.asked_at + timedelta(seconds=seconds)

    def view(self) -> dict[str, Any]:
        """The request as `show`, `pending` and the Web UI present it; `shown_digest` recomputes the digest from it."""
        return {
            "request": self.id,
            "kind": self.kind,
            "tool": self.tool,
            "arguments": parsed(self.arguments),
            "digest": self.digest,
            "spec_hash": self.spec_hash,
            "effect_key": self.effect_key,
            "epoch": self.epoch,
            "why": self.why,
            "edited_by": self.edited_by,
            "asked_at": self.asked_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "answers": list(self.answers),
            "who": list(self.who),
            "on_expiry": self.terms.on_expiry,
            "veto": list(self.terms.veto),
            "quorum": self.terms.quorum,
            "votes": [vote.view() for vote in self.votes],
        }


def shown_digest(view: dict[str, Any]) -> str:
    """The digest of what a request's view shows: whoever signs recomputes it, for what is shown is what is signed.

    Raises:
        KeyError: The view lacks something.
    """
    call = digest([view["tool"], view["arguments"]])
    bound = {name: view[name] for name in ("tool", "spec_hash", "effect_key", "epoch")}
    return Seen(call_digest=call, **bound).digest

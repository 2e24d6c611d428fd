"""Approval requests: questions to people about tool calls, as data.

`holdfast.core.authority.statements` defines the decisions, `holdfast.core.run.inputs.decisions` applies them.

1. A request concerns one tool call: may it run (`approval`), did it happen (`reconcile`), or what do people answer the
   server that carries it out (`question`)?
2. Several requests may be open at once; each is decided once, in any order.
3. A decision is bound to the request's digest, which covers the call, the agent and the one effect of the call.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.core.authority.policy import Escalation, Requirement, Terms
from holdfast.core.authority.previews import CallPreview
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.authority.votes import (
    Seen,
    Vote,
    escalations,
    expires_after,
    on_expiry,
    remind_every,
    votes_for,
    who_decides,
)
from holdfast.core.base.canonical import exact_json, parsed
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.foreign_waits import ServerQuestion
from holdfast.core.tools.typed_context import context_digest

RequestKind = Literal["approval", "reconcile", "question"]
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
"""The outcome of a submitted decision. Only the first three change anything; the third opens another request."""

COUNTING: tuple[DecisionOutcome, ...] = ("accepted", "waiting_for_quorum")
"""The outcomes of decisions that count as votes."""

SHORT_DIGEST = 16
"""Characters (64 bits) of a digest in a printed command; the command looks up the request and sends the whole
digest."""

ANSWERS: dict[RequestKind, tuple[DecisionKind, ...]] = {
    "approval": ("approve", "deny", "respond"),
    "reconcile": ("happened", "absent", "undo", "abandon"),
    "question": ("respond", "approve", "deny"),
}
"""The decisions that fit each kind of request."""

WORDS: dict[RequestKind, str] = {
    "approval": "may this run?",
    "reconcile": "did this happen?",
    "question": "what do you answer its server?",
}
"""The question of each kind of request, on each screen."""


class ApprovalRequest(Frozen):
    """A question to people about one tool call."""

    id: str
    """Short id within the thread, easy to type: `1`, `2`, …"""
    kind: RequestKind
    number: int
    """The call's number in the thread."""
    tool: str
    arguments: str
    """The arguments to run with: parsed from the LLM's text, or edited by a person."""
    digest: str
    """Digest of the facts that a decision is bound to (`seen`)."""
    spec_hash: str = ""
    """Digest of the agent, its policy included."""
    effect_key: str = ""
    """Key of the call's one effect."""
    epoch: int = 0
    """Row of the effect ledger."""
    context: dict[str, Any] | None = None
    """The typed context that the call sees; None if its tool wants none. A decision is bound to it."""
    preview: CallPreview | None = None
    """What the call would do; None if its tool cannot say. Of a `question`, the text. A decision is bound to it."""
    question: ServerQuestion | None = None
    """The question of a `question` request. The preview names its digest. Recorded from feature level 2 on."""
    why: str
    """Why the rule requires approval, or why the outcome is unknown."""
    rule: str = ""
    """Label of the rule that requires approval."""
    asked_at: datetime
    terms: Terms = Terms()
    """The people who may decide, how many must agree, and by when. If several policies ask, the first one's."""
    requirements: tuple[Requirement, ...] = ()
    """The requirements of each policy, if others than the agent's own ask; empty if `terms` are the only ones."""
    undoable: bool = False
    """Whether the tool can undo its effect, so that `undo` is an answer to a `reconcile` request."""
    votes: tuple[Vote, ...] = ()
    """The answers so far, one per person, until the quorum is reached."""
    edited_by: str = ""
    """The person who edited the LLM's arguments."""
    reminded: int = 0
    """How often the approvers were reminded."""
    level: int = 0
    """How often the request was escalated."""
    settles_at: datetime | None = None
    """Until when a delayed request of a call with an unknown outcome may still arrive; None if it cannot any more. An
    earlier answer `absent` or `undo` takes effect only then."""

    @property
    def seen(self) -> Seen:
        """The facts that a decision on this request is bound to."""
        return Seen(
            tool=self.tool,
            call_digest=self.call().digest,
            spec_hash=self.spec_hash,
            effect_key=self.effect_key,
            epoch=self.epoch,
            context=context_digest(self.context),
            preview=self.preview.digest if self.preview else "",
        )

    @property
    def required(self) -> tuple[Requirement, ...]:
        """The requirements of all policies that ask: at least one."""
        return self.requirements or (Requirement(rule=self.rule, terms=self.terms),)

    @property
    def who(self) -> tuple[str, ...]:
        """The people and roles who may decide now, for any of the requirements; empty for all approvers."""
        asked = [self.who_for(number) for number in range(len(self.required))]
        return tuple(dict.fromkeys(name for names in asked for name in names)) if all(asked) else ()

    @property
    def quorum(self) -> int:
        """The highest quorum of all requirements."""
        return max(each.terms.quorum for each in self.required)

    @property
    def on_expiry(self) -> Literal["deny", "approve"]:
        """The decision when the request expires; a question that nobody answers is always declined."""
        return "deny" if self.kind == "question" else on_expiry(self.required)

    @property
    def veto(self) -> tuple[str, ...]:
        """The people and roles who may only deny."""
        return tuple(dict.fromkeys(name for each in self.required for name in each.terms.veto))

    def who_for(self, requirement: int) -> tuple[str, ...]:
        """Return the people and roles who may decide now for one of the requirements; empty for all its approvers."""
        return who_decides(self.required, requirement, self.level)

    def satisfied_by(self, votes: Iterable[Vote]) -> bool:
        """Return whether votes that give the same answer satisfy every policy that asks."""
        given = tuple(votes)
        return all(len(votes_for(given, number)) >= each.terms.quorum for number, each in enumerate(self.required))

    @property
    def answers(self) -> tuple[DecisionKind, ...]:
        """The decisions that fit this request. The address of a question is approved, its form is responded to."""
        if self.question:
            return tuple(ANSWERS["question"][1:] if self.question.is_visit else ("respond", "deny"))
        return tuple(answer for answer in ANSWERS[self.kind] if answer != "undo" or self.undoable)

    @property
    def expires_at(self) -> datetime | None:
        """When the request expires: `on_due` (`holdfast.core.run.inputs.decisions`) then applies `on_expiry`. None for
        never: only people can resolve an unknown outcome.
        """
        return self._after(expires_after(self.required)) if self.kind != "reconcile" else None

    @property
    def remind_at(self) -> datetime | None:
        """When to remind the approvers next."""
        every = remind_every(self.required)
        return self._after(every * (self.reminded + 1)) if every else None

    @property
    def escalate_at(self) -> datetime | None:
        """When to ask more people next."""
        step = self.next_escalation
        return self._after(step.after) if step else None

    @property
    def next_escalation(self) -> Escalation | None:
        """The next escalation; None if there are no more."""
        steps = escalations(self.required)[self.level :]
        return steps[0].escalation if steps else None

    @property
    def due_at(self) -> datetime | None:
        """The next time at which the request needs action even without a decision."""
        return min((time for time in (self.expires_at, self.remind_at, self.escalate_at) if time), default=None)

    def edit(self, arguments: dict[str, Any] | None) -> str:
        """Encode a person's edited arguments as JSON; empty if there are none, or if they equal the current ones."""
        if arguments is None:
            return ""
        text = exact_json(arguments)
        return "" if self.call(text).digest == self.call().digest else text

    def edited(self, arguments: str, *, by: str, effect_key: str) -> "ApprovalRequest":
        """Return the same request with other arguments, without votes and without the preview of the old ones."""
        asked = {"arguments": arguments, "effect_key": effect_key, "edited_by": by, "votes": (), "preview": None}
        changed = self.model_copy(update=asked)
        return changed.model_copy(update={"digest": changed.seen.digest})

    def call(self, arguments: str = "") -> ToolCall:
        """Return the call in question, or the same call with other arguments."""
        return ToolCall(id="", name=self.tool, arguments=arguments or self.arguments)

    def _after(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self.asked_at + timedelta(seconds=seconds)

    def view(self) -> dict[str, Any]:
        """Return the request as `show`, `pending` and the Web UI present it; `shown_digest` recomputes its digest."""
        return {
            "request": self.id,
            "kind": self.kind,
            "tool": self.tool,
            "arguments": shown_arguments(self.arguments),
            "digest": self.digest,
            "spec_hash": self.spec_hash,
            "effect_key": self.effect_key,
            "epoch": self.epoch,
            **({"context": self.context} if self.context is not None else {}),
            **({"preview": self.preview.model_dump()} if self.preview else {}),
            **({"question": self.question.model_dump(mode="json")} if self.question else {}),
            "why": self.why,
            "rule": self.rule,
            "edited_by": self.edited_by,
            "asked_at": self.asked_at.isoformat(),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
            "settles_at": self.settles_at.isoformat() if self.settles_at else None,
            "answers": list(self.answers),
            "who": list(self.who),
            "on_expiry": self.on_expiry,
            "veto": list(self.veto),
            "quorum": self.quorum,
            "requirements": [self._requirement_view(number) for number in range(len(self.requirements))],
            "votes": [vote.view() for vote in self.votes],
            "reminded": self.reminded,
            "remind_at": self.remind_at.isoformat() if self.remind_at else None,
            "escalate_at": self.escalate_at.isoformat() if self.escalate_at else None,
        }

    def _requirement_view(self, number: int) -> dict[str, Any]:
        """Return the requirement of one policy, and the people whose votes count for it."""
        required = self.requirements[number]
        return {
            "policy": required.policy,
            "rule": required.rule,
            "who": list(self.who_for(number)),
            "quorum": required.terms.quorum,
            "votes": [vote.by for vote in votes_for(self.votes, number)],
        }


def shown_arguments(arguments: str) -> Any:
    """Return a call's arguments for display: as an object, or as text if they are not an object."""
    given = parsed(arguments)
    return given if isinstance(given, dict) else arguments


def shown_digest(view: dict[str, Any]) -> str:
    """Compute the digest of a request from its view, so that signers sign exactly the content that they see.

    Raises:
        KeyError: The view lacks a field.
        ValueError: The view has a value that is not JSON.
    """
    shown = view["arguments"]
    call = ToolCall(id="", name=view["tool"], arguments=shown if isinstance(shown, str) else exact_json(shown))
    bound = {name: view[name] for name in ("tool", "spec_hash", "effect_key", "epoch")}
    preview = CallPreview(**view["preview"]) if view.get("preview") else None
    context = context_digest(view.get("context"))
    return Seen(call_digest=call.digest, context=context, preview=preview.digest if preview else "", **bound).digest

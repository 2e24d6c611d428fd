"""Votes: people's answers to a request, each bound to the request that the person saw.

1. A person has one vote on a request, by their own or by delegated authority, and each authority is used once.
2. A request is decided once its quorum of people has given the same answer; if several policies ask, once each policy's
   quorum has. Each policy that judges a call (of its agent, of the agents above, of a fork or an import) and that asks
   contributes its terms, its people and its signatures as a requirement, and all requirements must be satisfied. A
   denial that counts for any one of them suffices to deny.
3. Until then a person may change their mind: a new vote replaces the older one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from holdfast.core.authority.policy import Escalation, Requirement
from holdfast.core.authority.statements import Decision, Proof
from holdfast.core.base.canonical import digest, exact_json
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall


class Seen(Frozen):
    """The facts that a decision is bound to: one call of one agent, with one effect."""

    tool: str
    call_digest: str
    """Digest of tool and arguments (`ToolCall.digest`)."""
    spec_hash: str
    """Digest of the agent, its policy included."""
    effect_key: str
    """Key of the effect (`holdfast.core.tools.effects.effect_key`): thread, first run, number and call."""
    epoch: int = 0
    """Row of the effect ledger: a call whose effect did not happen is repeated in the next epoch."""
    context: str = ""
    """Digest of the typed context that the call sees; empty if its tool wants none."""
    preview: str = ""
    """Digest of the preview of the call; empty if its tool has none."""

    @property
    def digest(self) -> str:
        """The value of a decision's `digest`, which its signature covers."""
        call = [self.tool, self.call_digest, self.spec_hash, self.effect_key, self.epoch]
        if self.preview:
            return digest(["approval/3", *call, self.context, self.preview])
        return digest(["approval/2", *call, self.context] if self.context else ["approval/1", *call])


class Standing(Frozen):
    """A requirement of a request that a vote counts for, and the authority that it uses."""

    requirement: int = 0
    """Its index."""
    right: str = ""
    """The person who delegated the authority that the vote uses; empty for the voter's own authority."""
    proof: Proof = ""
    """How that policy authenticated the voter."""


class Vote(Frozen):
    """One person's answer to a request."""

    said: Decision
    """The decision as it was sent, signature included."""
    seen: Seen
    """The facts that the person decided on."""
    right: str = ""
    """The person who delegated the authority that the vote uses; empty for the voter's own authority."""
    proof: Proof = ""
    key: str = ""
    """The public key that verified the signature."""
    standings: tuple[Standing, ...] = ()
    """The requirements for which it counts, if several policies ask; empty for the only one."""

    @property
    def by(self) -> str:
        """The person who votes."""
        return self.said.by

    @property
    def counts(self) -> tuple[Standing, ...]:
        """The requirements for which it counts."""
        return self.standings or (Standing(right=self.right, proof=self.proof),)

    @property
    def delegated(self) -> bool:
        """Whether it uses authority that somebody has delegated."""
        return bool(self.right) or any(each.right for each in self.standings)

    @property
    def answer(self) -> tuple[str, str]:
        """The part of the decision that must be equal for votes to count together."""
        decision = self.said.decision
        return decision, (self.said.result or "") if decision in ("respond", "happened") else ""

    @property
    def feedback(self) -> str:
        """The line with which the LLM reads what this person says with the approval; empty for none."""
        return f"[{self.by} approved this call, and says: {self.said.say}]\n" if self.said.say else ""

    @property
    def approved_digest(self) -> str:
        """Digest of the call that this vote approves."""
        if self.said.arguments is None:
            return self.seen.call_digest
        return ToolCall(id="", name=self.seen.tool, arguments=exact_json(self.said.arguments)).digest

    def view(self) -> dict[str, Any]:
        """Return the vote as `show` and `pending` present it."""
        view: dict[str, Any] = {"by": self.by, "decision": self.said.decision, "proof": self.proof}
        view |= {"for": self.right} if self.right else {}
        view |= {"result": self.answer[1]} if self.answer[1] else {}
        view |= {"remember": True} if self.said.remember else {}
        return view | ({"say": self.said.say} if self.said.say else {})


def cast(votes: Iterable[Vote], vote: Vote) -> tuple[Vote, ...]:
    """Add a vote, which replaces an older one by the same person."""
    return (*(each for each in votes if each.by != vote.by), vote)


def votes_for(votes: Iterable[Vote], requirement: int) -> tuple[Vote, ...]:
    """Return the votes that count for one of the requirements of a request."""
    return tuple(vote for vote in votes if any(each.requirement == requirement for each in vote.counts))


def without(votes: Iterable[Vote], drops: Callable[[Vote, Standing], bool]) -> tuple[Vote, ...]:
    """Return the votes without the standings that no longer count; a vote without any standing is dropped."""
    kept: list[Vote] = []
    for vote in votes:
        standings = tuple(each for each in vote.counts if not drops(vote, each))
        if len(standings) == len(vote.counts):
            kept.append(vote)
        elif standings:
            kept.append(vote.model_copy(update={"standings": standings}))
    return tuple(kept)


def one_login(votes: Iterable[Vote]) -> tuple[str, ...]:
    """Return the people whose votes share a login or a signing key; empty if each used their own."""
    people: dict[tuple[str, str], list[str]] = {}
    for vote in votes:
        if vote.said.via:
            people.setdefault(("via", vote.said.via), []).append(vote.by)
        if vote.proof == "signed":
            people.setdefault(("key", vote.key), []).append(vote.by)
    return tuple(dict.fromkeys(by for names in people.values() if len(names) > 1 for by in names))


def agreeing(votes: Iterable[Vote], vote: Vote) -> tuple[Vote, ...]:
    """Return the votes that give the same answer as `vote`."""
    return tuple(each for each in votes if each.answer == vote.answer)


class Step(NamedTuple):
    """An escalation of one of the requirements."""

    requirement: int
    """Index of the requirement."""
    escalation: Escalation


def joined(one: Sequence[Requirement], other: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Return the requirements of both, without duplicates of the same policy and terms."""
    kept = list(one)
    asked = [(each.policy, each.terms) for each in one]
    kept += [each for each in other if (each.policy, each.terms) not in asked]
    return tuple(kept)


def expires_after(requirements: Sequence[Requirement]) -> float | None:
    """Return the seconds after which a request expires; None for never."""
    times = [each.terms.expires_after for each in requirements]
    if on_expiry(requirements) == "approve":
        return None if None in times else max(filter(None, times))
    denying = (each.terms.expires_after for each in requirements if each.terms.on_expiry == "deny")
    return min(filter(None, denying), default=None)


def on_expiry(requirements: Sequence[Requirement]) -> Literal["deny", "approve"]:
    """Return the decision on expiry: `approve` only if every policy says so."""
    return "approve" if all(each.terms.on_expiry == "approve" for each in requirements) else "deny"


def remind_every(requirements: Sequence[Requirement]) -> float | None:
    """Return the shortest interval of reminders; None for no reminders."""
    return min((each.terms.remind_every for each in requirements if each.terms.remind_every), default=None)


def escalations(requirements: Sequence[Requirement]) -> tuple[Step, ...]:
    """Return the escalations of all requirements, in chronological order."""
    steps = [Step(number, step) for number, each in enumerate(requirements) for step in each.terms.escalate]
    return tuple(sorted(steps, key=lambda step: (step.escalation.after, step.requirement)))


def who_decides(requirements: Sequence[Requirement], number: int, level: int) -> tuple[str, ...]:
    """Return the people and roles who may decide for one of the requirements; empty for all of its approvers.

    Args:
        requirements: All requirements of the request.
        number: The index of that one.
        level: Number of escalations of the request so far.
    """
    own = sum(step.requirement == number for step in escalations(requirements)[:level])
    return requirements[number].terms.who(own)

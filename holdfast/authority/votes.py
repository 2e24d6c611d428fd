"""Votes: who has given which answer to a request, and what exactly they saw.

1. A person has one vote on a request, whichever right they use, and each right is used once.
2. A request is decided when as many people as its quorum asks for have given the same answer.
3. A person may change their mind until then: their older vote goes.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.authority.statements import Decision, Proof
from holdfast.base.digests import canonical, digest
from holdfast.base.models import Frozen
from holdfast.llm.messages import ToolCall


class Seen(Frozen):
    """What a decision is bound to: one call, of one agent, with one effect."""

    tool: str
    call_digest: str
    """Digest of tool and arguments (`ToolCall.digest`)."""
    spec_hash: str
    """Digest of the agent, its policy included."""
    effect_key: str
    """Names the effect (`holdfast.tools.effects.effect_key`): thread, first run, number and call."""
    epoch: int = 0
    """Which row of the ledger: a call that did not happen runs again in the next epoch."""

    @property
    def digest(self) -> str:
        """What a signature is over, and what a decision gives as `digest`."""
        return digest([self.tool, self.call_digest, self.spec_hash, self.effect_key, self.epoch])


def approval_digest(call: ToolCall, spec_hash: str, key: str, epoch: int = 0) -> str:
    """Digest of a call, the agent that makes it, and the one effect that it has: what an approval is bound to."""
    return Seen(tool=call.name, call_digest=call.digest, spec_hash=spec_hash, effect_key=key, epoch=epoch).digest


class Vote(Frozen):
    """One person's answer to a request."""

    said: Decision
    """The decision as it was sent, signature included."""
    seen: Seen
    """What it was given on."""
    right: str = ""
    """Whose right was used, where it was lent."""
    proof: Proof = ""
    key: str = ""
    """The public key whose signature was found right."""

    @property
    def by(self) -> str:
        """Who votes."""
        return self.said.by

    @property
    def used(self) -> str:
        """Whose right is used up."""
        return self.right or self.by

    @property
    def answer(self) -> tuple[str, str]:
        """What has to be the same for votes to count together."""
        decision = self.said.decision
        return decision, (self.said.result or "") if decision in ("respond", "happened") else ""

    @property
    def granted(self) -> str:
        """Digest of the call that this vote lets run."""
        if self.said.arguments is None:
            return self.seen.call_digest
        arguments = canonical(self.said.arguments).decode("utf-8", "replace")
        return ToolCall(id="", name=self.seen.tool, arguments=arguments).digest

    def view(self) -> dict[str, Any]:
        """The vote as `show` and `pending` present it."""
        told: dict[str, Any] = {"by": self.by, "decision": self.said.decision}
        told |= {"for": self.right} if self.right else {}
        told |= {"result": self.answer[1]} if self.answer[1] else {}
        return told | ({"remember": True} if self.said.remember else {})


def cast(votes: Iterable[Vote], vote: Vote) -> tuple[Vote, ...]:
    """The votes with one more; an older one of the same person goes."""
    return (*(each for each in votes if each.by != vote.by), vote)


def agreeing(votes: Iterable[Vote], vote: Vote) -> tuple[Vote, ...]:
    """Those that give the same answer."""
    return tuple(each for each in votes if each.answer == vote.answer)

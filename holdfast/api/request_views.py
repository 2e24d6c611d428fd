"""Models of what people decide in a thread: open requests and votes, remembered rules, constraints, refinements."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from holdfast.core.authority.approvals import RequestKind
from holdfast.core.authority.refinements import RefinementKind
from holdfast.core.authority.statements import DecisionKind, Proof
from holdfast.core.base.models import Frozen
from holdfast.core.tools.cannot import Scope


class PendingVote(Frozen):
    """An approver's answer to a request that needs more than one."""

    by: str
    decision: DecisionKind
    proof: Proof = ""
    """How it is known who this is; empty for a name that somebody claims."""
    right: str = Field(default="", alias="for")
    """Who delegated the authority that was used; empty for the approver's own."""
    result: str = ""
    remember: bool = False


class PendingRequirement(Frozen):
    """What one of several policies requires of the decision on a request."""

    policy: str
    """Digest of the policy; empty for the agent's own."""
    rule: str
    """Label of the rule that asks."""
    who: tuple[str, ...]
    """The people and roles who may decide for it; empty for all its approvers."""
    quorum: int
    votes: tuple[str, ...]
    """Whose votes count for it."""


class PendingRequest(Frozen):
    """An open request: may a tool call run, or did it happen? Pass it to `Thread.decide`."""

    request: str
    """The request's id within the thread: `1`, `2`, …"""
    kind: RequestKind
    tool: str
    arguments: dict[str, Any] | str
    """The call's arguments; text where they are no object."""
    digest: str
    """What a decision is bound to: the call, the agent and the one effect of the call."""
    spec_hash: str
    effect_key: str
    epoch: int
    why: str
    """Why approval is required, or why the outcome is unknown."""
    rule: str = ""
    """Label of the policy's rule that requires approval."""
    edited_by: str
    """The person who changed the LLM's arguments; empty if they are the LLM's."""
    asked_at: datetime
    expires_at: datetime | None
    """When `on_expiry` decides; None for never."""
    settles_at: datetime | None = None
    """Until when a request of a call whose outcome is unknown may still arrive: what `absent` or `undo` leads to is
    done after that. None for no longer."""
    answers: tuple[DecisionKind, ...]
    """The decisions that fit."""
    who: tuple[str, ...]
    """The people and roles who may decide; empty for all approvers."""
    on_expiry: Literal["deny", "approve"]
    veto: tuple[str, ...]
    quorum: int
    """How many approvers must agree; of several policies that ask, for the one that asks most."""
    requirements: tuple[PendingRequirement, ...] = ()
    """What each policy requires, where another one than the agent's own asks, too; all must be satisfied."""
    votes: tuple[PendingVote, ...]
    reminded: int = 0
    """How often the approvers were reminded."""
    remind_at: datetime | None = None
    """When they are reminded next."""
    escalate_at: datetime | None = None
    """When more people are asked."""
    path: tuple[str, ...] = ()
    """Of a sub-agent's request: the threads from the root of its tree to its own, which takes the decision."""


class RememberedRule(Frozen):
    """A call that is allowed from now on in the thread, because those who approved it asked for that."""

    rule: str
    tool: str
    call_digest: str
    by: str


class Delegation(Frozen):
    """Approval authority that an approver has delegated within the thread."""

    by: str
    to: str
    until: datetime


class Constraint(Frozen):
    """Calls that the run refuses, because a tool said that it cannot make them (`holdfast.Cannot`)."""

    constraint: int
    """Its number, for `Thread.lift`."""
    tool: str
    scope: Scope
    """`here`: the call with these arguments; `everywhere`: every call of the tool."""
    arguments: str
    """The beginning of the arguments; empty for every call of the tool."""
    reason: str
    until: datetime | None
    """When it ends by itself, which is perhaps over; None for when a person lifts it."""


class TaskRefinement(Frozen):
    """How a person refined the task of a thread (`Thread.refine`)."""

    refinement: int
    """Its number, counted from 1 throughout the thread."""
    kind: RefinementKind
    text: str
    by: str
    at: datetime

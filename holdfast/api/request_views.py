"""Models of decisions in a thread: open requests and votes, remembered rules, constraints, refinements."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from holdfast.core.authority.approvals import RequestKind
from holdfast.core.authority.interventions import RefinementKind
from holdfast.core.authority.previews import CallPreview
from holdfast.core.authority.statements import DecisionKind, Proof
from holdfast.core.base.models import Frozen
from holdfast.core.tools.cannot import Scope
from holdfast.core.tools.foreign_waits import ServerQuestion


class PendingVote(Frozen):
    """An approver's vote on a request that needs several."""

    by: str
    decision: DecisionKind
    proof: Proof = ""
    """How the approver was authenticated; empty for an unauthenticated name."""
    right: str = Field(default="", alias="for")
    """The person who delegated the authority used; empty for the approver's own authority."""
    result: str = ""
    remember: bool = False
    say: str = ""
    """Feedback for the agent."""


class PendingRequirement(Frozen):
    """The approval requirement of one of several policies."""

    policy: str
    """Digest of the policy; empty for the agent's own."""
    rule: str
    """Label of the rule that requires approval."""
    who: tuple[str, ...]
    """The people and roles who may decide under this policy; empty for all its approvers."""
    quorum: int
    votes: tuple[str, ...]
    """The people whose votes count for it."""


class Deciders(Frozen):
    """The people who may decide a request, by name, after roles, delegations and requesters are taken into account."""

    decide: tuple[str, ...] | None
    """Those who may give any answer; None for everybody."""
    deny: tuple[str, ...] | None
    """Those who may deny; None for everybody."""
    signed: bool
    """Whether a decision has to be signed."""
    gateways: tuple[str, ...] = ()
    """The keys of the gateways whose signatures suffice."""


class PendingRequest(Frozen):
    """An open request: may a tool call run, did its effect happen, or what do people answer its server? Pass it to
    `Thread.decide`.
    """

    request: str
    """The request's id within the thread: `1`, `2`, …"""
    kind: RequestKind
    tool: str
    arguments: dict[str, Any] | str
    """The call's arguments; text if they are not a JSON object."""
    digest: str
    """Digest that binds a decision to the call, the agent and the call's effect."""
    spec_hash: str
    effect_key: str
    epoch: int
    context: dict[str, Any] | None = None
    """The typed context that the call sees, to which a decision is bound; None if the tool does not want it."""
    preview: CallPreview | None = None
    """What the call would do, as its tool has computed it; None if it cannot. A decision is bound to it. It may quote
    anything, so escape it for display (`holdfast.core.authority.previews`)."""
    question: ServerQuestion | None = None
    """The question of the server that carries out the call, if that is asked; `preview` has its text. Answer it with
    `respond` and the form's fields as JSON, or with `approve` once the address was visited. Escape it for display."""
    why: str
    """The reason why approval is required, or why the outcome is unknown."""
    rule: str = ""
    """Label of the policy's rule that requires approval."""
    edited_by: str
    """The person who changed the LLM's arguments; empty if they are the LLM's."""
    consequence: str = ""
    """What the call does, in the sentence of its tool (`@tool(consequence=…)`), with the arguments' values, whose texts
    are quoted; empty if the tool has none."""
    claim: str = ""
    """The LLM's text in the reply that made the call, at most 1,000 characters: a claim that nobody has checked. Escape
    it for display (`holdfast.core.authority.claims`). Empty if it said nothing, and in runs of earlier releases."""
    asked_at: datetime
    expires_at: datetime | None
    """The time at which `on_expiry` decides; None for never."""
    settles_at: datetime | None = None
    """The time until which an unknown call may still take effect; `absent` and `undo` are carried out after it. None
    if that time has passed."""
    answers: tuple[DecisionKind, ...]
    """The decisions that the request accepts."""
    who: tuple[str, ...]
    """The people and roles who may decide; empty for all approvers."""
    may: Deciders | None = None
    """The people who may decide now, as names; None in runs whose worker does not say it."""
    on_expiry: Literal["deny", "approve"]
    veto: tuple[str, ...]
    quorum: int
    """The number of approvers who must agree; if several policies require approval, the highest of their numbers."""
    requirements: tuple[PendingRequirement, ...] = ()
    """The requirement of each policy, if policies besides the agent's own require approval; all must be met."""
    votes: tuple[PendingVote, ...]
    reminded: int = 0
    """The number of reminders sent to the approvers."""
    remind_at: datetime | None = None
    """The time of the next reminder."""
    escalate_at: datetime | None = None
    """The time at which more people are asked."""
    path: tuple[str, ...] = ()
    """For a sub-agent's request: the threads from the root of its tree to its own, which receives the decision."""


class RememberedRule(Frozen):
    """A call that the thread now allows without asking, because its approvers chose to remember it."""

    rule: str
    tool: str
    call_digest: str
    by: str


class Delegation(Frozen):
    """Approval authority delegated within the thread."""

    by: str
    to: str
    until: datetime


class Constraint(Frozen):
    """Calls that the run rejects, because a tool reported that it cannot make them (`holdfast.Cannot`)."""

    constraint: int
    """Its number, for `Thread.lift`."""
    tool: str
    scope: Scope
    """`here`: the call with these arguments; `everywhere`: every call of the tool."""
    arguments: str
    """The beginning of the arguments; empty for every call of the tool."""
    reason: str
    until: datetime | None
    """The time at which it expires, possibly in the past; None if only a person can remove it."""
    nodes: str = ""
    """The nodes that cannot make such calls, which others still make; empty if they are rejected on all."""


class TaskRefinement(Frozen):
    """A person's refinement of a thread's task (`Thread.refine`)."""

    refinement: int
    """Its number, counted from 1 throughout the thread."""
    kind: RefinementKind
    text: str
    by: str
    at: datetime

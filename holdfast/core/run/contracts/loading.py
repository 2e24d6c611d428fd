"""The data that a run loads before its first step: the thread's past, its effects in the ledger, and the agent."""

from datetime import datetime
from typing import Any

from holdfast.core.agents.agent import AgentSpec, WhenBlocked
from holdfast.core.authority.hours import ZoneOffsets
from holdfast.core.base.canonical import GENESIS
from holdfast.core.base.models import Frozen
from holdfast.core.budget.account import TokenPrice
from holdfast.core.budget.budget import Budget
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.nodes import NodeTerms, Placement
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.tools.effects import PastEffect


class ThreadRequest(ActivityRequest):
    """The input of `load_thread`: which closed run of the thread to continue."""

    previous_run: str | None = None
    """Temporal's id of the thread's last run, if Temporal still has it."""
    fork: ForkPoint | None = None
    """The thread begins here, with the events of another one."""
    imported: bool = False
    """With `fork`: an import has written those events into the record, under the fork's own id."""


class LoadedThread(ActivityResult):
    """The result of `load_thread`: the thread's past."""

    snapshot: RunSnapshot = RunSnapshot()
    """The thread's state; at position 0 if it has no past."""
    moved: bool = False
    """In that past, the requesting run was moved to another cluster: it has since been reset."""


class EffectsRequest(ActivityRequest):
    """The input of `load_effects`: the effects of the thread that the run asks the ledger for."""

    after: int
    """The number of the last call that is finished for good: the run asks for effects of later ones."""
    position: int = 0
    """How many events the run expects in the permanent record, which has to contain them."""
    head: str = GENESIS
    """The digest of the last of them."""


class PastEffects(ActivityResult):
    """The result of `load_effects`: the thread's effects in the ledger."""

    effects: tuple[PastEffect, ...] = ()
    """Oldest first."""
    left_out: int = 0
    """The number of older effects that are left out."""
    moved: RunSnapshot | None = None
    """The thread's state, if it was moved to another cluster after the run's events: the run was reset."""


class ForkedFolder(Frozen):
    """The files with which a fork begins."""

    workspace: str
    """The folder of the original thread."""
    at: datetime
    """The time of the last event that both threads have."""


class AgentRequest(ActivityRequest):
    """The input of `load_agent`: which agent and workspace to resolve, and the state of the thread."""

    agent: str | None
    """The agent's name; None for the catalog's first."""
    workspace: str | None
    """A folder on the worker; None for the thread's own."""
    user: str = ""
    """The person who gave the thread's task, for their standing memories; empty if their identity is not proven."""
    fresh: bool = False
    """The run expects the thread to be new: the permanent record must have no events of it."""
    plain: bool = False
    """The start was not sealed; a worker may reject such starts."""
    forked: ForkedFolder | None = None
    """The thread was forked: its folder begins with the files of the original thread at that time."""
    after: int = 0
    """How many calls the thread's log has. The ledger may have later ones, if the run was reset to its beginning."""
    budget: Budget | None = None
    """The budget of the start."""
    llm: str = ""
    """The LLM that replaces the agent's; empty for the agent's."""
    context: dict[str, Any] | None = None
    """The typed context of the run; None for no context."""
    given: bool = False
    """The start gave the context for this agent. Another one may have been made for another agent, of the parent run or
    of the thread: fields that the agent's model lacks are kept, for the policies above."""
    when_blocked: WhenBlocked | None = None
    """What the start says about that; None if it says nothing."""
    zones: tuple[str, ...] = ()
    """The time zones of the hours in the policies above, each once."""
    position: int | None = None
    """How many events the run has. If the record has a later move of the thread, the run was reset."""
    policy: str = ""
    """Only the policy is asked for, of this digest: a worker on which the agent has another one sends the request on.
    Empty if the agent is asked for."""
    nodes: NodeTerms | None = None
    """The terms for the node that loads the agent; None for any node. With terms, the answer has a placement."""


class LoadedAgent(ActivityResult):
    """The result of `load_agent`: the agent as this thread runs it."""

    spec: AgentSpec
    workspace: str
    """Absolute path on the worker."""
    notify: bool = False
    """The worker has receivers for notices."""
    recalled: tuple[RecalledTier, ...] = ()
    """The memories in the LLM's prompt from the start."""
    past: PastEffects | None = None
    """Effects of the thread that its log lacks, because the run was reset to its beginning."""
    features: int = 0
    """The feature level of the worker's release."""
    context: dict[str, Any] | None = None
    """The typed context with the default values of the agent's model; None if the request's is complete."""
    problem: str = ""
    """Why a function of the agent gave no instructions or tools: the run is blocked, and `spec` is not used."""
    zones: tuple[ZoneOffsets, ...] = ()
    """The offsets of those time zones, and of those in the agent's own policy."""
    price: TokenPrice | None = None
    """With a budget of money: the list price of the agent's LLM; None if it is unknown."""
    page: str = ""
    """The address of the gateway with the page, for links to it; empty for none."""
    placement: Placement | None = None
    """If the request has terms for nodes: the node that took it. If none did, `spec` is not used."""

"""Begin a Temporal run: continue from a snapshot, open a run of a thread, or load the thread's past first."""

from datetime import datetime
from typing import NamedTuple

from holdfast.core.authority.policy import Policy
from holdfast.core.base.names import person_name
from holdfast.core.llm.conversation import conversation_excess
from holdfast.core.llm.messages import AssistantMessage, ToolMessage, decode
from holdfast.core.log.events import RunContinued, RunImported, RunStarted, UserMessageReceived
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.mac.starts import refusal
from holdfast.core.nodes import MAX_LAYERS, narrowed
from holdfast.core.run.contracts.commands import Failure
from holdfast.core.run.contracts.error_types import AGENT_FUNCTION_FAILED, NO_NODE, START_REFUSED
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent, ThreadRequest
from holdfast.core.run.contracts.requests import agent_request
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.decide.placements import rejection_text
from holdfast.core.run.decide.reactions import Events, on_reopen
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.import_run import import_event, on_import_loaded, refuse_import
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.results import on_agent
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.rules.forks import ANSWERED, WITHIN_REPLY, fork_events, refuse_fork, refuse_policies
from holdfast.core.run.state.features import (
    CALLED,
    CONVERSATIONS,
    LIFTS_ON_START,
    LOOP_BUDGETS,
    MESSAGE_IDS,
    PLACES,
    SCHEDULED,
    SUBAGENTS,
    TRACE_LINKS,
    TYPED_CONTEXT,
    UNATTENDED,
    require_features,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.typed_context import context_excess


class RunIds(NamedTuple):
    """The names of a Temporal run."""

    thread: str
    """The workflow id."""
    run_id: str
    """Temporal's original id of this run: a reset keeps it, and so the events before the reset."""
    first_run_id: str
    """Temporal's first execution run id, which names effects."""


class Opening:
    """Begins a Temporal run.

    Args:
        begin: The workflow's input.
        ids: The run's ids.
        log: Records the events.
        calls: Makes the calls.
    """

    def __init__(self, begin: RunInput, ids: RunIds, *, log: RunLog, calls: OpenCalls) -> None:
        self.begin = begin
        """The workflow's input. After the start, it names the agent to load; None for the catalog's first."""
        self._ids = ids
        self._log = log
        self._calls = calls

    def open(self, *, started_at: datetime) -> Failure | None:
        """Begin, or request the thread's past.

        Args:
            started_at: When the start reached Temporal.

        Returns:
            Why the run may not start; None if it may.

        Raises:
            FeaturesUnknown: Only a newer release can continue this run.
        """
        begin, log = self.begin, self._log
        log.state = RunState(thread=self._ids.thread)
        if refused := refusal(begin, first_run_id=self._ids.first_run_id, started_at=started_at):
            return Failure(START_REFUSED, refused)
        require_features(begin.features)
        log.open(begin.snapshot or RunSnapshot(state=log.state))
        if begin.snapshot:
            log.record(RunContinued(run_id=self._ids.run_id, features=begin.features))
            log.reconcile()  # Temporal may have reset the run to this event
        elif begin.resume or begin.fork:
            log.loaded = False
            imported = begin.fork is not None and begin.imported is not None
            request = ThreadRequest(previous_run=begin.previous_run, fork=begin.fork, imported=imported)
            self._calls.call(request, log.state)
        else:
            return self._start()
        return None

    def on_thread(self, snapshot: RunSnapshot) -> Failure | None:
        """Begin with the thread's past, or load the agent first; return why the run may not start, None if it may."""
        self._log.open(snapshot)
        if self.begin.imported and not self.begin.fork:
            return self._import(self.begin.imported)
        failure = self._start()
        self._log.loaded = True
        return failure

    def on_agent(self, request: AgentRequest, loaded: LoadedAgent) -> Failure | None:
        """Continue an imported run under the agent of this cluster; return why it may not continue, None if it may."""
        assert self.begin.imported is not None
        if loaded.placement and loaded.placement.node is None:  # nothing is recorded, so the import can be repeated
            return Failure(NO_NODE, rejection_text(loaded.placement.rejected, self._log.state.scope))
        if loaded.problem:
            return Failure(AGENT_FUNCTION_FAILED, loaded.problem)  # nothing is recorded, so the import can be repeated
        log = self._log
        log.record(self._imported(self.begin.imported))
        on_agent(request, loaded.model_copy(update={"recalled": ()}), log=log, calls=self._calls)
        log.record(*on_import_loaded(log.state, at=log.at))
        log.reconcile()
        log.loaded = True
        return None

    def _start(self) -> Failure | None:
        """Begin the thread, or continue it after its closed run."""
        begin, log, past = self.begin, self._log, self._log.state
        if refused := refuse_start(begin, past) or refuse_forked_start(begin, log, thread=self._ids.thread):
            return Failure(START_REFUSED, refused)
        agent = begin.agent or (past.spec.name if past.spec else None)
        self.begin = begin = begin.model_copy(update={"agent": agent})
        log.record(*opening_events(begin, past, self._ids))
        return None

    def _import(self, point: ImportPoint) -> Failure | None:
        """Request the agent from this cluster, unless the run is closed.

        The log stays unchanged until then, so that the import can be repeated if there is no such agent.
        """
        log, state, position = self._log, self._log.state, self._log.events.length
        refused = refuse_import(point, state, thread=self._ids.thread, position=position, head=log.events.head)
        if refused:
            return Failure(START_REFUSED, refused)
        if state.outcome != "moved" or state.spec is None:
            log.record(self._imported(point))
            log.loaded = True
            return None
        imported = evolve(state, self._imported(point).model_copy(update={"at": log.at}))
        self._calls.call(agent_request(self.begin, imported, agent=state.spec.name, recorded=position), state)
        return None

    def _imported(self, point: ImportPoint) -> RunImported:
        by, level = canonical_name(self.begin.by), self.begin.features
        return import_event(point, run_id=self._ids.run_id, first_run_id=self._ids.first_run_id, by=by, level=level)


def refuse_start(begin: RunInput, past: RunState) -> str:
    """Return why this start may not open another run of the thread; empty if it may. Each start counts once."""
    if begin.start and begin.start in past.origin.starts:
        return f"the start {begin.start} has begun a run of this thread before; say something to the thread instead"
    if begin.message_id and past.inbox.repeats(begin.message_id, begin.task, canonical_name(begin.by)):
        return f"a message with the id {begin.message_id!r} was received before; see the thread's log"
    if past.outcome == "moved" and not begin.fork:
        return "the thread was moved to another place, and continues there: import its file to continue it here"
    if begin.context is not None and (why := context_excess(begin.context)):
        return f"its context {why}"
    if begin.context is not None and begin.features < TYPED_CONTEXT:
        return "it has a context, but not the feature level of contexts; start it with this release, or a later one"
    if begin.conversation and (why := conversation_excess(begin.conversation)):
        return f"its conversation {why}"
    if begin.conversation and begin.features < CONVERSATIONS:
        return "it has a conversation, but not their feature level; start it with this release, or a later one"
    if begin.lift and begin.features < LIFTS_ON_START:
        return "it lifts a constraint, but lacks the feature level of that; start it with this release, or a later one"
    if begin.scope and begin.features < PLACES:
        return "it has a trust scope, but not the feature level of scopes; start it with this release, or a later one"
    if begin.scope and len(narrowed(past.places.scope, *begin.scope)) > MAX_LAYERS:
        return f"its trust scope would have more than {MAX_LAYERS} layers; start it without nodes of its own"
    return ""


def opening_events(begin: RunInput, past: RunState, ids: RunIds) -> Events:
    """Return the events that open a run: the ends of calls that a closed one left open, the start, and the task.

    Args:
        begin: The run's input, with the agent to load; None for the catalog's first.
        past: The state in which the thread's last run ended.
        ids: The run's ids.
    """
    started = RunStarted(
        thread=ids.thread,
        run_id=ids.run_id,
        first_run_id=ids.first_run_id,
        sealed=begin.proven,
        start=begin.start,
        user_proven=begin.proven and begin.by_proven,
        agent=begin.agent,
        idle_limit=begin.idle_limit,
        depth=begin.depth,
        trust=begin.trust,
        schedule=begin.schedule if begin.features >= SCHEDULED else "",
        caller=begin.caller if begin.features >= CALLED else "",
        when_blocked=begin.when_blocked if begin.features >= UNATTENDED else None,
    )
    if begin.lineage and begin.features >= SUBAGENTS:
        inherited = {"lineage": begin.lineage, "policies": begin.policies, "constraints": begin.constraints}
        started = started.model_copy(update=inherited)
    if begin.scope:
        started = started.model_copy(update={"scope": begin.scope})
    if begin.lift:
        started = started.model_copy(update={"lift": begin.lift})
    if begin.conversation:
        started = started.model_copy(update={"conversation": begin.conversation})
    if begin.traceparent and begin.features >= TRACE_LINKS:
        started = started.model_copy(update={"traceparent": begin.traceparent})
    if begin.context is not None:
        started = started.model_copy(update={"context": begin.context})
    if begin.returns_partial and begin.features >= LOOP_BUDGETS:
        started = started.model_copy(update={"allowance": begin.budget})
    id = begin.message_id if begin.features >= MESSAGE_IDS else ""
    task = UserMessageReceived(content=begin.task, by=canonical_name(begin.by), task=True, id=id)
    if begin.fork is None:
        return [*on_reopen(past), started, task]
    forked = fork_events(
        past,
        begin.fork,
        thread=ids.thread,
        first_run_id=ids.first_run_id,
        by=task.by,
        level=begin.features,
        imported=begin.imported,
        llm=begin.llm,
        policies=(*_kept(begin, past), *begin.policies),
    )
    started = started.model_copy(update={"depth": past.origin.depth})
    return [*forked, started, *([task] if begin.task else [])]


def refuse_forked_start(begin: RunInput, log: RunLog, *, thread: str) -> str:
    """Return why a fork may not begin with the loaded past; empty if it may, or if this start forks nothing.

    Args:
        begin: The run's input.
        log: The log, with the loaded past.
        thread: The workflow id.
    """
    past, transcript = log.state, log.transcript
    if begin.fork is None:
        return ""
    if refused := refuse_fork(begin.fork, thread=thread, position=log.events.length, head=log.events.head):
        return refused
    if begin.keeps_policy and past.spec is None:  # too early in the run: no policy is recorded that the fork could keep
        return "no agent is loaded at that event, so its policy cannot judge the fork: fork at a later event"
    if refused := refuse_policies(past, begin.policies, kept=_kept(begin, past)):
        return refused
    messages = [decode(line) for line in transcript.messages]
    after = next((n for n, each in enumerate(reversed(messages)) if isinstance(each, AssistantMessage)), None)
    if after is None:
        return ""
    reply, results = messages[-1 - after], messages[len(messages) - after :]
    calls = len(reply.tool_calls) if isinstance(reply, AssistantMessage) else 0
    if calls > sum(isinstance(each, ToolMessage) for each in results) + len(transcript.base.open):
        return WITHIN_REPLY
    return ANSWERED if not (calls or after or begin.task or past.inbox.waiting) else ""


def _kept(begin: RunInput, past: RunState) -> tuple[Policy, ...]:
    """Return the policy of the original thread's agent, if it is to judge the fork's calls, too."""
    return (past.spec.policy,) if begin.keeps_policy and past.spec else ()


def canonical_name(by: str) -> str:
    """Return the canonical spelling of the starter's name; unchanged if it is invalid, which fails the run."""
    try:
        return person_name(by)
    except ValueError:
        return by[:2_000]

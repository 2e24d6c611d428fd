"""Build the requests to activities from a run's state. Pure functions."""

from holdfast.core.base.canonical import exact_json
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.nodes import HASH_CHARS, NodeTerms, Unfit, placement_digest
from holdfast.core.run.contracts.loading import AgentRequest, ForkedFolder
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolRequest
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.dormancy import Wait
from holdfast.core.run.state.features import (
    COMMITS_PROGRESS,
    CONSTRAINTS,
    FAILED_ATTEMPTS,
    FOREIGN_WAITS,
    KEEPS_TRUST,
    PARTIAL_RESULTS,
    PLACES,
    RESULT_NAMES_ARTIFACTS,
    SETTLING,
    STACK_TRACES,
    TOOL_PINS,
)
from holdfast.core.run.state.progress import PROGRESS_TOOL, PROGRESS_WRITERS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.foreign_waits import Resumption
from holdfast.core.tools.progress_file import USUAL_FILE, ProgressFile
from holdfast.core.tools.triggers import PollTrigger, TaskTrigger
from holdfast.core.trust import Origin

AGENT_FIELDS = ("agent", "workspace", "brought", "budget", "context", "when_blocked")
"""The fields of a run's input that the loading of its agent needs, if the run continues as new before that."""


def node_terms(state: RunState, *, approved: bool = False, unfit: tuple[Unfit, ...] = ()) -> NodeTerms | None:
    """Return the terms for the node that takes the work; None if any node may, and none judges it.

    Args:
        state: The run's state.
        approved: A person has approved the call.
        unfit: For a tool call: the nodes that cannot make it.
    """
    if state.features < PLACES and not state.scope:
        return None
    policies = (*((state.spec.policy,) if state.spec else ()), *state.origin.policies)
    places = state.places
    return NodeTerms(
        scope=state.scope,
        unfit=unfit,
        agent=state.spec.name if state.spec else "",
        depth=state.origin.depth,
        policies=tuple(policy.hash[:HASH_CHARS] for policy in policies),
        approved=approved,
        tries=places.tries,
        recorded=placement_digest(places.node, places.policy) if places.node else "",
    )


def agent_request(begin: RunInput, state: RunState, *, agent: str | None, recorded: int) -> AgentRequest:
    """Return the request to load the agent.

    Args:
        begin: The run's input.
        state: The run's state.
        agent: The agent's name; None for the catalog's first.
        recorded: How many events of the thread the permanent record has, according to the run's state.
    """
    fork = state.fork if not (begin.brought or begin.workspace or state.workspace) else None
    return AgentRequest(
        agent=agent,
        workspace=begin.workspace or state.workspace or None,
        user=state.origin.proven_user,
        fresh=not begin.resume and not begin.fork and not recorded,
        plain=not state.origin.sealed,
        forked=ForkedFolder(workspace=fork.workspace, at=fork.at) if fork and fork.workspace else None,
        after=state.calls.count,
        budget=state.account.budget if state.next_agent else begin.budget,
        llm=state.fork.llm if state.fork else "",
        when_blocked="fail" if state.unattended else begin.when_blocked or state.origin.when_blocked,
        position=recorded,
        zones=tuple(dict.fromkeys(zone for policy in state.origin.policies for zone in policy.zones)),
        context=state.typed_context.values,
        given=begin.context is not None and state.origin.lineage is None and not state.next_agent,
        nodes=node_terms(state),
    )


def policy_request(state: RunState) -> AgentRequest:
    """Return the request to load the policy that the run adopts."""
    assert state.spec is not None
    zones = dict.fromkeys(zone for policy in state.origin.policies for zone in policy.zones)
    return AgentRequest(
        agent=state.spec.name,
        workspace=None,
        policy=state.policy_change,
        zones=tuple(zones),
        nodes=node_terms(state),
    )


def tool_request(
    state: RunState,
    call: ToolCall,
    *,
    number: int = 0,
    epoch: int = 0,
    undo: bool = False,
    settle: bool = False,
    poll: int = 0,
    origin: Origin | None = None,
) -> ToolRequest:
    """Return the request to run a tool call, to undo its effect, or to determine its outcome (`settle`).

    Args:
        state: The run's state.
        call: The call.
        number: Its number in the thread; 0 for one that the LLM did not request.
        epoch: How often a person has said that the effect did not happen.
        undo: Undo the effect instead.
        settle: Determine the outcome of the effect, and cause none.
        poll: The number of the poll; 0 for any other call.
        origin: The origin of the call, for tools that use it.
    """
    assert state.spec is not None
    past, tool = state.past_of(number, call), state.spec.tool(call.name)
    constrained = bool(state.constraints.kept) and not (undo or settle)
    unfit = state.constraints.unfit_for(call, at=state.updated_at) if constrained else ()
    own = state.calls.find(number)
    return ToolRequest(
        call=call,
        key=state.effect_key(number, call),
        number=past.number if past else number,
        first_run_id=past.first_run_id if past else state.origin.first_run_id if state.imported else "",
        epoch=epoch,
        workspace=state.workspace,
        clip=state.spec.limits.tool_result_chars,
        max_worker_deaths=state.spec.limits.max_worker_deaths,
        undo=undo,
        settle=settle,
        poll=poll,
        origin=origin,
        context=state.context_of(number, call.name),
        writes=state.writes_of(call.name) if number and not poll else (),
        cannot=number > 0 and state.features >= CONSTRAINTS,
        names_artifacts=number > 0 and state.features >= RESULT_NAMES_ARTIFACTS,
        failures=number > 0 and state.features >= FAILED_ATTEMPTS,
        partial=number > 0 and state.features >= PARTIAL_RESULTS,
        stacks=number > 0 and not poll and state.features >= STACK_TRACES,
        settles=number > 0 and state.features >= SETTLING,
        nodes=node_terms(state, approved=undo or (own is not None and own.approved), unfit=unfit),
        reroutes=number > 0 and state.features >= PLACES and not (undo or settle or poll),
        trust=state.context.trust if state.features >= KEEPS_TRUST else None,
        base=own.base if own and number and not (poll or settle or undo) else "",
        pin=tool.pin if tool and state.features >= TOOL_PINS else "",
        pends=number > 0 and state.features >= FOREIGN_WAITS and not (undo or settle),
        resumed=own.resumed if own and number and not (poll or settle or undo) else None,
        progress=_progress_file(state, call.name),
    )


def _progress_file(state: RunState, tool: str) -> ProgressFile | None:
    """Return the progress file for a tool that writes it; None for the usual file without commits."""
    if state.spec is None or tool not in PROGRESS_WRITERS or state.features < COMMITS_PROGRESS:
        return None
    commits = state.spec.memory.commits if tool == PROGRESS_TOOL else "none"  # the others commit in any case
    file = ProgressFile(name=state.spec.memory.progress_file, commits=commits)
    return file if file != USUAL_FILE else None


def preview_request(state: RunState, call: CallState) -> PreviewRequest:
    """Return the request to compute what a call would do, for the approval request that is announced."""
    assert call.asked is not None, "only an announced request has a preview"
    request = call.asked
    return PreviewRequest(
        request=request.id,
        call=ToolCall(id=call.call.id, name=request.tool, arguments=request.arguments),
        key=request.effect_key,
        workspace=state.workspace,
        context=request.context,
        nodes=node_terms(state),
    )


def verify_request(state: RunState, tool: str) -> ToolRequest:
    """Return the request to run a `verify` tool, with its default arguments."""
    spec = state.spec.tool(tool) if state.spec else None
    arguments = exact_json(spec.defaults if spec else {})
    return tool_request(state, ToolCall(id=f"verify_{tool}", name=tool, arguments=arguments))


def poll_request(state: RunState, wait: Wait, *, position: int) -> ToolRequest:
    """Return the request to make the next poll of a wait that polls.

    Args:
        state: The run's state.
        wait: The wait.
        position: How many events the thread has.
    """
    assert wait.polls is not None
    if isinstance(wait.trigger, TaskTrigger):
        call = state.calls.get(wait.number).call
        polled = tool_request(state, call, number=wait.number, poll=wait.polls.count + 1)
        before = state.calls.get(wait.number).resumed
        unsent = before and wait.polls.count == wait.polls.failures  # no poll has reached the server with them
        responses = before.responses if before and unsent else ""
        answered = before.answered if before else ()
        resumed = Resumption(responses=responses, task=wait.trigger.task, answered=answered)
        return polled.model_copy(update={"resumed": resumed})
    assert isinstance(wait.trigger, PollTrigger)
    call = ToolCall(id="", name=wait.trigger.tool, arguments=wait.trigger.arguments)
    origin = origin_of(state, wait.number, call.name, position=position)
    return tool_request(state, call, number=wait.number, poll=wait.polls.count + 1, origin=origin)


def cancel_request(state: RunState, number: int, task: str) -> ToolRequest:
    """Return the request to cancel the task of a call, because the run ends."""
    request = tool_request(state, state.calls.get(number).call, number=number)
    return request.model_copy(update={"resumed": Resumption(task=task), "cancels": True})


def origin_of(state: RunState, number: int, name: str, *, position: int) -> Origin | None:
    """Return the origin of a call that is about to start; None for a tool that does not use it.

    Args:
        state: The state before the start.
        number: The call's number.
        name: The tool's name.
        position: How many events the thread has.
    """
    call, spec = state.calls.get(number), state.spec
    tool = spec.tool(name) if spec else None
    if spec is None or tool is None or not tool.wants_origin:
        return None
    user, trust = state.origin.proven_user, state.context.trust
    origin = Origin(agent=spec.name, user=user, position=position, trust=trust, approved=call.approved)
    return origin.model_copy(update={"hops": state.dormancy.hops}) if state.dormancy.hops else origin


def effect_of(state: RunState, number: int) -> Effect:
    """Return the effect class of the tool in a call of the current step."""
    assert state.spec is not None
    tool = state.spec.tool(state.calls.get(number).call.name)
    assert tool is not None, "a call of an unknown tool never gets a verdict"
    return tool.effect

"""How a fork changes the state that it begins with: the one of the thread that it was forked from, at that event."""

from holdfast.base.replacing import replace
from holdfast.errors import EventOutOfPlace
from holdfast.log.events import ConstraintLifted, RunForked
from holdfast.run.evolve_import import brought_from, trust_brought
from holdfast.run.evolve_run import trust_so_far
from holdfast.run.state import RunState
from holdfast.run.substates.dormancy import Dormancy
from holdfast.run.substates.origin import Fork
from holdfast.run.substates.steps import Ending
from holdfast.run.substates.subagents import Subagents


def fork_run(state: RunState, event: RunForked) -> RunState:
    """Begin a fork. It has what the thread knew, and none of its authority.

    Remembered rules, delegations and what waits to be undone belong to the original thread: people gave them for that
    thread. Its requesters stay, because they cannot approve where the policy says so.

    Its sub-agents stay the original's, too: a fork neither awaits nor cancels them. The fork of a sub-agent's thread is
    no child of the run that started that one, which has its own; but the policies above still judge it. So do policies
    that were given with a fork, in every fork of that one, too: no fork is a way around them.

    Raises:
        EventOutOfPlace: The events before are not those that the fork names.
    """
    if event.origin != state.thread or event.point.position != state.events - 1:
        raise EventOutOfPlace(f"it forks {event.point.thread} after event {event.point.position}")
    authority = replace(state.authority, proposed_rule=None, rules=(), delegations=()).add_requester(event.by)
    file = event.imported  # its folder, which is in another place, is none of this one
    state = replace(state, workspace="", origin=brought_from(state, file)) if file else state
    trust = trust_brought(state, file) if file else trust_so_far(state)
    before = state.fork.policies if state.fork else ()
    policies = {policy.hash: policy for policy in event.policies}
    fork = Fork(
        point=event.point,
        by=event.by,
        at=state.updated_at,
        workspace=state.workspace,
        llm=event.llm,
        policies=tuple(dict.fromkeys((*before, *policies))),
    )
    heard, lineage = state.origin.heard(event.by), state.origin.lineage
    for policy in heard.policies:  # what judges already judges once
        policies.pop(policy.hash, None)
    deepest = lineage.deepest if lineage else heard.deepest
    origin = replace(
        heard,
        first_run_id=event.first_run_id,
        starts={},
        schedule="",
        lineage=None,
        deepest=deepest,
        policies=(*heard.policies, *policies.values()),
    )
    return replace(
        state,
        thread=event.thread,
        fork=fork,
        workspace="",
        features=max(state.features, event.features),
        origin=origin,
        subagents=Subagents(),
        calls=replace(state.calls, past=()),
        authority=authority,
        context=replace(state.context, trust=trust),
        imported=None,
        moving=None,
        dormancy=Dormancy(),
        ending=Ending(),
        blocked=None,
        pause=None,
        outcome=None,
    )


def lift_fork(state: RunState, event: ConstraintLifted) -> RunState:
    """Let the effects of a fork run as the policy says.

    Raises:
        EventOutOfPlace: Nothing asks first because of a fork.
    """
    if state.fork is None or state.fork.lifted_by is not None:
        raise EventOutOfPlace("no effect asks first because of a fork")
    return replace(state, fork=replace(state.fork, lifted_by=event.by))

"""The fold of forks. A fork begins with the state of the original thread at that event."""

from holdfast.core.base.models import replace
from holdfast.core.log import events as ev
from holdfast.core.run.fold.imports import imported_origin, imported_trust
from holdfast.core.run.fold.runs import trust_so_far
from holdfast.core.run.state.dormancy import Dormancy
from holdfast.core.run.state.origin import Fork
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.progress import Ending
from holdfast.core.run.state.state import RunState
from holdfast.core.run.state.subagents import Subagents
from holdfast.errors import EventOutOfPlace


def fork_run(state: RunState, event: ev.RunForked) -> RunState:
    """Begin a fork. It keeps the content of the original thread, its trust scope, and none of its authority.

    Remembered rules, delegations and effects that wait to be undone stay with the original, for which people gave
    them. The fork keeps its requesters, because the policy may forbid them to approve.

    The sub-agents stay with the original, too: a fork neither awaits nor cancels them. A fork of a sub-agent's thread
    is no sub-agent of the parent run, which has the original; but the policies above still judge it. So do policies
    that were given with a fork, also in forks of that fork: no fork is a way around a policy.

    Raises:
        EventOutOfPlace: The events before are not those that the fork names.
    """
    if event.origin != state.thread or event.point.position != state.events - 1:
        raise EventOutOfPlace(f"it forks {event.point.thread} after event {event.point.position}")
    authority = replace(state.authority, proposed_rule=None, rules=(), delegations=()).add_requester(event.by)
    file = event.imported  # if so, the folder is in another cluster
    state = replace(state, workspace="", origin=imported_origin(state, file)) if file else state
    trust = imported_trust(state, file) if file else trust_so_far(state)
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
    origin, lineage = state.origin.note_sender(event.by), state.origin.lineage
    for policy in origin.policies:  # each policy judges once
        policies.pop(policy.hash, None)
    deepest = lineage.deepest if lineage else origin.deepest
    origin = replace(
        origin,
        first_run_id=event.first_run_id,
        trace_run="",
        starts={},
        schedule="",
        lineage=None,
        deepest=deepest,
        policies=(*origin.policies, *policies.values()),
    )
    return replace(
        state,
        thread=event.thread,
        fork=fork,
        workspace="",
        page="",  # the other cluster's
        features=max(state.features, event.features),
        origin=origin,
        subagents=Subagents(),
        calls=replace(state.calls, past=()),
        authority=authority,
        context=replace(state.context, trust=trust),
        imported=None,
        moving=None,
        places=Places(scope=state.scope),
        dormancy=Dormancy(),
        ending=Ending(),
        blocked=None,
        pause=None,
        outcome=None,
    )


def lift_fork(state: RunState, event: ev.ConstraintLifted) -> RunState:
    """Let the effects of a fork run as the policy says.

    Raises:
        EventOutOfPlace: No effect requires approval because of a fork.
    """
    if state.fork is None or state.fork.lifted_by is not None:
        raise EventOutOfPlace("no effect asks first because of a fork")
    return replace(state, fork=replace(state.fork, lifted_by=event.by))

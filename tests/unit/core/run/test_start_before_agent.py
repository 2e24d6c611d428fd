"""A start counts as a whole, although the run continues as new before its agent is loaded."""

from holdfast.core.budget.budget import Budget
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.state.features import FEATURES
from tests.support.runs import Thread


def test_a_flood_before_the_agent_is_loaded_strips_no_part_of_a_start() -> None:
    """Anybody can send a blocked run signals until it continues as new: its agent is then loaded by the same request.

    Without the start's budget, for example, the run could spend all that the agent's own budget allows.
    """
    budget, context = Budget(steps=3), {"tier": "free"}
    thread = Thread(
        agent="payer", workspace="/w", budget=budget, context=context, when_blocked="wait", features=FEATURES
    )
    (first,) = thread.waiting(AgentRequest)
    failed = LoadedAgent(spec=thread.spec, workspace="", problem="its function raised KeyError", features=FEATURES)
    thread.end(first, failed)
    assert thread.state.blocked
    thread.continue_suggested = True
    thread.signal("nonsense")
    while not thread.snapshots:
        thread.archive()
    thread.continue_suggested = False

    thread.signal("retry", {"by": "ann"})
    (second,) = thread.waiting(AgentRequest)
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    counted = {"order", "position", "fresh"}
    assert second.request.model_dump(exclude=counted) == first.request.model_dump(exclude=counted)
    thread.load(FEATURES)
    assert thread.state.account.limits
    thread.check_consistent()

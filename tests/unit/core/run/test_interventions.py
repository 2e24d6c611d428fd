"""The table of interventions, and the tables derived from it: `holdfast.core.run.inputs.interventions`."""

from typing import Any

import pytest

from holdfast.core.run.inputs.interventions import INTERVENTIONS, SIGNALS, UPDATES, on_signal, react
from holdfast.core.run.state.features import FEATURES
from holdfast.gateway.routes.acting import ROUTES
from tests.support.runs import Thread, agent_spec, calls, loaded_thread

PAYLOADS: dict[str, dict[str, Any]] = {
    "say": {"message": "hello", "by": "ann"},
    "refine": {"kind": "narrow", "text": "less", "by": "ann"},
    "pause": {"by": "ann", "reason": "look", "seconds": 60},
    "compact": {"by": "ann"},
    "revoke": {"by": "ann", "remembered": "1"},
    "wake": {"event": "deploy.finished", "id": "7"},
}
"""Payloads of interventions that come as a signal and as an update."""


def waiting() -> Thread:
    """Return a thread with an open request."""
    thread = loaded_thread(agent_spec(), features=FEATURES)
    thread.reply(calls("pay"))
    return thread


@pytest.mark.parametrize("name", sorted({*SIGNALS} & {*UPDATES}))
@pytest.mark.parametrize("payload", [None, "text", [], {"by": 7}, {"unknown": {}}])
def test_a_signal_leads_to_the_events_of_the_update_of_its_name(name: str, payload: Any) -> None:
    """Both lead to the same events, accepted or rejected, for any payload."""
    thread = waiting()
    for sent in (payload, PAYLOADS.get(name, payload)):
        by_signal = on_signal(thread.state, name, sent, at=thread.at)
        assert by_signal == react(thread.state, name, sent, at=thread.at)


def test_a_run_below_the_level_of_a_signal_records_it_as_unknown() -> None:
    """A later release's signal has no effect on a run that an earlier one began."""
    thread = loaded_thread(agent_spec(), features=0)
    for name, level in SIGNALS.items():
        rejected = on_signal(thread.state, name, {"by": "ann"}, at=thread.at).outcome == "unknown_signal"
        assert rejected == (level > 0), name


def test_every_intervention_has_a_signal_or_an_update() -> None:
    """Nobody could reach a row without either."""
    assert {*SIGNALS} | {*UPDATES} == {*INTERVENTIONS}


def test_every_route_of_the_gateway_that_changes_a_run_is_an_update() -> None:
    """Each route names a different row of the table; `cancel` is Temporal's own."""
    acts = [route.act for route in ROUTES]
    assert sorted({*acts} - {"cancel"} - {*UPDATES}) == []
    assert len(acts) == len({*acts})

"""One agent, shared by all of its runs."""

from holdfast.core.base.canonical import canonical
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import AgentLoaded
from tests.support.runs import agent_spec, loaded_thread, through_json


def test_runs_of_one_agent_share_it() -> None:
    """A thousand runs hold the agent once, as the log has it, even if it has floats that are integers."""
    spec = agent_spec(llm_options={"temperature": 1.0, "top_p": 0.5})
    first, second = loaded_thread(through_json(spec)), loaded_thread(through_json(spec))
    assert first.state.spec is second.state.spec
    assert first.state.spec is not None
    assert first.state.spec.hash == spec.hash
    assert repr(first.state.spec.llm_options) == "{'temperature': 1, 'top_p': 0.5}"


def test_an_agent_is_recorded_as_any_value() -> None:
    """The agent's JSON is made once and equals that of its fields; JSON with defaults has all fields."""
    spec = agent_spec(llm_options={"temperature": 1.0})
    event = AgentLoaded(spec=spec, spec_hash=spec.hash, workspace="/w")
    assert canonical(event_json(event)["spec"]) == canonical(spec.model_dump(mode="json", exclude_defaults=True))
    assert event.model_dump(mode="json")["spec"] == spec.model_dump(mode="json")

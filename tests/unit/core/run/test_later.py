"""A policy lets a call start in some hours only: the run sleeps until they begin, and nobody can start it earlier."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.activities.time_zones import zone_offsets
from holdfast.cli.screens.thread_words import delay_text
from holdfast.core.authority.hours import Hours
from holdfast.core.authority.policy import Policy, allow, ask, deny, later
from holdfast.core.base.models import replace
from holdfast.core.log.events import (
    AgentLoaded,
    ToolCallPostponed,
    ToolCallStarted,
)
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.decide.reactions import on_start
from holdfast.core.run.views.status import run_view, state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.effects import Effect
from tests.support.runs import Thread, agent_spec, loaded_thread, tool_spec
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_dormancy import TOOLS, calling, continue_as_new, result
from tests.unit.core.run.test_repeats import last

# The clock of these tests begins on Friday 2026-01-02 at 03:04:05 UTC.
BERLIN = Hours(begin="08:00", end="18:00", days="mon-fri", zone="Europe/Berlin")
OPENS = datetime(2026, 1, 2, 7, tzinfo=UTC)
DEPLOY = later("deploy_*", until=BERLIN, reason="nobody watches at night")
RULE = "later deploy_* until 08:00-18:00 mon-fri Europe/Berlin"


def at_night(*rules: Any, features: int = 2, zones: Any = ("Europe/Berlin",), **changes: Any) -> Thread:
    """Return a thread whose agent may deploy in the hours of Berlin only."""
    tools = (*TOOLS, tool_spec("look"), tool_spec("deploy_web", Effect.UNSAFE))
    policy = Policy(rules=rules or (DEPLOY, allow()), **changes)
    thread = Thread(agent_spec(tools=tools, policy=policy))
    (call,) = thread.waiting(AgentRequest)
    thread.end(call, LoadedAgent(spec=thread.spec, workspace="/w", features=features, zones=zone_offsets(zones)))
    return thread


def deploying(*rules: Any, **more: Any) -> Thread:
    """Return a thread whose LLM has called `deploy_web` at night."""
    thread = at_night(*rules, **more)
    thread.reply(calling(deploy_web={}))
    return thread


def kinds(thread: Thread) -> list[str]:
    """Return the types of the events since the call was requested."""
    types: list[str] = [event.type for event in thread.log]
    return types[types.index("tool_call_requested") + 1 :]


def checked(thread: Thread) -> None:
    """Check that each event follows from those before, and that a replay leads to the same state."""
    assert fault(thread.log) is None
    thread.check_consistent()


def test_the_run_sleeps_until_the_hours_begin_and_then_makes_the_call() -> None:
    """The call neither fails nor asks: one timer wakes the run at 08:00 in Berlin."""
    thread = deploying()
    assert kinds(thread) == ["verdict_given", "tool_call_postponed"]
    event = last(thread, ToolCallPostponed)
    assert (event.rule, event.reason, event.until) == (RULE, "nobody watches at night", OPENS)
    assert (thread.state.status, thread.running_calls, thread.calling_llm()) == ("dormant", [], False)
    thread.wake()
    assert thread.at >= OPENS
    assert (thread.state.status, thread.running_calls) == ("running", [1])
    thread.finish(1, "deployed")
    assert thread.calling_llm()
    checked(thread)


def test_in_its_hours_a_call_starts_at_once() -> None:
    """The rule is silent then."""
    thread = at_night()
    thread.at = OPENS
    thread.reply(calling(deploy_web={}))
    assert kinds(thread) == ["verdict_given", "tool_call_started"]


def test_other_calls_are_not_held_back() -> None:
    """Calls beside a postponed one start, and the run is dormant when only that one is left."""
    thread = at_night()
    thread.reply(calling(deploy_web={}, look={}))
    assert (thread.running_calls, thread.state.status) == ([2], "running")
    thread.finish(2)
    assert thread.state.status == "dormant"


def test_a_call_can_be_approved_at_night_and_starts_in_the_morning() -> None:
    """People are asked at once; the approval is kept until the hours begin, and used once."""
    thread = deploying(DEPLOY, ask("deploy_*"), allow())
    assert thread.state.status == "waiting_approval"
    thread.signal("approve", {"request": "1", "by": "alice"})
    assert (thread.state.status, thread.running_calls) == ("dormant", [])
    thread.wake()
    assert last(thread, ToolCallStarted).request == "1"
    checked(thread)


def test_a_denied_call_is_denied_at_once() -> None:
    """A call that may never run does not wait for hours."""
    thread = deploying(DEPLOY, deny("deploy_*"), allow())
    assert result(thread).status == "denied"


@pytest.mark.parametrize("verb", ["approve", "retry", "resume", "wake", "lift"])
def test_nobody_can_start_the_call_earlier(verb: str) -> None:
    """No intervention opens the hours."""
    thread = deploying()
    thread.signal(verb, {"request": "1", "by": "alice", "constraint": 1})
    assert thread.running_calls == []
    assert not [event for event in thread.log if isinstance(event, ToolCallStarted)]
    checked(thread)


def test_a_message_ends_the_wait_and_the_call_is_not_made() -> None:
    """The LLM reads what was postponed and the message, instead of being deaf until Monday."""
    thread = deploying()
    thread.signal("say", {"message": "never mind", "by": "alice"})
    ended = result(thread)
    assert ended.status == "cancelled"
    assert ended.text.startswith(f"Not called: it was to start at 2026-01-02T07:00:00Z ({RULE}), and a message has")
    assert thread.calling_llm()
    assert not [event for event in thread.log if isinstance(event, ToolCallStarted)]
    checked(thread)


def test_a_cancelled_run_does_not_wait() -> None:
    """The call ends with the run."""
    thread = deploying()
    thread.cancel()
    assert result(thread).status == "cancelled"


def test_hours_that_begin_during_a_pause_count_when_the_run_resumes() -> None:
    """If they are over by then, the call waits for the next ones."""
    thread = deploying()
    thread.signal("pause", {"by": "alice"})
    thread.at = OPENS + timedelta(hours=11)  # Friday, 19:00 in Berlin
    thread.signal("resume", {"by": "alice"})
    assert thread.running_calls == []
    assert last(thread, ToolCallPostponed).until == datetime(2026, 1, 5, 7, tzinfo=UTC)
    checked(thread)


def test_a_postponed_call_survives_continue_as_new() -> None:
    """The snapshot has the offsets and the time."""
    thread = deploying()
    continue_as_new(thread)
    thread.continue_suggested = False
    assert thread.state.status == "dormant"
    thread.wake()
    assert thread.running_calls == [1]
    thread.check_consistent()


def test_the_policies_above_have_hours_too() -> None:
    """A sub-agent cannot deploy when its parent may not."""
    above = Policy(rules=(DEPLOY, allow()))
    thread = deploying(allow())
    assert thread.running_calls == [1]
    under = replace(thread.state, origin=replace(thread.state.origin, policies=(above,)))
    found = on_start(under, 1, at=thread.at)
    assert isinstance(found, ToolCallPostponed)
    assert found.until == OPENS


def test_a_zone_that_the_run_does_not_know_denies_the_call() -> None:
    """It fails closed, with the reason."""
    thread = deploying(zones=())
    assert result(thread).status == "denied"
    assert "the time zone of these hours is unknown to the run" in result(thread).text
    checked(thread)


def test_a_poll_waits_for_the_hours_of_the_call_that_it_makes() -> None:
    """`check_back` is no way around the hours of a tool."""
    thread = at_night(later("look", until=BERLIN), allow())
    thread.reply(calling(check_back={"tool": "look", "arguments": {}, "condition": {"contains": "x"}}))
    assert last(thread, ToolCallPostponed).until == OPENS
    assert not thread.state.dormancy.waits


def test_a_forged_opening_is_found() -> None:
    """An audit computes the hours again, and finds a call that started outside of them or was postponed otherwise."""
    thread = deploying()
    thread.wake()
    thread.finish(1)
    log = thread.log
    at = next(n for n, event in enumerate(log) if isinstance(event, ToolCallPostponed))
    earlier = log[at].model_copy(update={"until": OPENS - timedelta(hours=1)})
    assert fault([*log[:at], earlier, *log[at + 1 :]]) is not None
    started = [event for event in log if not isinstance(event, ToolCallPostponed)]
    early = [e.model_copy(update={"at": log[at].at}) if isinstance(e, ToolCallStarted) else e for e in started]
    assert fault(early) is not None


def test_people_see_until_when_the_call_waits() -> None:
    """`show`, the Web UI and the status name the call, the time and the rule."""
    thread = deploying()
    assert "waits until 2026-01-02 07:00:00 UTC: the policy lets it start then" in current_details(thread.state)
    (delayed,) = state_view(thread.state)["delayed"]
    assert delay_text(delayed, thread.at).endswith(f"({RULE})")
    assert "to call deploy_web" in str(run_view(thread.state))


def test_a_run_without_hours_records_no_zones() -> None:
    """Its log is the same as before."""
    thread = loaded_thread(agent_spec(), features=2)
    (loaded,) = [event for event in thread.log if isinstance(event, AgentLoaded)]
    assert loaded.zones == ()
    assert "zones" not in loaded.model_dump_json(exclude_defaults=True)

"""An approval holds for the world that the approvers saw: a month-old one does not apply to a changed world."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, ask, tool
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.policy import Approver, Terms
from holdfast.core.log.events import (
    AgentEvent,
    ApprovalRequested,
    BaselineRecorded,
    DecisionReceived,
    LLMReplied,
    StateVerified,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.effects import Effect
from holdfast.testing import call, say, steps
from tests.support.plays import SEEDS, play
from tests.support.rig import StartRig, check_thread, events_of, eventually, skip
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec

HOUR, MONTH = 3_600, 30 * 86_400
TOOLS = (
    tool_spec("look"),
    tool_spec("price"),
    tool_spec("stock"),
    tool_spec("pay", Effect.UNSAFE, undoable=True),
    tool_spec("wipe", Effect.UNSAFE),
)


def clerk(*verify: str, **more: Any) -> AgentSpec:
    """Return an agent whose payments need approval, and that verifies with these tools."""
    return agent_spec(tools=TOOLS, verify=verify or ("price",), limits=Limits(stale_after=HOUR), **more)


def asked(spec: AgentSpec | None = None, *found: str) -> Thread:
    """Return a thread that asks about a payment, and has recorded its baseline."""
    thread = loaded_thread(spec or clerk())
    thread.reply(calls("pay"))
    thread.finish_verification(*(found or ("5",)))
    return thread


def requests(thread: Thread) -> list[ApprovalRequest]:
    """Return all requests, oldest first."""
    return [event.request for event in thread.log if isinstance(event, ApprovalRequested)]


def test_a_month_old_approval_does_not_run_on_a_changed_world() -> None:
    """The call asks again, the request names the change, and the earlier approval does not count."""
    thread = asked()
    thread.advance(seconds=MONTH)
    assert thread.decide("1") == "accepted"
    thread.finish_verification("9")
    assert thread.running_calls == []
    assert thread.state.status == "waiting_approval"
    (request,) = thread.state.authority.requests
    assert (request.id, request.arguments, request.asked_at) == ("2", "{}", thread.at)
    assert request.why == "the world has changed while request 1 was decided on: price was '5', and is '9'"
    assert thread.decide("1") == "duplicate"
    assert "approve by alice, then asked anew as request 2" in str(thread.log[-1])
    assert thread.running_calls == []
    assert thread.decide("2") == "accepted"
    assert thread.running_calls == [1]
    (start,) = [event for event in thread.log if isinstance(event, ToolCallStarted)]
    assert start.request == "2"
    thread.finish(1)
    thread.check_consistent()


def test_an_unchanged_world_lets_an_old_approval_run() -> None:
    """An approval of any age lets the call start if the tools find the same; the LLM is notified of the check."""
    thread = asked()
    thread.advance(seconds=MONTH)
    thread.decide("1")
    thread.finish_verification("5")
    assert thread.running_calls == [1]
    thread.finish(1)
    assert "## price (ok)\n\n5" in thread.messages()[-1]["content"]


def test_the_baseline_is_not_shown_to_the_llm() -> None:
    """The baseline changes no byte of the transcript, and taints nothing."""
    plain, looked = loaded_thread(clerk(), by="dana"), asked()
    plain.reply(calls("pay"))
    assert plain.messages() == looked.messages()
    assert looked.state.context.trust == plain.state.context.trust


def test_a_failed_verification_counts_as_a_change() -> None:
    """If a verify tool failed, before or after, it is unknown whether the world is the same."""
    for before, after in (("ok", "failed"), ("failed", "ok"), ("failed", "failed")):
        thread = loaded_thread(clerk())
        thread.reply(calls("pay"))
        for number, status in enumerate((before, after)):
            (look,) = thread.waiting(ToolRequest)
            thread.end(look, ToolOutcome.model_validate({"status": status, "content": "5"}))
            if not number:
                thread.advance(seconds=MONTH)
                thread.decide("1")
        assert thread.running_calls == []
        assert "price could not be looked up" in thread.state.authority.requests[0].why


def test_a_late_verification_is_no_baseline() -> None:
    """After workers were down for a month, their findings do not support an earlier approval."""
    thread = loaded_thread(clerk())
    thread.reply(calls("pay"))
    thread.advance(seconds=MONTH)
    thread.decide("1")
    thread.finish_verification("9")
    assert thread.running_calls == []
    assert "nothing was looked up when people were asked" in thread.state.authority.requests[0].why


def test_every_call_that_needs_approval_asks_again() -> None:
    """This includes requests with too few answers, which lapse. Calls that the policy allows run."""
    policy = Policy(
        rules=(ask("pay", terms=Terms(quorum=2)), ask("wipe"), allow()),
        approvers=(Approver(name="alice"), Approver(name="bob")),
    )
    thread = loaded_thread(clerk("price", "stock", policy=policy))
    thread.reply(calls("pay", "wipe", "look"))
    assert thread.running_calls == [3], "what the policy allows has started, while the agent looks"
    thread.finish_verification("5", "full")
    thread.advance(seconds=MONTH)
    assert thread.decide("1") == "waiting_for_quorum"
    thread.decide("2")
    thread.finish_verification("5", "empty")
    assert thread.running_calls == [3]
    assert [request.id for request in thread.state.authority.requests] == ["3", "4"]
    assert [request.votes for request in thread.state.authority.requests] == [(), ()]
    for request, before in zip(thread.state.authority.requests, ("1 was open", "2 was decided on"), strict=True):
        assert request.why == f"the world has changed while request {before}: stock was 'full', and is 'empty'"
    assert thread.decide("1", by="bob") == "duplicate"
    thread.decide("4")
    assert thread.running_calls == [3, 2]


def test_edited_arguments_ask_again_as_edited() -> None:
    """An approval with edited arguments lapses like any other; the new request has those arguments."""
    thread = asked()
    thread.advance(seconds=MONTH)
    thread.decide("1", arguments={"cents": 1})
    thread.finish_verification("9")
    (request,) = thread.state.authority.requests
    assert (request.arguments, request.edited_by) == ('{"cents":1}', "alice")
    thread.decide("2")
    (order,) = [getattr(call, "request", None) for call in thread.waiting(ToolRequest)]
    assert isinstance(order, ToolRequest)
    assert order.call.arguments == '{"cents":1}'
    thread.finish(1)
    thread.check_consistent()


def test_a_rule_remembered_by_an_approval_lapses_with_it() -> None:
    """The call that made the rule asks again, and makes it again; calls that it then allows are not compared."""
    thread = asked()
    thread.advance(seconds=MONTH)
    thread.decide("1", remember=True)
    assert [rule.rule for rule in thread.state.authority.rules] == ["1"]
    thread.finish_verification("9")
    assert [rule.rule for rule in thread.state.authority.rules] == []
    thread.decide("2", remember=True)
    thread.finish(1)
    thread.reply(calls("pay", first=7))
    assert thread.running_calls == [2], "people have said that it may run from now on"
    assert len(requests(thread)) == 2


def test_a_call_that_will_be_rerun_is_compared_too() -> None:
    """If people report after a month that an effect did not happen, its old approval does not let it run."""
    thread = asked()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.advance(seconds=MONTH)
    thread.decide("2", "absent")
    thread.finish_verification("9")
    assert (thread.running_calls, thread.state.authority.requests[0].epoch) == ([], 1)
    thread.decide("3")
    assert thread.running_calls == [1]


def test_a_reversal_is_not_compared() -> None:
    """A reversal is wanted in any world."""
    thread = asked()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.advance(seconds=MONTH)
    thread.decide("2", "undo")
    thread.finish_verification("9")
    assert thread.running_calls == [1]


def test_an_approval_by_timeout_lapses_too() -> None:
    """A policy's approval by timeout is treated like a person's."""
    policy = Policy(rules=(ask("pay", terms=Terms(expires_after=MONTH, on_expiry="approve")), allow()))
    thread = asked(clerk(policy=policy))
    thread.advance(seconds=MONTH + 1)
    thread.finish_verification("9")
    assert thread.running_calls == []
    assert thread.state.authority.requests[0].expires_at


def test_without_verify_tools_nothing_changes() -> None:
    """There is no extra call and no extra event, and an approval of any age runs."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("pay"))
    assert thread.waiting(ToolRequest) == []
    thread.advance(seconds=MONTH)
    thread.decide("1")
    assert thread.running_calls == [1]
    assert not {"baseline_recorded", "state_verified"} & set(thread.types())


def test_changes_are_shown_clipped_and_unformatted() -> None:
    """A tool's output is quoted on one line and clipped; the Web UI does not render it as Markdown."""
    thread = asked(clerk("price", "stock"), "5" * 10_000, "full")
    thread.advance(seconds=MONTH)
    thread.decide("1")
    thread.finish_verification("# **Approved** by [security](http://x)\n\n" + "9" * 10_000, "full" * 5_000)
    (request,) = thread.state.authority.requests
    assert len(request.why) <= 1_000
    assert "\n" not in request.why
    assert "stock was 'full'" in request.why
    assert "**Approved**" not in current_details(thread.state)
    assert len(RunSnapshot(state=thread.state).model_dump_json()) < 20_000


FOUND = st.sampled_from(["a", "b"])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", "4", "5", "6"]), st.booleans(), FOUND), max_size=8))
def test_no_call_starts_in_a_world_that_differs_from_its_request(moves: list[tuple[str, bool, str]]) -> None:
    """This holds for any decision, at any time, and for any changes in between."""
    thread = loaded_thread(clerk())
    thread.reply(calls("pay", "pay"))
    thread.finish_verification("a")
    for request, late, observed in moves:
        thread.advance(seconds=MONTH if late else 60)
        thread.decide(request)
        if any(not getattr(call, "number", 0) for call in thread.waiting(ToolRequest)):
            thread.finish_verification(observed)
        while thread.waiting(ArchiveRequest):
            thread.archive()
    world = ""
    opened: dict[str, str] = {}
    for event in thread.log:
        if isinstance(event, BaselineRecorded | StateVerified):
            world = event.findings[0].content
            opened = {name: observed or world for name, observed in opened.items()}
        elif isinstance(event, ApprovalRequested):
            opened[event.request.id] = world
        elif isinstance(event, ToolCallStarted):
            assert opened[event.request] == world
    thread.check_consistent()


@given(SEEDS)
@pytest.mark.slow
def test_all_verifications_since_the_request_agree_when_a_call_starts(seed: int) -> None:
    """In whole runs, all verifications agree from the opening of a call's approving request until the call starts."""
    looks: list[AgentEvent] = []
    opened: dict[str, int] = {}
    answered: dict[str, int] = {}
    for event in play(seed).thread.log:
        match event:
            case LLMReplied():
                looks = []
            case BaselineRecorded() | StateVerified():
                looks.append(event)
            case ApprovalRequested(request=request):
                opened[request.id] = event.position
            case DecisionReceived(outcome="accepted" | "waiting_for_quorum"):
                answered.setdefault(event.request, event.position)
            case ToolCallStarted(request=name, undo=False) if name in opened:
                for before, after in pairwise([None, *looks]):
                    if not isinstance(after, StateVerified) or after.position < opened[name]:
                        continue
                    if before is None:
                        assert after.position < answered.get(name, 10**9), "nobody had answered yet"
                        continue
                    assert isinstance(before, BaselineRecorded | StateVerified)
                    assert [(one.status, one.content) for one in before.findings] == [
                        (one.status, one.content) for one in after.findings
                    ]
                    assert all(one.status == "ok" for one in after.findings)
            case _:
                pass


@tool(effect="read")
def price(context: ToolContext) -> str:
    """Read the price from a file that anyone may change."""
    return (context.workspace / "price").read_text()


@tool(effect="unsafe")
def buy(context: ToolContext) -> str:
    """Buy: append a line to a file."""
    with (context.workspace / "bought").open("a") as bought:
        bought.write(price.function(context) + "\n")
    return "bought"


async def test_an_approval_of_another_price_buys_nothing(rig: StartRig) -> None:
    """Live, the price changes while the request waits; the late approval lapses, and another one is needed."""
    agent = Agent(
        name="buyer",
        instructions="Buy.",
        policy=Policy(rules=(ask("buy"), allow())),
        verify=("price",),
        tools=[price, buy],
    )
    async with rig(Catalog(agents=[agent]), steps([call("buy"), say("done")])) as r:
        (r.workspace / "price").write_text("5")
        run: WorkflowHandle[Any, Any] = await r.start()

        async def looked() -> bool:
            return bool((await run.query("state"))["pending"]) and any(
                event.type in ("baseline_recorded", "state_verified") for event in await events_of(run)
            )

        await eventually(looked, bool)
        (r.workspace / "price").write_text("500")
        await skip(r.client, run, days=2)
        await run.signal("approve", {"request": "1", "by": "alice"})
        state = await eventually(
            lambda: run.query("state"), lambda state: [each["request"] for each in state["pending"]] == ["2"]
        )
        assert "price was '5', and is '500'" in state["pending"][0]["why"]
        assert not (r.workspace / "bought").exists()
        await run.signal("approve", {"request": "1", "by": "alice"})
        await run.signal("approve", {"request": "2", "by": "alice"})
        assert (await run.result())["result"] == "done"
        assert (r.workspace / "bought").read_text() == "500\n"
        events = await check_thread(r.client, run)
        started = [event.request for event in events if isinstance(event, ToolCallStarted)]
        assert started == ["2"]
        assert [event.status for event in events if isinstance(event, ToolCallFinished)] == ["ok"]

"""LLM calls whose attempts vanish: however the call ends, the account covers everything that the LLM received."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import ResetActivityRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from holdfast import (
    Agent,
    Budget,
    CallRefused,
    Catalog,
    Limits,
    LLMCall,
    LLMResult,
    Middleware,
    Policy,
    ProceedLLM,
    allow,
    tool,
)
from holdfast.audit.judge.audit import Audit
from holdfast.core.log.events import (
    AgentEvent,
    BudgetReserved,
    BudgetSpent,
    ContextCompacted,
    LLMCallLost,
    LLMReplied,
    RunContinued,
    SubagentEnded,
    SubagentStarted,
)
from holdfast.core.loop.state import LoopLimits
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.testing import Conversation, Reply, call, fail, hang, say
from holdfast.workspace.file_tools import workspace_tools
from holdfast.workspace.memory.tools import memory_tools
from tests.support.rig import Rig, StartRig, check_thread, events_of, eventually, lose_attempt, status_of

AT_ONCE, HOUR = timedelta(milliseconds=1), timedelta(hours=1)


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


CLERK = Agent(
    name="clerk",
    instructions="Work.",
    budget=Budget(tokens=100_000),
    policy=Policy(rules=(allow(),)),
    llm_options={"max_completion_tokens": 200},
    limits=Limits(tool_result_chars=400),
    tools=[look],
)
CATALOG = Catalog(agents=[CLERK])


class LostAttempts:
    """Attempts that wait for a reply until their worker has died.

    Args:
        rig: Its LLM hangs when an attempt is to be lost.
    """

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._last = ("", "")

    @property
    def received(self) -> int:
        """Return the tokens of all requests that the LLM has received."""
        return sum(len(request.body) // 4 for request in self._rig.llm.requests)

    async def sent(self, run: WorkflowHandle[Any, Any], number: int) -> tuple[str, str]:
        """Wait until the LLM has received this many requests; return the Temporal run and the activity that sent the
        last one.
        """

        async def requests() -> int:
            return len(self._rig.llm.requests)

        async def under_way() -> list[tuple[str, str]]:
            found = (await run.describe()).raw_description
            return [
                (found.workflow_execution_info.execution.run_id, each.activity_id)
                for each in found.pending_activities
                if each.activity_type.name == "call_llm"
                and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            ]

        await eventually(requests, lambda count: count >= number)
        return tuple((await eventually(under_way, lambda found: found and found != [self._last]))[0])

    async def lose(self, run: WorkflowHandle[Any, Any], number: int, *, delay: timedelta = AT_ONCE) -> None:
        """End the attempt that has sent this request, as a worker does that finds another one killed.

        Args:
            run: The run.
            number: The number of the request.
            delay: The time before Temporal's next attempt.
        """
        self._last = await self.sent(run, number)
        await lose_attempt(self._rig.client, run, self._last[1], delay=delay)


def tokens_charged(thread: str, events: Sequence[AgentEvent]) -> int:
    """Return the tokens of a finished log's account, after checking that the log passes its audit."""
    audit, state = Audit(thread), RunState(thread=thread)
    audit.take(events)
    assert audit.fault is None
    for event in events:
        state = evolve(state, event)
    return state.account.used("tokens")


def of_kind(events: Sequence[AgentEvent], kind: Any) -> list[Any]:
    """Return the events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def replies_in_turn(*replies: Reply) -> Callable[[Conversation], Reply]:
    """Return a script that gives these replies in turn, for any requests."""
    left = list(replies)
    return lambda _: left.pop(0)


async def test_attempts_before_a_reply_are_charged_with_their_requests(rig: StartRig, client: Client) -> None:
    """Each lost attempt ends its call and is charged to the token, and the step has one reply."""
    async with rig(CATALOG, replies_in_turn(hang(), hang(), call("look", at="a"), hang(), say("done"))) as r:
        losing, run = LostAttempts(r), await r.start()
        for number in (1, 2, 4):
            await losing.lose(run, number)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        replies = of_kind(events, LLMReplied)
        lost = of_kind(events, LLMCallLost)
        assert [event.attempts for event in lost] == [1, 1, 1]
        replied = sum(event.usage.prompt_tokens + event.usage.completion_tokens for event in replies)
        spent = tokens_charged(run.id, events)
        assert spent == replied + sum(event.request_tokens for event in lost)
        assert spent >= losing.received


@pytest.mark.extended
async def test_attempts_before_a_rejection_are_charged(rig: StartRig, client: Client) -> None:
    """The rejection itself costs nothing."""
    async with rig(CATALOG, replies_in_turn(hang(), hang(), fail(401, "wrong key"), say("done"))) as r:
        losing, run = LostAttempts(r), await r.start()
        await losing.lose(run, 1)
        await losing.lose(run, 2)
        await status_of(run, "blocked")
        rejected_tokens = len(r.llm.requests[-1].body) // 4
        before = [event for event in await events_of(run) if isinstance(event, LLMCallLost)]
        (limit,) = (await run.query("state"))["budget"]["limits"]
        assert int(limit["spent"]) == sum(event.request_tokens for event in before) >= losing.received - rejected_tokens
        await run.signal("retry", {"by": "alice"})
        await run.result()
        tokens_charged(run.id, await check_thread(client, run))


@pytest.mark.parametrize(
    ("lost", "between"),
    [(0, False), pytest.param(2, False, marks=pytest.mark.extended), pytest.param(1, True, marks=pytest.mark.extended)],
    ids=["first attempt", "in flight", "between attempts"],
)
async def test_a_cancelled_run_has_paid_for_every_attempt(
    rig: StartRig, client: Client, lost: int, between: bool
) -> None:
    """This holds for a cancellation during an attempt, and while Temporal waits before the next one."""
    async with rig(CATALOG, lambda _: hang()) as r:
        losing, run = LostAttempts(r), await r.start()
        for number in range(1, lost + 1):
            await losing.lose(run, number)
        if between:
            await losing.lose(run, lost + 1, delay=HOUR)
        else:
            await losing.sent(run, lost + 1)
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        events = await check_thread(client, run)
        assert len(r.llm.requests) == lost + 1
        assert tokens_charged(run.id, events) >= losing.received
        assert len(of_kind(events, LLMCallLost)) == lost


@pytest.mark.extended
async def test_a_run_that_is_cancelled_before_its_first_attempt_counts_what_it_reserved(
    rig: StartRig, client: Client
) -> None:
    """It is then unknown whether the attempt has sent anything."""
    async with rig(CATALOG, replies_in_turn(call("look", at="a"), hang())) as r:
        losing, run = LostAttempts(r), await r.start()
        await losing.sent(run, 2)
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        events = await check_thread(client, run)
        reserved, replied = of_kind(events, BudgetReserved)[-1], of_kind(events, LLMReplied)[0].usage
        spent = tokens_charged(run.id, events)
        assert spent == reserved.tokens + replied.prompt_tokens + replied.completion_tokens >= losing.received


@pytest.mark.extended
async def test_an_interrupted_call_has_paid_for_every_attempt(rig: StartRig, client: Client) -> None:
    """The message abandons the call; the next call is another one."""
    async with rig(CATALOG, replies_in_turn(hang(), hang(), hang(), say("done"))) as r:
        losing, run = LostAttempts(r), await r.start()
        await losing.lose(run, 1)
        await losing.lose(run, 2)
        await losing.sent(run, 3)
        await run.signal("say", {"message": "stop", "by": "alice", "when_busy": "interrupt"})
        assert (await run.result())["result"] == "done"
        assert tokens_charged(run.id, await check_thread(client, run)) >= losing.received


@pytest.mark.extended
async def test_a_compaction_is_made_again_and_charged(rig: StartRig, client: Client) -> None:
    """Its lost attempts count like those of a step, and the summary is requested again."""
    async with rig(CATALOG, replies_in_turn(say("hello"), hang(), hang(), say("a summary"), say("done"))) as r:
        losing, run = LostAttempts(r), await r.start(idle_limit=3_600.0)
        await status_of(run, "waiting_message")
        await run.signal("compact", {"by": "alice"})
        await losing.lose(run, 2)
        await losing.lose(run, 3)
        await eventually(lambda: events_of(run), lambda events: bool(of_kind(events, ContextCompacted)))
        await run.signal("say", {"message": "go on", "by": "alice"})
        await eventually(lambda: events_of(run), lambda events: len(of_kind(events, LLMReplied)) == 2)
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        events = await check_thread(client, run)
        assert len(of_kind(events, LLMCallLost)) == 2
        assert tokens_charged(run.id, events) >= losing.received


@pytest.mark.extended
async def test_a_run_that_continues_as_new_between_attempts_keeps_its_account(rig: StartRig, client: Client) -> None:
    """A loss before continue-as-new counts as spent after it."""
    agent = CLERK.model_copy(update={"limits": Limits(tool_result_chars=400, history_events=20)})
    script = replies_in_turn(hang(), hang(), call("look", at="a"), hang(), call("look", at="b"), hang(), say("done"))
    async with rig(Catalog(agents=[agent]), script) as r:
        losing, run = LostAttempts(r), await r.start()
        for number in (1, 2, 4, 6):
            await losing.lose(run, number)
        await run.result()
        events = await check_thread(client, run)
        assert of_kind(events, RunContinued)
        assert len(of_kind(events, LLMCallLost)) == 4
        assert tokens_charged(run.id, events) >= losing.received


@pytest.mark.extended
@pytest.mark.parametrize("end", ["cancel", "terminate"])
async def test_a_sub_agents_attempts_are_in_its_parents_account(rig: StartRig, client: Client, end: str) -> None:
    """The result of a cancelled or terminated sub-agent includes its possible cost."""
    boss = Agent(**{**vars(CLERK), "name": "boss", "subagents": ("clerk",)})
    catalog = Catalog(agents=[boss, CLERK.model_copy(update={"budget": None})])
    script = replies_in_turn(call("run_agent", agent="clerk", task="work"), hang(), hang(), hang(), say("done"))
    async with rig(catalog, script) as r:
        losing, run = LostAttempts(r), await r.start(agent="boss")
        begun = await eventually(lambda: events_of(run), lambda events: bool(of_kind(events, SubagentStarted)))
        subagent = client.get_workflow_handle(of_kind(begun, SubagentStarted)[0].thread)
        await losing.lose(subagent, 2)
        await losing.lose(subagent, 3)
        await losing.sent(subagent, 4)
        below = losing.received - len(r.llm.requests[0].body) // 4
        await (subagent.cancel() if end == "cancel" else subagent.terminate())
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        (ended,) = of_kind(events, SubagentEnded)
        assert ended.cost
        assert ended.cost.tokens >= below
        assert tokens_charged(run.id, events) >= losing.received


@pytest.mark.extended
async def test_an_iterations_attempts_are_in_the_loops_account(rig: StartRig) -> None:
    """The loop settles the iteration with them."""
    builder = CLERK.model_copy(update={"budget": None, "tools": (*workspace_tools(confine="never"), *memory_tools())})
    script = replies_in_turn(hang(), call("complete_task", title="one", what="did it"), hang(), say("done"))
    async with rig(Catalog(agents=[builder]), script) as r:
        (r.workspace / "TASKS.md").write_text("- [ ] one\n")
        losing, handle = LostAttempts(r), await r.start_loop(limits=LoopLimits(tokens=100_000))

        async def iterations() -> list[Any]:
            return list((await handle.query("state"))["iterations"])

        (iteration,) = await eventually(iterations, bool)
        run = r.client.get_workflow_handle(iteration["thread"])
        await losing.lose(run, 1)
        await losing.lose(run, 3)
        await handle.result()
        (limit,) = (await handle.query("state"))["budget"]["limits"]
        assert int(limit["spent"]) >= losing.received


@pytest.mark.extended
async def test_a_lost_last_call_is_repeated_a_bounded_number_of_times(rig: StartRig, client: Client) -> None:
    """Three of its attempts may be lost; then the budget is exhausted, and no request is sent."""
    agent = CLERK.model_copy(update={"budget": Budget(steps=1)})
    async with rig(Catalog(agents=[agent]), lambda _: hang()) as r:
        losing, run = LostAttempts(r), await r.start()
        for number in (1, 2, 3):
            await losing.lose(run, number)
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "BudgetSpent"
        assert len(r.llm.requests) == 3
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        tokens_charged(run.id, await check_thread(client, run))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("failures", "forgets"),
    [(0, True), (1, False), (2, True)],
    ids=["first attempt", "heartbeat kept", "heartbeat reset"],
)
async def test_an_attempt_at_an_activity_that_is_reset_is_charged(
    rig: StartRig, client: Client, failures: int, forgets: bool
) -> None:
    """Temporal restarts its count of attempts (`temporal activity reset`): the attempt in progress has sent its
    request.
    """
    replies = [*[fail(503, "busy")] * failures, hang(), say("done")]
    async with rig(CATALOG, replies_in_turn(*replies)) as r:
        losing, run = LostAttempts(r), await r.start()
        _, activity = await losing.sent(run, failures + 1)

        async def beats() -> bool:
            (description,) = (await run.describe()).raw_description.pending_activities
            return description.last_heartbeat_time.ToNanoseconds() > description.last_started_time.ToNanoseconds()

        await eventually(beats, bool)
        reset = ResetActivityRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=run.id),
            id=activity,
            reset_heartbeat=forgets,
        )
        await client.workflow_service.reset_activity(reset)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        (lost,) = of_kind(events, LLMCallLost)
        assert lost.attempts == 1
        assert tokens_charged(run.id, events) >= losing.received - failures * lost.request_tokens


def reply_costing(text: str, tokens: int) -> Reply:
    """Return a reply with this many tokens for the request by the provider's count."""
    message = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": tokens, "completion_tokens": 11}
    return Reply(body=json.dumps({**message, "usage": usage}).encode())


class RejectingMiddleware(Middleware):
    """Middleware that rejects each reply that says `secret`, or fails."""

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Read the reply, then reject it."""
        result = await proceed()
        text = result.message.text if result.message else ""
        if "secret" in text:
            raise CallRefused("it says a secret")
        if "bug" in text:
            raise ValueError("a bug of the middleware")
        return result


async def test_a_reply_that_is_not_recorded_is_charged_with_what_it_has_used(rig: StartRig, client: Client) -> None:
    """Middleware has rejected it, or failed: the provider's count is known, and exceeds the request."""
    catalog = Catalog(agents=[CLERK], tools=[look], middleware=[RejectingMiddleware()])
    async with rig(
        catalog, replies_in_turn(*map(reply_costing, ("bug", "secret", "done"), (7_000, 7_001, 7_002)))
    ) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == LLM_REJECTED
        await run.signal("retry", {"by": "alice"})
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        lost = of_kind(events, LLMCallLost)
        assert [event.usage.prompt_tokens for event in lost if event.usage] == [7_000, 7_001]
        assert tokens_charged(run.id, events) == 7_000 + 7_001 + 7_002 + 3 * 11


def _has_lost(count: int, events: Sequence[AgentEvent]) -> bool:
    return len(of_kind(events, LLMCallLost)) == count


async def test_lost_calls_exhaust_the_budget(rig: StartRig, client: Client) -> None:
    """A call beyond the budget is not repeated: the LLM returns its partial result."""
    agent = CLERK.model_copy(update={"budget": Budget(tokens=2_000)})

    def script(conversation: Conversation) -> Reply:
        closing = "The budget of this run has ended" in str(conversation.messages[-1]["content"])
        return say("what I have") if closing else hang()

    async with rig(Catalog(agents=[agent]), script) as r:
        losing, run, number = LostAttempts(r), await r.start("x" * 800), 0
        while not of_kind(await events_of(run), BudgetSpent):
            number += 1
            await losing.lose(run, number)
            await eventually(lambda: events_of(run), partial(_has_lost, number))
        state = await status_of(run, "blocked")
        assert state["result"] == "what I have"
        (limit,) = state["budget"]["limits"]
        assert losing.received <= int(limit["spent"]) <= 2_000
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        tokens_charged(run.id, await check_thread(client, run))

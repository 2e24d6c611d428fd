"""AgentRunWorkflow on a real server, with real activities and a scripted LLM; its log also in the strict sandbox."""

import asyncio
import json
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast import Agent, Catalog, Effect, Limits, Policy, ToolContext, allow, deny, tool
from holdfast.cli.screens.event_lines import event_summary
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.log.event_log import event_json, first_altered
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.temporal.converter import data_converter
from holdfast.core.temporal.history_reader import read_events
from holdfast.testing import (
    Conversation,
    Reply,
    call,
    call_verbatim,
    cut_off,
    fail,
    hang,
    raw,
    say,
    steps,
    together,
)
from holdfast.workflows.agent_run import AgentRunWorkflow
from tests.support.rig import PATIENCE, StartRig, answer_of, check_thread, events_of, eventually, status_of


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{context.key} {amount}\n")
    return f"paid {amount}"


@tool(effect="unsafe")
def wipe() -> str:
    """Never run."""
    raise AssertionError("a denied tool ran")


@tool(effect="read")
def breaks() -> str:
    """Raise an error."""
    raise FileNotFoundError("no such thing")


@tool(effect="read")
def floods() -> str:
    """Return three megabytes."""
    return "x" * 3_000_000


def catalog(**agent: Any) -> Catalog:
    """Return one agent that may look, must ask to pay, and may not wipe."""
    policy = Policy(rules=(deny("wipe", reason="we keep what we have"), allow("look")))
    fields = {"name": "clerk", "instructions": "Work.", "policy": policy, **agent}
    return Catalog(agents=[Agent(**fields, tools=[look, pay, wipe, breaks, floods])])


async def test_a_run_calls_tools_and_returns_the_final_reply(rig: StartRig) -> None:
    """The result follows from the task and the tool calls; the log's chain is valid, and the LLM saw the results in
    call order.
    """
    script = steps([together(call("look", at="a"), call("look", at="b")), call("breaks"), say("fine")])
    async with rig(catalog(), script) as r:
        run = await r.start("look around")
        result = await run.result()
        events = await events_of(run)
        assert (result["result"], result["steps"]) == ("fine", 3)
        assert first_altered(events) is None
        roles = [(m["role"], m.get("content")) for m in r.llm.requests[-1].json()["messages"]]
        assert roles[:2] == [("system", "Work."), ("user", "look around")]
        assert roles[3:5] == [("tool", "it is a"), ("tool", "it is b")]
        assert roles[6] == ("tool", "FileNotFoundError: no such thing")


async def test_each_request_begins_with_the_bytes_of_the_one_before(rig: StartRig) -> None:
    """I3, on the wire: a provider's prompt cache hits everything but the tail."""
    async with rig(catalog(), steps([call("look", at=str(n)) for n in range(4)] + [say("done")])) as r:
        await (await r.start()).result()
        bodies = [request.body for request in r.llm.requests]
        assert len(bodies) == 5
        for earlier, later in pairwise(bodies):
            assert later.startswith(earlier[:-2])


async def test_no_activity_input_carries_the_transcript(rig: StartRig) -> None:
    """I1: every message is in history once; the LLM call's input stays a few hundred bytes at any step."""
    async with rig(catalog(), steps([call("look", at=f"{n:0>500}") for n in range(12)] + [say("done")])) as r:
        run = await r.start()
        await run.result()
        history = await run.fetch_history()
        inputs = [
            len(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
            for event in history.events
            if event.activity_task_scheduled_event_attributes.activity_type.name == "call_llm"
        ]
        assert len(inputs) == 13
        assert max(inputs) < 300


@pytest.mark.parametrize("order", [("1", "2"), pytest.param(("2", "1"), marks=pytest.mark.extended)])
async def test_signals_decide_several_open_requests_in_any_order(rig: StartRig, order: tuple[str, str]) -> None:
    """Two requests are open at once; the signals may arrive in any order, and each effect happens once."""
    script = steps([together(call("pay", amount=1), call("pay", amount=2)), say("done")])
    async with rig(catalog(), script) as r:
        run = await r.start()
        state = await status_of(run, "waiting_approval")
        assert [request["arguments"] for request in state["pending"]] == [{"amount": 1}, {"amount": 2}]
        for request in order:
            await run.signal("approve", {"request": request, "by": "alice", "reason": "ok"})
        await run.result()
        assert sorted(line.split()[1] for line in (r.workspace / "paid").read_text().splitlines()) == ["1", "2"]


async def test_a_denied_request_runs_nothing_and_the_llm_gets_the_reason(rig: StartRig) -> None:
    """`deny` turns the call into a result with name and reason; so does the policy's own denial."""
    async with rig(catalog(), steps([together(call("pay", amount=1), call("wipe")), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await run.signal("deny", {"request": "1", "by": "bob", "reason": "too much"})
        await run.result()
        results = [m["content"] for m in r.llm.requests[-1].json()["messages"] if m["role"] == "tool"]
        assert results == ["Denied by bob: too much", "Denied by policy (deny wipe): we keep what we have"]
        assert not (r.workspace / "paid").exists()


@pytest.mark.parametrize(
    ("signal", "payload", "recorded"),
    [
        ("approve", {"request": "7"}, "decision_received"),
        pytest.param("approve", {"reqest": "1"}, "signal_rejected", marks=pytest.mark.extended),
        pytest.param("approve", [1, 2], "signal_rejected", marks=pytest.mark.extended),
        pytest.param("approve", None, "signal_rejected", marks=pytest.mark.extended),
        pytest.param("aprove", {"request": "1"}, "signal_rejected", marks=pytest.mark.extended),
        pytest.param("retry", {"by": "x"}, "signal_rejected", marks=pytest.mark.extended),
        pytest.param(
            "reconcile", {"request": "1", "decision": "happened"}, "decision_received", marks=pytest.mark.extended
        ),
    ],
)
async def test_invalid_signals_are_recorded_and_change_nothing(
    rig: StartRig, signal: str, payload: Any, recorded: str
) -> None:
    """Unknown requests, malformed payloads and misspelt signals leave an event, and the run keeps waiting."""
    async with rig(catalog(), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        before = await status_of(run, "waiting_approval")
        await run.signal(signal, payload)
        after = await eventually(lambda: run.query("state"), lambda state: state["events"] == before["events"] + 1)
        assert (await events_of(run))[-1].type == recorded
        assert after["pending"] == before["pending"]
        assert not (r.workspace / "paid").exists()


async def test_messages_of_any_shape_do_no_harm(rig: StartRig) -> None:
    """Too many arguments, too few and none are each recorded and answered, and the run continues."""
    async with rig(catalog(), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        for signal in ("deny", "reconcile", "retry", "anything"):
            await run.signal(signal, args=["1", {"by": "x"}, 3])
        assert (await answer_of(run.execute_update("decide")))["outcome"] == "malformed"
        assert (await answer_of(run.execute_update("decide", args=[1, 2])))["outcome"] == "malformed"
        await run.signal("approve", args=[{"request": "1", "by": "alice"}, {"request": "7"}])
        assert (await run.result())["result"] == "done"
        assert read_events((await run.fetch_history()).events) == await events_of(run)


async def test_the_log_is_the_same_on_every_replay(rig: StartRig) -> None:
    """Another worker replays the run to the same events: positions, times, digests. It replays in the sandbox, too."""
    script = steps([together(call("look", at="a"), call("pay", amount=1), call("pay", amount=2)), say("done")])
    async with rig(catalog(), script) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        # A task of one kind is running when a message of the other kind arrives.
        rejected: list[Any] = []
        for _ in range(4):
            update = asyncio.create_task(run.execute_update("no_such_update"))
            await asyncio.gather(*(run.signal("approve", {"request": "9"}) for _ in range(3)))
            rejected += await asyncio.gather(update, return_exceptions=True)
        assert all(isinstance(each, WorkflowUpdateFailedError) for each in rejected)
        await answer_of(run.execute_update("decide", {"decision": "deny", "request": "2", "by": "alice"}))
        before = await run.query("log", 0, result_type=bytes)
    async with rig(catalog(), script, task_queue=r.task_queue) as r:
        patience = timedelta(seconds=PATIENCE)  # for a replay in the sandbox
        assert await run.query("log", 0, result_type=bytes, rpc_timeout=patience) == before
        await run.signal("approve", {"request": "1", "by": "alice"})
        await run.result()
    replayer = Replayer(
        workflows=[AgentRunWorkflow], data_converter=data_converter, workflow_runner=Sandbox(), debug_mode=True
    )
    await replayer.replay_workflow(await run.fetch_history())


class Sandbox(SandboxedWorkflowRunner):
    """Temporal's sandbox, which imports everything for each workflow: here not also to check its definition."""

    def prepare_workflow(self, defn: Any) -> None:
        """Check nothing."""


@pytest.mark.extended
async def test_a_request_id_may_be_sent_as_a_number_or_as_json_text(rig: StartRig) -> None:
    """Input typed in the Web UI is read as intended."""
    async with rig(catalog(), steps([together(call("pay", amount=1), call("pay", amount=2)), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await run.signal("approve", {"request": 1})
        await run.signal("approve", json.dumps({"request": "2", "by": "alice"}))
        assert (await run.result())["result"] == "done"


async def test_the_update_answers_with_the_outcome_and_duplicates_change_nothing(rig: StartRig) -> None:
    """`decide` returns accepted, then duplicate; the effect happens once."""
    async with rig(catalog(), steps([call("pay", amount=1), call("pay", amount=2), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        decision = {"decision": "approve", "request": "1", "by": "alice"}
        first = await answer_of(run.execute_update("decide", decision))
        again = await answer_of(run.execute_update("decide", decision))
        assert (first["outcome"], again["outcome"]) == ("accepted", "duplicate")
        assert (await answer_of(run.execute_update("decide", {"request": "1"})))["outcome"] == "malformed"
        await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 1 and state["step"] == 2)
        stale = {**decision, "request": "2", "digest": "0"}
        assert (await answer_of(run.execute_update("decide", stale)))["outcome"] == "digest_mismatch"
        await answer_of(run.execute_update("decide", {**decision, "request": "2"}))
        await run.result()
        assert len((r.workspace / "paid").read_text().splitlines()) == 2


async def test_replies_that_cannot_be_used_go_back_to_the_llm(rig: StartRig) -> None:
    """For bad JSON, an unknown tool, wrong arguments or a truncated reply, the LLM gets the error, and the run
    continues.
    """
    script = steps(
        [
            together(call_verbatim("look", '{"at": '), call("fly"), call("look", to="x"), call("look", at="ok")),
            cut_off("and then I will"),
            say("finished"),
        ]
    )
    async with rig(catalog(), script) as r:
        assert (await (await r.start()).result())["result"] == "finished"
        messages = r.llm.requests[-1].json()["messages"]
        results = [m["content"] for m in messages if m["role"] == "tool"]
        assert "Invalid JSON" in results[0]
        assert "there is no tool named 'fly'; there are: look, pay" in results[1]
        assert "at: Field required" in results[2]
        assert results[3] == "it is ok"
        assert "cut off" in messages[-1]["content"]


@pytest.mark.extended
async def test_a_reply_without_content_blocks_after_bounded_tries(rig: StartRig) -> None:
    """After an empty message, the LLM gets the error three times, then the run is blocked until `retry`."""
    async with rig(catalog(), lambda _: raw({"choices": [{"message": {"content": None}}]})) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "RepliesRejected"
        r.llm.script = lambda _: say("back again")
        await run.signal("retry", {"by": "carol"})
        assert (await run.result())["result"] == "back again"


@pytest.mark.parametrize("text", ["", pytest.param("It began with", marks=pytest.mark.extended)])
async def test_a_content_filter_is_named(rig: StartRig, text: str) -> None:
    """A filtered reply is never the result, whole or in part: the LLM reads why, then the run blocks, and says so."""
    async with rig(catalog(), lambda _: Reply(text=text, finish_reason="content_filter")) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "ContentFiltered"
        assert "3 replies in a row could not be used; the provider's content filter" in state["blocked"]["message"]
        assert "content filter" in r.llm.requests[-1].json()["messages"][-1]["content"]
        assert len(r.llm.requests) == 3
        await run.signal("retry", {"by": "carol"})
        await eventually(lambda: events_of(run), lambda events: [e.type for e in events].count("run_blocked") == 2)
        assert len(r.llm.requests) == 6, "a person's retry allows as many tries again"
        r.llm.script = lambda _: say("in other words")
        await run.signal("retry", {"by": "carol"})
        assert (await run.result())["result"] == "in other words"
        await check_thread(r.client, run)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "invalid_api_key"),
        pytest.param(404, "model_not_found", marks=pytest.mark.extended),
        pytest.param(400, "bad", marks=pytest.mark.extended),
    ],
)
async def test_an_error_that_needs_a_person_blocks_the_run(rig: StartRig, status: int, code: str) -> None:
    """A wrong key or model blocks the run with the provider's error, after one try; `retry` resumes it."""
    async with rig(catalog(), lambda _: fail(status, "you shall not pass", code=code)) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"] == {"cause": "LLMRejected", "message": f"{status}: you shall not pass"}
        assert len(r.llm.requests) == 1
        r.llm.script = lambda _: say("in")
        await run.signal("retry", {"by": "carol"})
        assert (await run.result())["result"] == "in"


async def test_transient_errors_are_retried_by_temporal(rig: StartRig) -> None:
    """429 with Retry-After, 500 and a closed connection are retried by Temporal, and the event has the attempt."""
    outages = [
        fail(429, "slow down", headers={"Retry-After": "0.05"}),
        fail(503, "busy", headers={"retry-after-ms": "50"}),
    ]

    def script(_: Conversation) -> Reply:
        return outages.pop(0) if outages else say("at last")

    async with rig(catalog(), script) as r:
        run = await r.start()
        await run.result()
        replied = [event for event in await events_of(run) if event.type == "llm_replied"]
        assert [event.attempt for event in replied] == [3]
        (outage,) = [event.outage for event in replied]
        assert outage
        assert (outage.failed, [(each.cause, each.message) for each in outage.last]) == (
            2,
            [("RateLimitError", "429: slow down"), ("InternalServerError", "503: busy")],
        )
        assert outage.began <= replied[0].at
        line = event_summary(event_json(replied[0]))
        assert re.search(r", attempt 3\), after 2 failed attempts in \d+ s: InternalServerError: 503: busy$", line)


@pytest.mark.extended
async def test_a_blocked_run_shows_the_llm_failures_before_it(rig: StartRig) -> None:
    """Earlier failures are in the event with the error, and `show` and the Web UI show them."""
    outages = [fail(503, "busy", headers={"retry-after-ms": "50"})]

    def script(_: Conversation) -> Reply:
        return outages.pop(0) if outages else fail(401, "wrong key")

    async with rig(catalog(), script) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert re.fullmatch(
            r"after 1 failed attempt in \d+ s: InternalServerError: 503: busy", state["blocked"]["after"]
        )
        (blocked,) = [event for event in await check_thread(r.client, run) if event.type == "run_blocked"]
        assert blocked.outage
        assert blocked.outage.last[0].message == "503: busy"
        outages.append(fail(503, "busy again", headers={"retry-after-ms": "50"}))
        r.llm.script = lambda _: outages.pop() if outages else say("in")
        await run.signal("retry", {"by": "carol"})
        await run.result()
        replied = [event for event in await events_of(run) if event.type == "llm_replied"]
        assert [each.message for event in replied if event.outage for each in event.outage.last] == ["503: busy again"]


@pytest.mark.extended
async def test_a_long_reply_in_progress_is_cancelled_with_the_run(rig: StartRig) -> None:
    """Cancelling reaches the HTTP request: the connection is closed, and the run ends as cancelled."""
    async with rig(catalog(), lambda _: hang()) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, len(r.llm.requests)), lambda count: count == 1)
        await run.cancel()
        with pytest.raises(WorkflowFailureError) as failure:
            await run.result()
        assert isinstance(failure.value.cause, CancelledError)
        assert (await run.query("state"))["status"] == "cancelled"


@pytest.mark.extended
async def test_cancelling_a_run_that_waits_ends_its_requests(rig: StartRig) -> None:
    """A cancelled run has no open requests, and a late decision is too late."""
    async with rig(catalog(), steps([call("pay", amount=1)])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await run.cancel(reason="withdrawn")
        state = await status_of(run, "cancelled")
        assert (state["pending"], state["result"]) == ([], "cancelled: withdrawn")
        await check_thread(r.client, run)
        assert [event.type for event in await events_of(run)][-2:] == ["tool_call_finished", "run_finished"]


@pytest.mark.parametrize(("kind", "status"), [("read", "cancelled"), ("unsafe", "unknown")])
async def test_cancelling_stops_a_tool_and_records_the_outcome_of_its_effect(
    rig: StartRig, kind: str, status: str
) -> None:
    """A read is cancelled; the outcome of an effect in progress is recorded as unknown."""

    @tool(effect=Effect(kind))
    async def stay(context: ToolContext) -> str:
        """Never return."""
        (context.workspace / "inside").touch()
        await asyncio.sleep(3_600)
        return "never"

    offer = Catalog(agents=[Agent(name="clerk", instructions="", policy=Policy(rules=(allow(),)), tools=[stay])])
    async with rig(offer, steps([call("stay"), say("done")])) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, (r.workspace / "inside").exists()), bool)
        await run.cancel()
        await status_of(run, "cancelled")
        finished = [event for event in await events_of(run) if event.type == "tool_call_finished"]
        assert [event.status for event in finished] == [status]


@pytest.mark.extended
async def test_a_flood_of_output_is_clipped_on_entry(rig: StartRig) -> None:
    """Three megabytes of tool output enter the transcript as head and tail, with the size of the omitted part."""
    async with rig(catalog(), steps([call("floods"), say("done")])) as r:
        run = await r.start()
        await run.result()
        content = r.llm.requests[-1].json()["messages"][-1]["content"]
        assert len(content) < 8_200
        assert "2,992,000 of 3,000,000 characters left out" in content


@tool(effect="read")
def photograph(kilobytes: int) -> list[str | ImageBlock]:
    """Take a picture."""
    return ["a picture:", ImageBlock(data="AAAA" * 256 * kilobytes, media_type="image/png")]


@pytest.mark.extended
async def test_a_result_may_have_an_image(rig: StartRig) -> None:
    """The log has the image as a block, an adapter without a form for it says so; a large one becomes an artifact."""
    offer = Catalog(agents=[Agent(name="clerk", instructions="", policy=Policy(rules=(allow(),)), tools=[photograph])])
    async with rig(
        offer, steps([call("photograph", kilobytes=1), call("photograph", kilobytes=900), say("done")])
    ) as r:
        run = await r.start()
        await run.result()
        events = await check_thread(r.client, run)
        small, large = (event for event in events if isinstance(event, ToolCallFinished))
        picture = ImageBlock(data="AAAA" * 256, media_type="image/png")
        assert small.content == (TextBlock(text="a picture:"), picture)
        assert re.fullmatch(r"a picture:\[image of 691,200 bytes left out: it is the artifact sha256:\w+\]", large.text)
        shown = [message["content"] for message in r.llm.requests[-1].json()["messages"] if message["role"] == "tool"]
        assert shown == ["a picture:[image: it cannot be shown here]", large.text]
        assert [event_summary(event_json(event)) for event in (small, large)]


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        ({"agent": "nobody"}, "AgentNotFound", "no agent named 'nobody'; this worker's catalog has: clerk"),
        pytest.param(
            {"workspace": "/no/such/folder"},
            "WorkspaceNotFound",
            "is not a folder on this worker",
            marks=pytest.mark.extended,
        ),
        pytest.param({"task": "  "}, "TaskEmpty", "the task is empty", marks=pytest.mark.extended),
        pytest.param({"task": "x" * 200_001}, "TaskTooLong", "put it into a file", marks=pytest.mark.extended),
    ],
)
async def test_a_run_that_cannot_begin_fails_with_a_reason(
    rig: StartRig, run: dict[str, str], kind: str, words: str
) -> None:
    """Without such an agent, workspace or task, the run fails at once with a typed error that gives the remedy."""
    async with rig(catalog(), steps([say("hello")])) as r:
        handle = await r.start(**run)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert isinstance(failure.value.cause, ApplicationError)
        assert failure.value.cause.type == kind
        assert words in str(failure.value.cause)


@pytest.mark.extended
async def test_a_thread_without_a_workspace_gets_one_of_its_own(rig: StartRig, tmp_path: Path) -> None:
    """The folder is named after the thread and cannot be elsewhere."""
    async with rig(catalog(), steps([say("hello")])) as r:
        run = await r.start(workspace=None)
        await run.result()
        assert (await run.query("state"))["workspace"] == str(tmp_path / "workspaces" / run.id)


async def test_the_step_limit_blocks_and_retry_grants_more(rig: StartRig) -> None:
    """A run that reaches its limit waits for a person instead of failing."""
    looping = steps([call("look", at="x"), call("look", at="y"), say("done")])
    async with rig(catalog(limits=Limits(max_steps=2)), looping) as r:
        run = await r.start()
        assert (await status_of(run, "blocked"))["blocked"]["cause"] == "StepLimit"
        await run.signal("retry")
        assert (await run.result())["steps"] == 3


async def test_search_attributes_and_details_follow_the_run(rig: StartRig) -> None:
    """The Web UI can filter by agent, status and open requests, and shows the exact signal to send."""
    async with rig(catalog(), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")

        async def attributes() -> dict[str, Any]:
            found = (await run.describe()).typed_search_attributes
            return {pair.key.name: pair.value for pair in found if pair.key.name.startswith("Holdfast")}

        waiting = {
            "HoldfastAgent": "clerk",
            "HoldfastStatus": "waiting_approval",
            "HoldfastPending": 1,
            "HoldfastStep": 1,
        }
        await eventually(attributes, lambda found: found == waiting)
        metadata = await run.query("__temporal_workflow_metadata")
        assert all(signal.description for signal in metadata.definition.signal_definitions)
        assert '"by": "your name",\n "reason": "why",\n "digest": "' in metadata.current_details
        await run.signal("approve", {"request": "1"})
        await run.result()
        ended = {**waiting, "HoldfastStatus": "completed", "HoldfastPending": 0, "HoldfastStep": 2}
        await eventually(attributes, lambda found: found == ended)


@pytest.mark.extended
async def test_several_workers_share_runs(rig: StartRig) -> None:
    """Any worker runs steps and calls of a run; each sends the LLM exactly the workflow's transcript."""
    script = steps([together(*(call("look", at=f"{step}.{n}") for n in range(3))) for step in range(4)] + [say("done")])
    async with rig(catalog(), script) as one, rig(catalog(), script, task_queue=one.task_queue) as other:
        runs = [await one.start(f"run {number}") for number in range(6)]
        assert {(await run.result())["result"] for run in runs} == {"done"}
        assert one.llm.requests, "the first worker had no call"
        assert other.llm.requests, "the second worker had no call"
        sent = [request.body for each in (one, other) for request in each.llm.requests]
        for number in range(6):
            own = sorted((body for body in sent if f'"run {number}"'.encode() in body), key=len)
            assert len(own) == 5
            for earlier, later in pairwise(own):
                assert later.startswith(earlier[:-2])


async def test_an_update_in_flight_when_the_run_ends_is_answered(rig: StartRig) -> None:
    """The run does not close before it has answered a decision."""
    async with rig(catalog(), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        update = await run.start_update(
            "decide",
            {"decision": "approve", "request": "1"},
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        )
        assert (await update.result())["outcome"] == "accepted"
        assert (await run.result())["result"] == "done"

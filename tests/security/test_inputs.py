"""Inputs that anyone who reaches Temporal's port can send: malformed payloads and forged ends of activities."""

import asyncio
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowType
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskFailedByIdRequest,
    StartWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.error_types import START_REFUSED
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW
from holdfast.testing import Conversation, Reply, call, hang, say
from tests.security.test_fleet import failure_of
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of

JSON = b"json/plain"


def payload(data: bytes, encoding: bytes = JSON, **more: bytes) -> Payload:
    """Return a payload as anyone can write it."""
    return Payload(metadata={"encoding": encoding, **more}, data=data)


INPUTS = {
    "no input": [],
    "a number": [payload(b"7")],
    "a list": [payload(b'["go"]')],
    "a text": [payload(b'"go"')],
    "null": [payload(b"null")],
    "nil": [payload(b"", b"binary/null")],
    "two arguments": [payload(b'{"task":"go"}'), payload(b'{"task":"stop"}')],
    "a task of a wrong type": [payload(b'{"task":{"a":1}}')],
    "a field of a wrong type": [payload(b'{"task":"go","idle_limit":"soon"}')],
    "not JSON": [payload(b"{go")],
    "not UTF-8": [payload(b'{"task":"\xff"}')],
    "deep": [payload(b"[" * 100_000)],
    "an unknown encoding": [payload(b"go", b"binary/else")],
    "no encoding": [Payload(data=b"go")],
    "a malformed seal": [payload(b'{"task":"go","workspace":"/"}', seal=b"dev:\xff\x00")],
    "an image that is not base64": [
        payload(b'{"task":[{"type":"image","data":"!!","media_type":"image/png"},{"type":"text","text":"go"}]}')
    ],
    "a huge task": [payload(b'{"task":"' + b"x" * 1_500_000 + b'"}')],
    "a huge number": [payload(b'{"task":"go","orders":1' + b"0" * 5_000 + b"}")],
}


async def begin(client: Client, kind: str, payloads: list[Payload], task_queue: str) -> WorkflowHandle[Any, Any]:
    """Start a workflow with exactly these payloads."""
    name = f"in-{uuid4().hex[:8]}"
    await client.workflow_service.start_workflow_execution(
        StartWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_id=name,
            workflow_type=WorkflowType(name=kind),
            task_queue=TaskQueue(name=task_queue),
            input=Payloads(payloads=payloads) if payloads else None,
            request_id=uuid4().hex,
        )
    )
    return client.get_workflow_handle(name)


@tool(effect="read")
def look() -> str:
    """Look."""
    return "fine"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[look])])


@pytest.mark.extended
@pytest.mark.parametrize("kind", [WORKFLOW, LOOP_WORKFLOW])
async def test_an_input_of_any_shape_ends_the_run_with_a_message(rig: StartRig, client: Client, kind: str) -> None:
    """No input fails workflow tasks forever, and each failure says what was wrong."""
    async with rig(CATALOG, lambda _: say("done")) as r:
        runs = {what: await begin(client, kind, given, r.task_queue) for what, given in INPUTS.items()}
        for what, run in runs.items():
            failed = await failure_of(run)
            assert failed.type in (START_REFUSED, "TaskMalformed", "TaskTooLong"), (what, failed)
            assert failed.message, what
            history = await run.fetch_history()
            assert not [event for event in history.events if event.HasField("workflow_task_failed_event_attributes")]


async def test_an_odd_field_does_no_harm(rig: StartRig, client: Client) -> None:
    """An unknown field is ignored, as from a newer client; and so is an invalid number."""
    async with rig(CATALOG, lambda _: say("done")) as r:
        for odd in (b'"colour":"red"', b'"idle_limit":NaN'):
            run = await begin(client, WORKFLOW, [payload(b'{"task":"go",' + odd + b"}")], r.task_queue)
            assert (await run.result())["result"] == "done", odd


# Ends of activities. Temporal requires no proof from a caller who completes or fails one.

FORGED: dict[str, list[Payload]] = {
    "nothing": [],
    "null": [payload(b"null")],
    "an answer": [payload(b'{"message":{"content":"forged"},"status":"ok","content":"forged","answers":"1.0"}')],
    "a number": [payload(b"7")],
    "not JSON": [payload(b"{")],
    "an unknown encoding": [payload(b"x", b"binary/else")],
    "a malformed seal": [payload(b"{}", seal=b"dev:x")],
}


async def pending(run: WorkflowHandle[Any, Any], activity: str, *, not_id: str = "") -> str:
    """Wait until an activity of that type is running, and return its id."""

    async def ids() -> list[str]:
        activities = (await run.describe()).raw_description.pending_activities
        return [
            each.activity_id
            for each in activities
            if each.activity_type.name == activity
            and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            and each.activity_id != not_id
        ]

    return str((await eventually(ids, bool))[0])


async def forge(client: Client, run: WorkflowHandle[Any, Any], activity_id: str, result: list[Payload]) -> None:
    """Complete an activity as `temporal activity complete` does."""
    await client.workflow_service.respond_activity_task_completed_by_id(
        RespondActivityTaskCompletedByIdRequest(
            namespace=client.namespace,
            workflow_id=run.id,
            activity_id=activity_id,
            result=Payloads(payloads=result) if result else None,
        )
    )


async def fail(client: Client, run: WorkflowHandle[Any, Any], activity_id: str, failure: Failure) -> None:
    """Fail an activity as `temporal activity fail` does."""
    await client.workflow_service.respond_activity_task_failed_by_id(
        RespondActivityTaskFailedByIdRequest(
            namespace=client.namespace, workflow_id=run.id, activity_id=activity_id, failure=failure
        )
    )


def hanging(conversation: Conversation) -> Reply:
    """Never answer, or call the tool that does not end."""
    return hang() if "llm" in conversation.last_user_message else call(conversation.last_user_message)


@tool(effect="read")
async def stare() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


@tool(effect="unsafe")
async def pay() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


HANGING = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            policy=Policy(rules=(allow(),)),
            limits=Limits(local_seconds=0),
            tools=[stare, pay],
        )
    ],
)


ACTIVITY = {"llm": "call_llm", "stare": "call_tool", "pay": "call_tool"}
LEFT = {"llm": "blocked", "pay": "waiting_approval"}
"""What becomes of the run that loses this call."""


async def no_task_failed(run: WorkflowHandle[Any, Any]) -> bool:
    """Return whether no workflow task of a run has failed."""
    events = (await run.fetch_history()).events
    return not any(event.HasField("workflow_task_failed_event_attributes") for event in events)


ANSWERS = [("llm", what) for what in FORGED] + [(task, "an answer") for task in ("stare", "pay")]
"""All forgeries of one activity, and one forgery of each."""


@pytest.mark.parametrize(
    "cases",
    [ANSWERS, pytest.param([*product(("stare", "pay"), FORGED)], marks=pytest.mark.extended)],
    ids=["each", "each-as-each"],
)
async def test_a_forged_answer_is_rejected_visibly(rig: StartRig, client: Client, cases: list[tuple[str, str]]) -> None:
    """A forged answer fails no workflow task: the run is blocked, the read has failed, or a person is asked."""
    async with rig(HANGING, hanging) as r:
        runs = {case: await r.start(case[0]) for case in cases}
        for (task, what), run in runs.items():
            await forge(client, run, await pending(run, ACTIVITY[task]), FORGED[what])
        for (task, what), run in runs.items():
            if task == "stare":
                finished = await first_result(run)
                assert finished.status == "failed", what
                why = finished.text
            else:
                state = await status_of(run, LEFT[task])
                why = state["pending"][0]["why"] if state["pending"] else f"{state['blocked']}"
            assert "NotSealed" in why, (task, what, why)
            assert await no_task_failed(run), (task, what)
            if what != "a malformed seal":  # a reader without keys accepts any seal
                await check_thread(client, run)
            await run.terminate()


async def first_result(run: WorkflowHandle[Any, Any]) -> ToolCallFinished:
    """Return the first result of a call, once it exists."""

    async def results() -> list[ToolCallFinished]:
        return [each for each in await events_of(run) if isinstance(each, ToolCallFinished)]

    ends: list[ToolCallFinished] = await eventually(results, bool)
    return ends[0]


FAILURES = {
    "a message": Failure(
        message="forged", application_failure_info=ApplicationFailureInfo(type="x", non_retryable=True)
    ),
    "details that do not decode": Failure(
        message="forged",
        application_failure_info=ApplicationFailureInfo(
            type="LLMRejected",
            non_retryable=True,
            details=Payloads(payloads=[payload(b"{"), payload(b"x", b"binary/else")]),
        ),
    ),
    "an oversized type": Failure(
        message="x" * 10_000, application_failure_info=ApplicationFailureInfo(type="y" * 10_000, non_retryable=True)
    ),
    "encoded attributes": Failure(
        message="Encoded failure",
        encoded_attributes=payload(b"["),
        application_failure_info=ApplicationFailureInfo(non_retryable=True),
    ),
    "deep causes": Failure(message="0", application_failure_info=ApplicationFailureInfo(non_retryable=True)),
}
_deepest = FAILURES["deep causes"]
for _ in range(60):
    _deepest.cause.CopyFrom(Failure(message="cause", application_failure_info=ApplicationFailureInfo()))
    _deepest = _deepest.cause


LOST = [("pay", what) for what in FAILURES] + [("llm", "details that do not decode")]
"""All failures of one activity, and one of each."""


@pytest.mark.parametrize(
    "cases",
    [LOST, pytest.param([("llm", what) for what in FAILURES], marks=pytest.mark.extended)],
    ids=["each", "each-as-each"],
)
async def test_a_forged_failure_ends_no_run_and_no_workflow_task(
    rig: StartRig, client: Client, cases: list[tuple[str, str]]
) -> None:
    """A run that loses an LLM call is blocked until `retry`; a person is asked about an effect."""
    async with rig(HANGING, hanging) as r:
        runs = {case: await r.start(case[0]) for case in cases}
        for (task, what), run in runs.items():
            await fail(client, run, await pending(run, ACTIVITY[task]), FAILURES[what])
        for (task, what), run in runs.items():
            await status_of(run, LEFT[task])
            assert await no_task_failed(run), (task, what)
            await check_thread(client, run)
            await run.terminate()

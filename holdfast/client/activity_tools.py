"""Activities of other workers as tools: on another task queue, in another process, in another language.

    @activity_tool("ChargeCard", task_queue="payments", effect="idempotent")
    def charge_card(order: str, cents: int) -> str:
        '''Charge the card of an order.'''

An activity of the program's own is a tool without this: `tool(effect="read")(price)`.
"""

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from holdfast.client.reading.executions import own_client
from holdfast.client.start_options import issued
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.activity_calls import (
    ACTIVITY_CALL_WORKFLOW,
    ActivityCall,
    ActivityCalled,
    call_id,
)
from holdfast.core.tools.decorator import DEFAULT_TIMEOUT, EffectName, Tool, ToolContext, tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.not_done import NotDone
from holdfast.core.tools.signatures import hints_of, parameters_of
from holdfast.core.trust import Trust
from holdfast.errors import ToolSignatureError

MARGIN = 10.0
"""Seconds that the tool waits beyond the limit of the activity, whose end says more than a time-out of the tool."""

CALLS = 20
"""The most calls for one effect, each after one that failed and that a person declared not to have happened."""

ANSWER = timedelta(seconds=10)


class ActivityFailed(Exception):
    """The activity failed; the message has the type of its error."""


def activity_tool(
    name: str,
    *,
    task_queue: str | None = None,
    tool_name: str | None = None,
    effect: Effect | EffectName = Effect.UNSAFE,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    heartbeat: float | None = None,
    secrets: Sequence[str] = (),
    trust: Trust = "tool",
) -> Callable[[Callable[..., Any]], Tool[Any]]:
    """Make a tool of an activity that other workers have. The decorated function only declares it: it is never called.

    Its parameters, in their order, are the activity's arguments, as JSON. Its docstring describes the tool to the LLM.
    The activity's workflow id is the same on every attempt, so it can serve as an idempotency key.

    Args:
        name: The type of the activity.
        task_queue: The task queue of the workers that have it; None for that of the agent's run.
        tool_name: The tool's name; the function's name by default.
        effect: The effect class of a call. Activities with `read` and `idempotent` are retried; others are attempted
            once, and an error means that the outcome is unknown, unless its type is `NotDone`.
        check: For `verifiable`: see `tool`.
        undo: See `tool`.
        timeout: Time limit of a call with all of its attempts, in seconds.
        heartbeat: Seconds without a heartbeat after which an attempt is given up; None for an activity that sends none.
        secrets: Environment variables that `check` and `undo` may read.
        trust: Trust level of the results.

    Raises:
        ToolSignatureError: The function cannot declare a tool.
    """

    def make(declared: Callable[..., Any]) -> Tool[Any]:
        hints = hints_of(declared)
        names = [parameter.name for parameter in parameters_of(declared)]
        if ToolContext in hints.values():
            raise ToolSignatureError(f"activity {name!r}: its parameters are the activity's, so none is a ToolContext")
        adapters = {each: TypeAdapter(hints[each]) for each in names if each in hints}
        once = Effect(effect) not in (Effect.READ, Effect.IDEMPOTENT)

        async def call(context: ToolContext, **arguments: Any) -> Any:
            given = tuple(adapters[each].dump_python(arguments[each], mode="json") for each in names)
            begin = ActivityCall(
                activity=name,
                task_queue=task_queue,
                arguments=given,
                seconds=timeout,
                heartbeat=heartbeat,
                once=once,
            )
            return await _called(begin, context.key)

        signature, context = inspect.signature(declared), inspect.Parameter
        own = context("context", context.KEYWORD_ONLY, annotation=ToolContext)
        call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), own])  # type: ignore[attr-defined]
        call.__annotations__ = {**hints, "context": ToolContext}
        call.__name__, call.__doc__, call.__module__ = declared.__name__, declared.__doc__, declared.__module__
        return tool(
            name=tool_name,
            effect=effect,
            check=check,
            undo=undo,
            timeout=timeout + MARGIN,
            secrets=secrets,
            trust=trust,
        )(call)

    return make


async def _called(begin: ActivityCall, key: str) -> Any:
    """Call the activity, or wait for a call that an earlier attempt at the tool has made.

    Raises:
        NotDone: The activity did not happen.
        ActivityFailed: It failed.
    """
    client, queue, called = own_client(), activity.info().task_queue, ActivityCalled()
    for number in range(1, CALLS + 1):
        new = await _start(client, issued(begin), call_id(key, number), queue)
        open_before = new or await _is_open(client, call_id(key, number))
        called = await _end(client, call_id(key, number))
        if not called.error or open_before:
            return _result(called, begin)
    raise NotDone(f"it was called {CALLS} times, and has failed each time: {called.kind}: {called.error}")


async def _start(client: Client, begin: ActivityCall, id: str, task_queue: str) -> bool:
    """Start the workflow that makes the call; return whether it is new."""
    try:
        await client.start_workflow(
            ACTIVITY_CALL_WORKFLOW,
            begin,
            id=id,
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            static_summary=begin.activity,
            rpc_timeout=ANSWER,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True


async def _is_open(client: Client, id: str) -> bool:
    found = await client.get_workflow_handle(id).describe(rpc_timeout=ANSWER)
    return found.close_time is None


async def _end(client: Client, id: str) -> ActivityCalled:
    """Wait for the end of a call.

    Raises:
        ActivityFailed: Nothing shows that a worker of this fleet made the call.
    """
    try:
        called: Any = await client.get_workflow_handle(id, result_type=ActivityCalled).result()
    except WorkflowFailureError as failure:
        return ActivityCalled(error=f"the call {id} was closed in Temporal: {failure.cause}", kind="CallClosed")
    if is_unsealed(called):
        raise ActivityFailed(f"{id}: {called}")
    assert isinstance(called, ActivityCalled)
    return called


def _result(called: ActivityCalled, begin: ActivityCall) -> Any:
    if not called.error:
        return called.result
    if called.kind == NotDone.__name__ or not called.begun:
        raise NotDone(called.error)
    raise ActivityFailed(f"{called.kind}: {called.error}")

"""The signals, updates and queries of `AgentRunWorkflow`. The table of interventions has the signals and updates."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowInteractionDefinition, WorkflowMetadata
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.base.models import argument_of
from holdfast.core.run.contracts.runs import Page, View, Views
from holdfast.core.run.inputs.interventions import (
    INTERVENTIONS,
    SIGNALS,
    UPDATES,
    in_level,
    leaves_no_trace,
    raw_texts,
    read_payload,
)
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.deciders import open_requests
from holdfast.core.run.views.status import run_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.workflows.replay_safe_inbox import Input

_METADATA = "__temporal_workflow_metadata"
"""The SDK's query that the Web UI sends."""

_SHARED = {name: INTERVENTIONS[name].description for name, level in SIGNALS.items() if level > 0}
"""The signals that have no handler of their own, with the descriptions of those that people send."""


def shared_signals(state: RunState) -> dict[str, str]:
    """Return the signals without a handler of their own that a run has, each with its description."""
    return {name: text for name, text in _SHARED.items() if text and in_level(SIGNALS, name, state)}


class RunInterface:
    """The inputs that reach a run from outside, and the views that it offers. `AgentRunWorkflow` delivers inputs."""

    _run: AgentRun

    @property
    def _settled(self) -> tuple[int, RunState] | None:
        """After a query exposed events early: how many events came before those, and the state after them."""
        raise NotImplementedError

    def _pass_on(self, arrived: Input) -> None:
        """Pass on an input, now or once no local activity is running."""
        raise NotImplementedError

    # Signals. A payload of any shape is accepted and recorded: a typing error in the Web UI loses nothing.

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Accept a signal of any other name; it has an effect if the run's feature level has that name."""
        sent = [value.payload for value in payloads]
        payload, texts = read_payload(sent, workflow.payload_converter()), raw_texts(sent)
        self._pass_on(lambda run: run.signal(name, payload, texts=texts))

    def _signal(self, signal: str, *arguments: Any) -> None:
        payload = argument_of(arguments)
        if not leaves_no_trace(self._run.state, payload):
            self._pass_on(lambda run: run.signal(signal, payload))

    # Updates. A validator rejects an update before it enters history. The update itself checks again: earlier inputs of
    # the same workflow task may have changed the run.

    def _refuse(self, update: str, *arguments: Any) -> None:
        """Reject an update before it enters history. Runs on arrival, never in a replay, and changes nothing.

        Raises:
            ApplicationError: Its type is the outcome, its message the reason, and its details are both, sealed.
        """
        if answer := self._run.refused(update, argument_of(arguments), at=workflow.now()):
            raise ApplicationError(answer["explanation"], View(answer), type=answer["outcome"], non_retryable=True)

    async def _answer(self, update: str, *arguments: Any) -> View:
        answer: dict[str, str] = {}
        self._pass_on(lambda run: answer.update(run.update(update, argument_of(arguments))))
        if not answer:
            await workflow.wait_condition(lambda: bool(answer))
        return View(answer)

    # Queries leave no trace in history. Their answers are sealed: only our workers can answer for a run.

    @property
    def _shown(self) -> RunState:
        return self._settled[1] if self._settled else self._run.state

    @workflow.query
    def state(self) -> View:
        """Return the derived state, as `starter.py show` prints it."""
        return View(run_view(self._shown))

    @workflow.query
    def pending_approvals(self) -> Views:
        """Return the open approval requests."""
        return Views(open_requests(self._shown))

    @workflow.query
    def log(self, start: int = 0) -> Page:
        """Return a page of events from position `start` on, one JSON text a line; empty when there are none.

        This Temporal run keeps the events that the permanent record lacked when it began; older ones are in the record.
        """
        return Page(self._run.log.page(start, self._settled[0] if self._settled else None))

    @workflow.query
    def session(self) -> View:
        """Return the agent and the first position of its messages, for a worker that starts to read the transcript."""
        session = self._run.session
        spec: AgentSpec | None = session["spec"]
        return View(session | {"spec": spec.model_dump(mode="json", exclude_defaults=True) if spec else None})

    @workflow.query
    def transcript(self, start: int = 0) -> Page:
        """Return a page of encoded messages from `start` on, one a line; empty when there are none."""
        return Page(self._run.transcript.page(start))

    # Queries for people: the `temporal` command and the Web UI show a sealed payload as base64, and check no seals.

    @workflow.query
    def show(self) -> dict[str, Any]:
        """Return the derived state without a seal, for the `temporal` command."""
        return run_view(self._shown)

    @workflow.query
    def pending(self) -> list[dict[str, Any]]:
        """Return the open approval requests without a seal, for the `temporal` command."""
        return open_requests(self._shown)

    @workflow.query
    def events(self, start: int = 0) -> list[dict[str, Any]]:
        """Return a page of events without a seal, for the `temporal` command."""
        page = self._run.log.page(start, self._settled[0] if self._settled else None)
        return [json.loads(line) for line in page.splitlines()]

    def _answer_web_ui(self) -> None:
        """Answer the query for the Web UI's page of this run, in place of the SDK. Called when the run is initialized.

        Signals of later feature levels share one handler, so that older histories replay
        (`holdfast.core.run.inputs.interventions.Intervention.signal`), and the SDK would list that as an entry without
        a name: the answer has their names instead. The current details are written only when they are asked for, not by
        `workflow.set_current_details`.
        """
        # The SDK offers no other way. The event loop is its instance of the workflow, which holds the query handlers.
        queries = asyncio.get_running_loop().__dict__["_queries"]
        own = queries[_METADATA]

        def metadata() -> WorkflowMetadata:
            answer: WorkflowMetadata = own.fn()
            listed = [each for each in answer.definition.signal_definitions if each.name]
            shared = shared_signals(self._shown)
            listed += [WorkflowInteractionDefinition(name=name, description=text) for name, text in shared.items()]
            del answer.definition.signal_definitions[:]
            answer.definition.signal_definitions.extend(sorted(listed, key=lambda each: each.name))
            answer.current_details = current_details(self._shown, self._run.last_refusals)
            return answer

        queries[_METADATA] = replace(own, fn=metadata)


def _signal(name: str) -> Callable[..., None]:
    """Return the handler of the signal of that name."""

    @workflow.signal(name=name, description=INTERVENTIONS[name].description)
    def handle(self: RunInterface, payload: Any = None, *more: Any) -> None:
        self._signal(name, payload, *more)

    return handle


def _update(name: str) -> Callable[..., Any]:
    """Return the handler of the update of that name, with its validator."""

    @workflow.update(name=name, description=INTERVENTIONS[name].description)
    async def answer(self: RunInterface, payload: Any = None, *more: Any) -> View:
        return await self._answer(name, payload, *more)

    @answer.validator
    def refuse(self: RunInterface, payload: Any = None, *more: Any) -> None:
        self._refuse(name, payload, *more)

    return answer


# The SDK finds handlers by the attributes of the class.
for _name, _level in SIGNALS.items():
    if _level == 0:
        setattr(RunInterface, _name, _signal(_name))
for _name in UPDATES:
    setattr(RunInterface, f"{_name}_update", _update(_name))

"""The signals, updates and queries of `AgentRunWorkflow`."""

import json
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from holdfast.agents.agent import AgentSpec
from holdfast.base.unread import argument_of
from holdfast.run.contracts import Page, View, Views
from holdfast.run.handover import session_of
from holdfast.run.inputs import leaves_no_trace, raw_texts, read_payload
from holdfast.run.machine import AgentRun
from holdfast.run.outlook import run_view
from holdfast.run.state import RunState
from holdfast.workflows.replay_safe_inbox import Input


class RunInterface:
    """What reaches a run from outside, and what it shows. `AgentRunWorkflow` passes inputs on."""

    _run: AgentRun

    @property
    def _settled(self) -> tuple[int, RunState] | None:
        """After a query exposed events early: how many events came before those, and the state after them."""
        raise NotImplementedError

    def _pass_on(self, arrived: Input) -> None:
        """Pass on an input, now or when no local activity is under way any more."""
        raise NotImplementedError

    # Signals. A payload of any shape is accepted and recorded: a typing error in the Web UI loses nothing.

    @workflow.signal
    def approve(self, payload: Any = None, *more: Any) -> None:
        """Approve a pending call: {"request": "1", "by": "alice", "reason": "ok"}."""
        self._signal("approve", payload, *more)

    @workflow.signal
    def deny(self, payload: Any = None, *more: Any) -> None:
        """Deny a pending call: {"request": "1", "by": "alice", "reason": "not on a Friday"}."""
        self._signal("deny", payload, *more)

    @workflow.signal
    def respond(self, payload: Any = None, *more: Any) -> None:
        """Give a result in place of the tool: {"request": "1", "by": "alice", "result": "what the LLM is to read"}."""
        self._signal("respond", payload, *more)

    @workflow.signal
    def delegate_authority(self, payload: Any = None, *more: Any) -> None:
        """Delegate approval authority to another approver: {"by": "alice", "to": "bob", "seconds": 86400}."""
        self._signal("delegate_authority", payload, *more)

    @workflow.signal
    def revoke(self, payload: Any = None, *more: Any) -> None:
        """Revoke a rule or a delegation: {"by": "alice", "remembered": "1"} or {…, "delegated_to": "bob"}."""
        self._signal("revoke", payload, *more)

    @workflow.signal
    def reconcile(self, payload: Any = None, *more: Any) -> None:
        """Resolve an unknown outcome: {"request": "2", "decision": "happened" | "absent" | "abandon", …}."""
        self._signal("reconcile", payload, *more)

    @workflow.signal
    def retry(self, payload: Any = None, *more: Any) -> None:
        """Unblock the run after its cause is fixed: {"by": "alice"}."""
        self._signal("retry", payload, *more)

    @workflow.signal
    def say(self, payload: Any = None, *more: Any) -> None:
        """Send the agent a message: {"message": "…", "by": "alice", "when_busy": "queue"}."""
        self._signal("say", payload, *more)

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Take in a signal of any other name: it has an effect where the run's feature level has that name."""
        sent = [value.payload for value in payloads]
        payload, texts = read_payload(sent, workflow.payload_converter()), raw_texts(sent)
        self._pass_on(lambda run: run.signal(name, payload, texts=texts))

    def _signal(self, signal: str, *arguments: Any) -> None:
        payload = argument_of(arguments)
        if not leaves_no_trace(self._run.state, payload):
            self._pass_on(lambda run: run.signal(signal, payload))

    # Updates. A validator refuses what can be refused, so that nothing of it is in history. The update itself refuses,
    # too, for what came before it in the same workflow task may have changed the run.

    @workflow.update
    async def decide(self, payload: Any = None, *more: Any) -> View:
        """Decide a request, and return the outcome: {"decision": "approve", "request": "1", "by": "alice"}."""
        return await self._answer("decide", payload, *more)

    @decide.validator
    def _may_decide(self, payload: Any = None, *more: Any) -> None:
        self._refuse("decide", payload, *more)

    @workflow.update(name="say")
    async def say_update(self, payload: Any = None, *more: Any) -> View:
        """Send the agent a message, as the signal `say` does, and return the outcome."""
        return await self._answer("say", payload, *more)

    @say_update.validator
    def _may_say(self, payload: Any = None, *more: Any) -> None:
        self._refuse("say", payload, *more)

    def _refuse(self, update: str, *arguments: Any) -> None:
        """Refuse an update before it is in history. Runs when it arrives, never in a replay, and changes nothing.

        Raises:
            ApplicationError: Its type is the outcome, its message says why, and its details are both, sealed.
        """
        if answer := self._run.refused(update, argument_of(arguments), at=workflow.now()):
            raise ApplicationError(answer["explanation"], View(answer), type=answer["outcome"], non_retryable=True)

    async def _answer(self, update: str, *arguments: Any) -> View:
        answer: dict[str, str] = {}
        self._pass_on(lambda run: answer.update(run.update(update, argument_of(arguments))))
        if not answer:
            await workflow.wait_condition(lambda: bool(answer))
        return View(answer)

    @workflow.update(name="delegate_authority")
    async def delegate_authority_update(self, payload: Any = None, *more: Any) -> View:
        """Delegate approval authority, as the signal `delegate_authority` does, and return the outcome."""
        return await self._answer("delegate_authority", payload, *more)

    @delegate_authority_update.validator
    def _may_delegate_authority(self, payload: Any = None, *more: Any) -> None:
        self._refuse("delegate_authority", payload, *more)

    @workflow.update(name="revoke")
    async def revoke_update(self, payload: Any = None, *more: Any) -> View:
        """Revoke a rule or a delegation, as the signal `revoke` does, and return the outcome."""
        return await self._answer("revoke", payload, *more)

    @revoke_update.validator
    def _may_revoke(self, payload: Any = None, *more: Any) -> None:
        self._refuse("revoke", payload, *more)

    @workflow.update(name="compact")
    async def compact_update(self, payload: Any = None, *more: Any) -> View:
        """Compact the context, as the signal `compact` does, and return the outcome: {"by": "alice"}."""
        return await self._answer("compact", payload, *more)

    @compact_update.validator
    def _may_compact(self, payload: Any = None, *more: Any) -> None:
        self._refuse("compact", payload, *more)

    @workflow.update(name="lift")
    async def lift_update(self, payload: Any = None, *more: Any) -> View:
        """Lift a constraint, as the signal `lift` does, and return the outcome: {"constraint": 3, "by": "alice"}."""
        return await self._answer("lift", payload, *more)

    @lift_update.validator
    def _may_lift(self, payload: Any = None, *more: Any) -> None:
        self._refuse("lift", payload, *more)

    @workflow.update(name="pause")
    async def pause_update(self, payload: Any = None, *more: Any) -> View:
        """Pause the run, as the signal `pause` does, and return the outcome: {"by": "alice", "seconds": 3600}."""
        return await self._answer("pause", payload, *more)

    @pause_update.validator
    def _may_pause(self, payload: Any = None, *more: Any) -> None:
        self._refuse("pause", payload, *more)

    @workflow.update(name="resume")
    async def resume_update(self, payload: Any = None, *more: Any) -> View:
        """Resume the run after a pause, as the signal `resume` does, and return the outcome: {"by": "alice"}."""
        return await self._answer("resume", payload, *more)

    @resume_update.validator
    def _may_resume(self, payload: Any = None, *more: Any) -> None:
        self._refuse("resume", payload, *more)

    @workflow.update(name="refine")
    async def refine_update(self, payload: Any = None, *more: Any) -> View:
        """Refine the task, as the signal `refine` does, and return the outcome: {"kind": "narrow", "text", "by"}."""
        return await self._answer("refine", payload, *more)

    @refine_update.validator
    def _may_refine(self, payload: Any = None, *more: Any) -> None:
        self._refuse("refine", payload, *more)

    @workflow.update(name="extend")
    async def extend_update(self, payload: Any = None, *more: Any) -> View:
        """Extend the budget, as the signal `extend` does, and return the outcome: {"usd": "1", "by": "alice"}."""
        return await self._answer("extend", payload, *more)

    @extend_update.validator
    def _may_extend(self, payload: Any = None, *more: Any) -> None:
        self._refuse("extend", payload, *more)

    @workflow.update(name="move")
    async def move_update(self, payload: Any = None, *more: Any) -> View:
        """End the run as moved, as the signal `move` does, and return the outcome: {"by": "alice"}."""
        return await self._answer("move", payload, *more)

    @move_update.validator
    def _may_move(self, payload: Any = None, *more: Any) -> None:
        self._refuse("move", payload, *more)

    @workflow.update(name="revoke_key")
    async def revoke_key_update(self, payload: Any = None, *more: Any) -> View:
        """Revoke a key, as the signal `revoke_key` does, and return the outcome: {"revoked": "ed25519:…", "by", …}."""
        return await self._answer("revoke_key", payload, *more)

    @revoke_key_update.validator
    def _may_revoke_key(self, payload: Any = None, *more: Any) -> None:
        self._refuse("revoke_key", payload, *more)

    @workflow.update(name="retry")
    async def retry_update(self, payload: Any = None, *more: Any) -> View:
        """Unblock the run, as the signal `retry` does, and return the outcome: {"by": "alice"}."""
        return await self._answer("retry", payload, *more)

    @retry_update.validator
    def _may_retry(self, payload: Any = None, *more: Any) -> None:
        self._refuse("retry", payload, *more)

    @workflow.update(name="wake")
    async def wake_update(self, payload: Any = None, *more: Any) -> View:
        """Deliver an event, as the signal `wake` does, and return the outcome: {"event": "deploy.done", "id": "7"}."""
        return await self._answer("wake", payload, *more)

    @wake_update.validator
    def _may_wake(self, payload: Any = None, *more: Any) -> None:
        self._refuse("wake", payload, *more)

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
        return Views(self._shown.pending_view())

    @workflow.query
    def log(self, start: int = 0) -> Page:
        """Return a page of events from position `start` on, one JSON text a line; empty when there are none.

        This Temporal run keeps the events that the permanent record lacked when it began; older ones are in the record.
        """
        return Page(self._run.log.page(start, self._settled[0] if self._settled else None))

    @workflow.query
    def session(self) -> View:
        """Return what a worker needs before it reads the transcript: the agent, and where the messages begin."""
        session = session_of(self._run)
        spec: AgentSpec | None = session["spec"]
        return View(session | {"spec": spec.model_dump(mode="json", exclude_defaults=True) if spec else None})

    @workflow.query
    def transcript(self, start: int = 0) -> Page:
        """Return a page of encoded messages from `start` on, one a line; empty when there are none."""
        return Page(self._run.transcript.page(start))

    # Queries for people: the `temporal` command and the Web UI show a payload with a seal as base64, and check no seal.

    @workflow.query
    def show(self) -> dict[str, Any]:
        """Return what `state` returns, for the `temporal` command."""
        return run_view(self._shown)

    @workflow.query
    def pending(self) -> list[dict[str, Any]]:
        """Return what `pending_approvals` returns, for the `temporal` command."""
        return self._shown.pending_view()

    @workflow.query
    def events(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the page of events that `log` returns, for the `temporal` command."""
        page = self._run.log.page(start, self._settled[0] if self._settled else None)
        return [json.loads(line) for line in page.splitlines()]

"""The signals, updates and queries of `AgentLoopWorkflow`."""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.base.unread import argument_of, is_unread
from holdfast.core.log.loop_events import LoopEvent
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import LoopState, Steering
from holdfast.core.loop.steering import on_steering
from holdfast.core.run.contracts.runs import Page, View


class LoopInterface:
    """The inputs of a loop, and the state that it shows."""

    _recorder: LoopRecorder
    _signals: int
    """Signals that this Temporal run has received."""

    @property
    def _state(self) -> LoopState:
        return self._recorder.state

    def _record(self, *events: LoopEvent) -> None:
        self._recorder.record(*events, at=workflow.now())

    def _publish(self, *, trace: bool = False) -> None:
        """Publish the loop's state for the Web UI; with `trace`, leave a trace in history."""
        raise NotImplementedError

    # Signals, and the updates that answer with an outcome: {"by": "alice", "reason": "…"}.

    @workflow.signal
    def pause(self, payload: Any = None, *more: Any) -> None:
        """Begin no further iteration: {"by": "alice", "reason": "…", "seconds": 3600}."""
        self._signal("pause", payload, *more)

    @workflow.signal
    def resume(self, payload: Any = None, *more: Any) -> None:
        """Resume after a pause: {"by": "alice"}."""
        self._signal("resume", payload, *more)

    @workflow.signal
    def retry(self, payload: Any = None, *more: Any) -> None:
        """Continue after the cause of a block is fixed, or raise the limit that was reached: {"by": "alice"}."""
        self._signal("retry", payload, *more)

    @workflow.update(name="pause")
    def pause_update(self, payload: Any = None, *more: Any) -> View:
        """Pause, as the signal `pause` does, and return the outcome."""
        return self._steer("pause", payload)

    @pause_update.validator
    def _may_pause(self, payload: Any = None, *more: Any) -> None:
        self._refuse("pause", payload, *more)

    @workflow.update(name="resume")
    def resume_update(self, payload: Any = None, *more: Any) -> View:
        """Resume, as the signal `resume` does, and return the outcome."""
        return self._steer("resume", payload)

    @resume_update.validator
    def _may_resume(self, payload: Any = None, *more: Any) -> None:
        self._refuse("resume", payload, *more)

    @workflow.update(name="retry")
    def retry_update(self, payload: Any = None, *more: Any) -> View:
        """Continue after a block, as the signal `retry` does, and return the outcome."""
        return self._steer("retry", payload)

    @retry_update.validator
    def _may_retry(self, payload: Any = None, *more: Any) -> None:
        self._refuse("retry", payload, *more)

    def _refuse(self, verb: Steering, *arguments: Any) -> None:
        """Reject an update before it enters history. Changes nothing.

        Raises:
            ApplicationError: Its type is the outcome, its message the reason, and its details are both, sealed.
        """
        outcome, explanation, _ = on_steering(self._state, verb, argument_of(arguments), at=workflow.now())
        if outcome != "accepted":
            raise ApplicationError(explanation, View({"outcome": outcome, "explanation": explanation}), type=outcome)

    def _signal(self, verb: Steering, *arguments: Any) -> None:
        payload = argument_of(arguments)
        if is_unread(payload) and not self._state.logged:
            return  # as in 0.1.0, in which the SDK dropped it
        self._signals += 1
        before = self._recorder.log.length
        self._steer(verb, payload)
        self._publish(trace=self._state.logged and self._recorder.log.length > before)

    def _steer(self, verb: Steering, payload: Any) -> View:
        outcome, explanation, events = on_steering(self._state, verb, payload, at=workflow.now())
        self._record(*events)
        self._publish()
        return View({"outcome": outcome, "explanation": explanation})

    # Queries leave no trace in history.

    @workflow.query
    def state(self) -> View:
        """Return the state of the loop, as `starter.py show` prints it."""
        return View(self._state.view())

    @workflow.query
    def log(self, start: int = 0) -> Page:
        """Return a page of the events that the record lacks, from position `start` on, one JSON text a line."""
        return Page(self._recorder.log.page(start) if self._state.logged else b"")

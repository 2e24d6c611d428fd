"""The signals, updates and queries of `AgentLoopWorkflow`."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.base.models import argument_of, is_unread
from holdfast.core.log.loop_events import LoopEvent
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import LoopState, Steering
from holdfast.core.loop.steering import on_steering
from holdfast.core.run.contracts.runs import Page, View

DESCRIPTIONS: Mapping[Steering, str] = {
    "pause": 'Begin no further iteration: {"by", "reason"}.',
    "resume": 'Resume a paused loop: {"by"}.',
    "retry": 'Continue a blocked loop, once its cause is fixed: {"by"}.',
}
"""The name of a signal and update → its description, which the Web UI shows."""


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


def _signal(verb: Steering) -> Callable[..., None]:
    """Return the handler of the signal of that name."""

    @workflow.signal(name=verb, description=DESCRIPTIONS[verb])
    def take_in(self: LoopInterface, payload: Any = None, *more: Any) -> None:
        self._signal(verb, payload, *more)

    return take_in


def _update(verb: Steering) -> Callable[..., Any]:
    """Return the handler of the update of that name, with its validator."""

    @workflow.update(name=verb, description=DESCRIPTIONS[verb])
    def answer(self: LoopInterface, payload: Any = None, *more: Any) -> View:
        return self._steer(verb, payload)

    @answer.validator
    def refuse(self: LoopInterface, payload: Any = None, *more: Any) -> None:
        self._refuse(verb, payload, *more)

    return answer


# The SDK finds handlers by the attributes of the class.
for _verb in get_args(Steering):
    setattr(LoopInterface, _verb, _signal(_verb))
    setattr(LoopInterface, f"{_verb}_update", _update(_verb))

"""Looking back: after a reset, and when a Temporal run begins, the ledger says what the run did already.

1. Temporal can reset a run to an earlier event. What the run did after that event is in the ledger alone, so the run
   starts nothing before the ledger has answered.
2. Ends of other calls that arrive meanwhile wait, and are taken in afterwards, in their order.
"""

from collections.abc import Callable, Iterator

from holdfast.run.archiving import Archiving
from holdfast.run.commands import Call
from holdfast.run.contracts import EffectsRequest, LLMRequest, PastEffects
from holdfast.run.open_calls import OpenCalls
from holdfast.run.recorder import Recorder
from holdfast.run.resets import on_reset


class Lookback:
    """Whether the run looks back, and what waits until it has. Not part of `RunState`, because it concerns this
    Temporal run only: the next one looks back itself.

    Args:
        run: What was recorded.
        calls: The run's open calls.
        archiving: Where the permanent record stands.
    """

    def __init__(self, run: Recorder, calls: OpenCalls, archiving: Archiving) -> None:
        self.reset = False
        """Temporal has reported a reset, and the ledger has not answered since."""
        self._run = run
        self._calls = calls
        self._archiving = archiving
        self._waiting: list[Callable[[], None]] = []

    @property
    def under_way(self) -> bool:
        """Whether the ledger has been asked and has not answered."""
        return bool(self._calls.under_way(EffectsRequest))

    def begin(self) -> None:
        """Ask the ledger for what came after the last call that is finished for good."""
        state, recorded = self._run.state, self._archiving.expected
        first = min((call.number for call in state.calls.current), default=state.calls.count + 1)
        self._calls.call(EffectsRequest(after=first - 1, position=recorded.position, head=recorded.head), state)

    def delays(self, call_id: int) -> bool:
        """Whether the end of that call has to wait."""
        call = self._calls.get(call_id)
        return self.under_way and not (isinstance(call, Call) and isinstance(call.request, EffectsRequest))

    def delay(self, end: Callable[[], None]) -> None:
        """Keep the end of a call until the ledger has answered."""
        self._waiting.append(end)

    def delayed(self) -> Iterator[Callable[[], None]]:
        """The ends of calls that need not wait any more, in their order."""
        while self._waiting and not self.under_way:
            yield self._waiting.pop(0)

    def finish(self, past: PastEffects) -> None:
        """Record what the ledger's answer leads to: nothing, where the run knew it all and was not reset."""
        state = self._run.state
        known = {effect.key for effect in state.calls.past}
        known |= {state.effect_key(call.number, call.call) for call in state.calls.current if call.begun or call.past}
        effects = tuple(effect for effect in past.effects if effect.key not in known)
        reset, self.reset = self.reset, False
        if (effects or reset) and not state.outcome:
            asking = bool(self._calls.under_way(LLMRequest))
            self._run.record(*on_reset(state, effects, left_out=past.left_out, asking=asking, at=self._run.at))

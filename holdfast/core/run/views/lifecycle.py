"""The lifecycle phase of a run: `phase = phase_of(state)`. Derived from the state, which is a fold over events.

Each action that a run can take (`holdfast.core.run.state.next_actions`) is one of six kinds (`kind_of`). The phase
follows from the next action, or from the calls under way that the run waits for. `RunState.status` differs from it:
people search by status for the runs that need them. A run is

- instantiated: it has started, and its agent is not loaded yet;
- evaluating: the LLM is called, or the calls in its reply are judged;
- executing: tool calls run, or the `verify` tools record the state of the world for an approval request, or the run
  makes an internal call (`holdfast.core.run.rules.closing_work`);
- mutating: messages from people are added to the transcript, as soon as an LLM call under way has ended;
- delegating: it waits only for sub-agents, or cancels those in the background before it completes;
- dormant: it waits for a decision, a message, `retry`, `resume` or a time, as its status indicates;
- re-entering: it verifies the state of the world before it acts, after a long pause or after a closed run with effects
  under way;
- terminated: it is over. A further run of the thread begins as instantiated.

An event keeps the phase, or changes it as follows:

    instantiated → evaluating, executing, mutating, dormant, re-entering, terminated
    evaluating → executing, mutating, delegating, dormant, re-entering, terminated, instantiated
    executing → evaluating, mutating, delegating, dormant, re-entering, instantiated
    delegating → evaluating, executing, mutating, dormant, re-entering, instantiated
    mutating → evaluating, dormant, re-entering, terminated, instantiated
    dormant → evaluating, executing, mutating, delegating, re-entering, terminated, instantiated
    re-entering → evaluating, executing, mutating, delegating, dormant, terminated, instantiated
    terminated → instantiated

An open run becomes instantiated if it was closed from outside, and the thread was started again.
"""

from collections.abc import Mapping
from typing import Literal, assert_never

from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.state import next_actions as act
from holdfast.core.run.state.calls import Phase as CallPhase
from holdfast.core.run.state.state import RunState

Kind = Literal["execution", "mutation", "delegation", "dormancy", "re-entry", "termination"]

Phase = Literal[
    "instantiated", "evaluating", "executing", "mutating", "delegating", "dormant", "re-entering", "terminated"
]

PHASES: Mapping[Kind, Phase] = {
    "execution": "executing",
    "mutation": "mutating",
    "delegation": "delegating",
    "dormancy": "dormant",
    "re-entry": "re-entering",
    "termination": "terminated",
}
"""Kind of the next action → the phase, if `phase_of` has no narrower one."""


def kind_of(action: act.Action) -> Kind:
    """Return the kind of an action."""
    match action:
        case (
            act.LoadAgent()
            | act.LoadPolicy()
            | act.CallLLM()
            | act.Compact()
            | act.StartCalls()
            | act.NoteProgress()
            | act.AskForLearnings()
            | act.Poll()
        ):
            return "execution"
        case act.EndSubagents():
            return "delegation"
        case act.ReportBudget():
            return "execution"
        case act.TakeMessages():
            return "mutation"
        case act.Wait() | act.Block():
            return "dormancy"
        case act.Verify() | act.ResolveCalls():
            return "re-entry"
        case act.Complete() | act.Fail() | act.Finish():
            return "termination"
        case _:
            assert_never(action)


def phase_of(state: RunState) -> Phase:
    """Return the phase after the last event, regardless of the time that has passed since."""
    if state.spec is None and not state.outcome:
        return "instantiated"
    action = next_action(state, at=state.updated_at)
    match action:
        case act.CallLLM() | act.Compact() | act.AskForLearnings() | act.ReportBudget() | act.Complete() | act.Fail():
            return "evaluating"
        case act.LoadPolicy():
            return "evaluating"
        case act.Verify(baseline=True):
            return "executing"
        case act.Poll():
            return "dormant"
        case act.Wait() if state.awaits_subagents:
            return "delegating"
        case act.Wait() if state.running_calls:
            return "executing"
        case act.Wait() if _has_call(state, "requested") or _has_call(state, "previewing"):
            return "evaluating"
        case _:
            return PHASES[kind_of(action)]


def _has_call(state: RunState, phase: CallPhase) -> bool:
    return any(call.phase == phase for call in state.calls.current)

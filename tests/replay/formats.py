"""Everything that outlives a release, computed from the code: stored and signed formats, and names in Temporal's
histories.

`tests/replay/frozen/RELEASE.json` has it as each release had it; `docs/adr/0016-frozen-formats.md` says what may
change, and how.
"""

import hashlib
from typing import Any

from temporalio import workflow

from holdfast.config.policy_forms import PolicyForm
from holdfast.core.authority.interventions import Message, Refinement
from holdfast.core.authority.statements import AuthorityDelegation, Decision, Lift, Revocation
from holdfast.core.base.canonical import GENESIS
from holdfast.core.base.models import Frozen
from holdfast.core.log.upcasters import CURRENT, EVENT_CLASSES
from holdfast.core.loop.activities import LOOP_ACTIVITIES
from holdfast.core.loop.state import LoopInput, LoopResult
from holdfast.core.mac.starts import Start
from holdfast.core.mac.vouched import PersonInput
from holdfast.core.run.contracts import activity_calls, called, error_types, runs
from holdfast.core.run.contracts.activity_calls import ACTIVITY_CALL_WORKFLOW, ActivityCall, ActivityCalled
from holdfast.core.run.contracts.called import AgentState, ReadRequest, Said, SayRequest
from holdfast.core.run.contracts.llm_calls import Failures, LLMFailed
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, SCHEDULED_WORKFLOW, WORKFLOW, RunInput, RunResult
from holdfast.core.run.contracts.table import ACTIVITIES, Activity
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES
from holdfast.core.run.state.features import LEVELS
from holdfast.core.schedule.launching import ScheduledInput, ScheduledResult
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.storage.pool import MIGRATIONS
from holdfast.workflows import WORKFLOWS
from tests.replay.goldens import goldens
from tests.replay.schemas import EVENT_TYPES, fields_of

CALLS: tuple[Activity[Any, Any, Any], ...] = (*ACTIVITIES.values(), *LOOP_ACTIVITIES)

STATEMENTS = (Decision, AuthorityDelegation, Revocation, Lift, Message, Refinement)
"""Statements that people send and may sign."""

INPUTS: dict[str, tuple[type[Start], type[Frozen]]] = {
    WORKFLOW: (RunInput, RunResult),
    LOOP_WORKFLOW: (LoopInput, LoopResult),
    SCHEDULED_WORKFLOW: (ScheduledInput, ScheduledResult),
    ACTIVITY_CALL_WORKFLOW: (ActivityCall, ActivityCalled),
}
"""Workflow → its input and result."""

Formats = dict[str, Any]


def formats() -> Formats:
    """Return all formats of the current code, as JSON."""
    begins = [each for pair in INPUTS.values() for each in pair]
    exchanged = [each for call in CALLS for each in (call.request, call.answer)]
    called_by_programs = (PersonInput, SayRequest, Said, ReadRequest, AgentState)
    models = fields_of([*begins, *exchanged, *called_by_programs, *EVENT_CLASSES, Failures, LLMFailed, *STATEMENTS])
    return {
        "feature levels": {str(level): text for level, text in LEVELS.items()},
        "events": {
            kind: {"schema_version": CURRENT[kind], "fields": models.pop(name)}
            for name, kind in sorted(EVENT_TYPES.items(), key=lambda pair: pair[1])
        },
        "models": models,
        "policy file": fields_of([PolicyForm]),
        "activities": {call.name: f"{call.request.__name__} -> {call.answer.__name__}" for call in CALLS},
        "workflows": {kind.__name__: _workflow(kind) for kind in WORKFLOWS},
        "signals": {name: f"from level {level}" for name, level in SIGNALS.items()},
        "updates": {name: f"from level {level}" for name, level in UPDATES.items()},
        "names": {
            name: value
            for module in (error_types, runs, activity_calls, called)
            for name, value in vars(module).items()
            if name.isupper() and isinstance(value, str)
        }
        | {"GENESIS": GENESIS},
        "search attributes": dict(SEARCH_ATTRIBUTES),
        "migrations": {
            file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(MIGRATIONS.glob("*.sql"))
        },
        "golden": goldens(),
    }


def _workflow(kind: type) -> Formats:
    """Return the names by which Temporal reaches a workflow: its own, and those of its signals, updates and queries."""
    definition = workflow._Definition.must_from_class(kind)
    begin, result = INPUTS[str(definition.name)]
    handlers = {"signal": definition.signals, "update": definition.updates, "query": definition.queries}
    names = {f"{what} {name or '(any other)'}": "handled" for what, handled in handlers.items() for name in handled}
    return {"name": definition.name, "input": begin.__name__, "result": result.__name__, **names}

"""The signals in the menu of Temporal's Web UI.

The Web UI asks a workflow for its handlers. Signals of later feature levels share one handler, so that older histories
replay (`holdfast.core.run.inputs.interventions.Intervention.signal`), and the SDK would list that as an entry without
a name. Here its answer lists the names instead. Delivery stays as it is: nothing of this is in history.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from temporalio.api.sdk.v1 import WorkflowInteractionDefinition, WorkflowMetadata

_METADATA = "__temporal_workflow_metadata"
"""The SDK's query that the Web UI sends."""


def list_signals(descriptions: Callable[[], Mapping[str, str]]) -> None:
    """Have the workflow that is being initialized list further signals, in place of the entry without a name.

    Args:
        descriptions: Returns the names of the signals, each with its description.
    """
    # The SDK offers no other way. The event loop is its instance of the workflow, which holds the query handlers.
    queries = asyncio.get_running_loop().__dict__["_queries"]
    own = queries[_METADATA]

    def metadata() -> WorkflowMetadata:
        answer: WorkflowMetadata = own.fn()
        listed = [each for each in answer.definition.signal_definitions if each.name]
        listed += [WorkflowInteractionDefinition(name=n, description=text) for n, text in descriptions().items()]
        del answer.definition.signal_definitions[:]
        answer.definition.signal_definitions.extend(sorted(listed, key=lambda each: each.name))
        return answer

    queries[_METADATA] = replace(own, fn=metadata)

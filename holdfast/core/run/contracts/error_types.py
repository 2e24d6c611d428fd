"""The types of the errors that end activities and runs. Temporal records them, so their values are frozen."""

from datetime import timedelta

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError

EFFECT_SETTLING = "EffectSettling"
"""A retryable error: the attempt has to wait until no request of a lost attempt can still arrive."""

NODE_DECLINED = "NodeDeclined"
"""A retryable error: this node does not take the work; another one may."""

# Types of non-retryable errors: no further attempt can succeed.
AGENT_NOT_FOUND = "AgentNotFound"
AGENT_UNFIT = "AgentUnfit"
"""The agent lacks the tools that a loop needs."""
WORKSPACE_NOT_FOUND = "WorkspaceNotFound"
CONTEXT_INVALID = "ContextInvalid"
"""The typed context does not fit the agent's model, or the agent has none."""
TASK_EMPTY = "TaskEmpty"
TASK_TOO_LONG = "TaskTooLong"
TASK_MALFORMED = "TaskMalformed"
AGENT_FUNCTION_FAILED = "AgentFunctionFailed"
"""The cause of a blocked run: a function of the agent gave no instructions or tools."""
BUDGET_UNSUPPORTED = "BudgetUnsupported"
"""The start has a budget, but the worker that loaded the agent is of a release without budgets."""
UNATTENDED_UNSUPPORTED = "UnattendedUnsupported"
"""The start is unattended, but the worker that loaded the agent is of a release without unattended runs."""
NAME_INVALID = "NameInvalid"
"""The name of the person who gives the task could be mistaken for another's."""
START_UNPROVEN = "StartUnproven"
"""The policy requires proof of the requester's identity, but none of our own processes started the run."""
NO_NODE = "NoNode"
"""No node of the run's trust scope took the work."""
LLM_REJECTED = "LLMRejected"
"""The provider rejects the request: wrong key, unknown model, malformed request."""
CONTEXT_TOO_LONG = "ContextTooLong"
"""The request exceeds the LLM's context window."""
LLM_LOST = "LLMCallLost"
"""An attempt may have cost something without a reply: a run with a budget charges it, then calls the LLM again."""
START_REFUSED = "StartRefused"
"""The start sets fields that only a sealed start may set, or is invalid for this thread at this time."""
NOT_SEALED = "NotSealed"
"""A request or an answer was not made by our own processes, or belongs to another call."""
THREAD_EXISTS = "ThreadExists"
"""The run expects its thread to be new, but the permanent record has events of it."""
NOT_SETTLED = "NotSettled"
"""A query exposed some of the events to write early: the run is replayed, and tries again."""
RECORD_CONFLICT = "RecordConflict"
"""The permanent record has other events at these positions, for example after a reset."""
RECORD_UNREADABLE = "RecordUnreadable"
"""The permanent record of the thread is damaged, or has a gap."""


class Waits(ApplicationError):
    """Raised by an attempt that waits, such as for a node, a claim, or an effect's end: it has not failed. A tool's own
    error is never one, not even one of Temporal's category `BENIGN`.

    Args:
        message: What it waits for.
        type: The type that Temporal records.
        next_retry_delay: When Temporal offers the call again; None for the activity's own retries.
    """

    def __init__(self, message: str, *, type: str, next_retry_delay: timedelta | None = None) -> None:
        benign = ApplicationErrorCategory.BENIGN
        super().__init__(message, type=type, category=benign, next_retry_delay=next_retry_delay)


def cause_of(error: FailureError) -> tuple[str, str]:
    """Return type and message of the cause of an activity's failure. For a local activity, the error is the cause."""
    cause = error.cause or error
    name = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    return name, getattr(cause, "message", None) or str(cause)

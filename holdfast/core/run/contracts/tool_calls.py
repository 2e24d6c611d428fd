"""A tool call: its request, its outcome, and the state that one attempt leaves for the next one."""

from typing import Any

from holdfast.core.authority.previews import CallPreview
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import CallResult
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.nodes import NodeTerms, Placement
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.tools.foreign_waits import ForeignTask, Resumption, ServerQuestion
from holdfast.core.tools.progress_file import ProgressFile
from holdfast.core.trust import Origin, Trust


class ToolRequest(ActivityRequest):
    """The input of `call_tool`: a tool call whose start the log has recorded."""

    call: ToolCall
    key: str
    """The effect key; the activity recomputes it from the call, its number and the chain of runs."""
    number: int = 0
    """The call's number in the thread; 0 for one that the LLM did not request."""
    first_run_id: str = ""
    """The first run id of the chain of runs that computed the effect's key; empty for the calling run's."""
    epoch: int = 0
    """How often a person has said that the effect did not happen: each epoch has its own row in the ledger."""
    workspace: str
    clip: int = 8_000
    """Maximum characters of the result."""
    max_worker_deaths: int = 3
    """Maximum number of worker crashes during the call; after that, it is not attempted again."""
    undo: bool = False
    """Undo the effect, instead of causing it."""
    settle: bool = False
    """Determine the outcome of the effect, and cause nothing."""
    origin: Origin | None = None
    """The origin of the call, for tools that ask for it."""
    poll: int = 0
    """The number of this poll for the sleeping call that `number` names; 0 for any other call."""
    context: dict[str, Any] | None = None
    """The typed context, for tools that want it."""
    writes: tuple[str, ...] = ()
    """The fields of the context that the call may change."""
    cannot: bool = False
    """The run accepts the status `cannot`; one of a lower feature level gets `failed` instead."""
    names_artifacts: bool = False
    """The run accepts `ToolOutcome.artifacts`; for one of a lower feature level, the text names them."""
    failures: bool = False
    """The run accepts `cause` and `failures` of an outcome, unlike one of a lower feature level."""
    partial: bool = False
    """The run accepts `ToolOutcome.missing`; for one of a lower feature level, the text has it."""
    stacks: bool = False
    """The run accepts `ToolOutcome.stack`, unlike one of a lower feature level."""
    settles: bool = False
    """The run accepts `settles_in` of an outcome; for one of a lower feature level, the text has it."""
    nodes: NodeTerms | None = None
    """The terms for the node that runs the call; None for any node. With terms, the outcome has a placement."""
    reroutes: bool = False
    """The run makes the call elsewhere if the tool cannot run on this node; otherwise that refuses the call alone."""
    trust: Trust | None = None
    """The trust level of the LLM's output, which follows from its context. None below the feature level at which every
    run keeps it: then no file is marked, and no result is labelled by its files.
    """
    pin: str = ""
    """The pin of the foreign tool that the LLM was shown; empty for any other tool."""
    progress: ProgressFile | None = None
    """The agent's progress file, for tools that write it, if a note commits something or the file is another one than
    usual. None below the feature level of that.
    """
    base: str = ""
    """The base of the preview by which people approved the call: under another base, it does not run. Empty for any."""
    pends: bool = False
    """The run accepts `question` and `task` of an outcome; for one of a lower feature level, the call fails."""
    resumed: Resumption | None = None
    """What the call continues with; None for one that begins."""
    cancels: bool = False
    """Cancel the task that `resumed` names, instead of reading its state."""


class PreviewRequest(ActivityRequest):
    """The input of `preview_call`: a tool call that people are about to be asked about. Nothing of it has run."""

    request: str
    """Id of the announced request."""
    call: ToolCall
    key: str
    """The effect key that the call would have."""
    workspace: str
    context: dict[str, Any] | None = None
    """The typed context, for tools that want it."""
    nodes: NodeTerms | None = None
    """The nodes that may compute it; None for any node."""


class PreviewedCall(ActivityResult):
    """The result of `preview_call`."""

    preview: CallPreview


NO_REASON = "the outcome is unknown"
"""What a request about an unknown outcome says if the outcome has no text."""


class InDoubt(Frozen):
    """The end of a tool's function that left it unknown whether the effect had happened."""

    content: str
    """The text for the LLM, if the effect turns out not to have happened."""
    cause: FailureKind | None = None
    running: bool = False
    """The function timed out, and its thread may still be running."""


class EarlierAttempts(ActivityResult):
    """The state that an attempt of `call_tool` leaves for the next one: the failures of the call so far."""

    deaths: int = 0
    """How many workers crashed during the call."""
    failures: FailedAttempts | None = None
    raised: int = 0
    """How often an idempotent tool has raised."""
    in_doubt: InDoubt | None = None
    """The end of the call, while it is unknown whether its effect has happened."""


class ToolOutcome(CallResult, ActivityResult):
    """The result of `call_tool`. Status `unknown`: the effect may have happened, and a person has to resolve that."""

    settles_in: float | None = None
    """With the status `unknown`: for how many seconds after the outcome a request of the call may still arrive."""
    changes: dict[str, Any] | None = None
    """The new values of some fields of the typed context; None for no change."""
    unfit: str = ""
    """With the status `cannot`: a selector of the nodes that cannot make such calls; empty if this is about all."""
    question: ServerQuestion | None = None
    """What the server asks people before it continues. The status is `failed`, because nothing has happened yet; of a
    poll, `ok`.
    """
    task: ForeignTask | None = None
    """The call continues as this task: with the status `failed`, or `ok` once it does."""
    task_ended: bool = False
    """The task has ended: of a poll without a result, there is no other."""
    placement: Placement | None = None
    """If the request has terms for nodes: the node that took the call. If none did, it has not run."""

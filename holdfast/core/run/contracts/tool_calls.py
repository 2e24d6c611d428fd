"""A tool call: its request, its outcome, and the state that one attempt leaves for the next one."""

from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import CallResult
from holdfast.core.mac.seals import Answer, Order
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.trust import Origin, Trust


class ToolRequest(Order):
    """The input of `call_tool`: the intent to run a tool call, which the log has recorded."""

    call: ToolCall
    key: str
    """The effect key; the activity recomputes it from the call, its number and the chain of runs."""
    number: int = 0
    """The call's number in the thread; 0 for one that no LLM asked for."""
    first_run_id: str = ""
    """The first run id of the chain of runs that gave the effect its key; empty for the calling run's."""
    epoch: int = 0
    """How often a person has said that the effect did not happen: each epoch has its own row in the ledger."""
    workspace: str
    clip: int = 8_000
    """How many characters of the result are kept."""
    max_worker_deaths: int = 3
    """How many workers may die during the call before it is not attempted again."""
    undo: bool = False
    """Undo the effect, instead of causing it."""
    settle: bool = False
    """Determine the outcome of the effect, and cause nothing."""
    origin: Origin | None = None
    """The origin of the call, for tools that ask for it."""
    poll: int = 0
    """The number of the poll that this is, of a call that sleeps and that `number` names; 0 for any other call."""
    cannot: bool = False
    """The run takes the status `cannot`; one of a lower feature level takes `failed` in its place."""
    names_artifacts: bool = False
    """The run takes `ToolOutcome.artifacts`; one of a lower feature level finds them in the text."""
    failures: bool = False
    """The run takes `cause` and `failures` of an outcome; one of a lower feature level does not."""
    settles: bool = False
    """The run takes `settles_in` of an outcome; one of a lower feature level finds that in the text."""
    trust: Trust | None = None
    """The trust level of what the LLM writes, given everything it has read; None below the feature level at which every
    run keeps it: then no file is marked, and no result is labelled by its files.
    """


class InDoubt(Frozen):
    """How a tool's function ended that did not say whether its effect had happened."""

    content: str
    """For the LLM, if it turns out not to have happened."""
    cause: FailureKind | None = None
    running: bool = False
    """It took too long, and its thread may still be running."""


class EarlierAttempts(Answer):
    """The state that an attempt of `call_tool` leaves for the next one: how the attempts at the call have failed."""

    deaths: int = 0
    """How many workers died during the call."""
    failures: FailedAttempts | None = None
    raised: int = 0
    """How often an idempotent tool has raised."""
    in_doubt: InDoubt | None = None
    """How the call ended, while it is not known yet whether its effect has happened."""


class ToolOutcome(CallResult, Answer):
    """The result of `call_tool`. Status `unknown`: the effect may have happened, and a person has to find out."""

    settles_in: float | None = None
    """With the status `unknown`: seconds from the outcome in which a request of the call may still arrive."""

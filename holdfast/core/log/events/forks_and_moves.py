"""Events by which a thread continues as another thread or on another cluster: it is forked, moved or imported."""

from typing import Literal

from holdfast.core.authority.policy import Policy
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint


class RunForked(Event):
    """The thread was forked from another one: the earlier events are the other thread's, byte for byte, under its id.
    Decisions made there authorize nothing here, and its effects require approval (`holdfast.core.run.rules.forks`).

    Followed by: `tool_call_finished` for each call that was open there, then `run_started`.
    Correlate: `point.head` is the digest of the event before; `first_run_id` is that of the `run_started`.
    """

    type: Literal["run_forked"] = "run_forked"
    thread: str
    """The id of this thread, to which all later events belong."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins with the fork."""
    point: ForkPoint
    """The thread that it was forked from, and the last event taken from it."""
    origin: str
    """The id of the thread to which that event belongs: that thread, or one that it was itself forked from."""
    by: str = ""
    """The person who forked it."""
    imported: ImportPoint | None = None
    """The file that the other thread's events come from; None if that thread belongs to this cluster."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""
    llm: str = ""
    """The LLM of its agents; empty for their own."""
    policies: tuple[Policy, ...] = ()
    """Policies that judge its calls in addition to its agent's. The strictest verdict counts, so they can only
    restrict."""


class MoveRequested(Event, Proven):
    """A person asked to move the run to another cluster. Nothing new starts, and running tools end first. Recorded from
    feature level 1 on.

    Followed by: `tool_call_finished` for each running tool, then `run_finished` with the outcome `moved`.
    """

    type: Literal["move_requested"] = "move_requested"
    by: str
    reason: str = ""
    to: str = ""
    """The id of the only cluster that may import it (`holdfast import --place`); empty for any."""


class RunImported(Event):
    """The thread continues here from a portable file: the earlier events are the file's, byte for byte. A closed run
    stays closed. Calls and requests that were open on the other cluster are open here; decisions made there count only
    if this cluster's policy accepts them (`holdfast.core.run.inputs.import_run`). Recorded from feature level 1 on.

    Followed by: for a moved run, `agent_loaded`, then `tool_call_finished` for calls that cannot stay open, and
    `approval_requested` for each call that must be judged again.
    Correlate: `point.head` is the digest of the event before.
    """

    type: Literal["run_imported"] = "run_imported"
    run_id: str
    """Temporal's id of the run that continues the thread here."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins here. Existing effects keep the run id in their
    keys."""
    point: ImportPoint
    """The imported file."""
    by: str = ""
    """The person who imported it."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""

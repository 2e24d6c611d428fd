"""The events by which a thread continues in another one, or in another place: it is forked, moved or imported."""

from typing import Literal

from holdfast.core.authority.policy import Policy
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint


class RunForked(Event):
    """The thread was forked from another one: the events before this one are the other thread's, byte for byte, under
    its id. What people decided there lets nothing run here; its effects ask first (`holdfast.core.run.rules.forks`).

    Followed by: `tool_call_finished` for each call that was open there, then `run_started`.
    Correlate: `point.head` is the digest of the event before; `first_run_id` is that of the `run_started`.
    """

    type: Literal["run_forked"] = "run_forked"
    thread: str
    """The id of this thread, to which all that follows belongs."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins with the fork."""
    point: ForkPoint
    """The thread that it was forked from, and its last event here."""
    origin: str
    """The id of the thread to which that event belongs: that thread, or one that it was itself forked from."""
    by: str = ""
    """Who forked it."""
    imported: ImportPoint | None = None
    """The file from which the other thread's events come; None where it is a thread of this place."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""
    llm: str = ""
    """The LLM of its agents; empty for their own."""
    policies: tuple[Policy, ...] = ()
    """Policies that judge its calls beside its agent's: the strictest verdict counts, so none of them allows more."""


class MoveRequested(Event, Proven):
    """A person asked for the run to be moved to another place. Nothing starts any more, and tools under way end first.
    Recorded from feature level 1 on.

    Followed by: `tool_call_finished` for each tool under way, then `run_finished` with the outcome `moved`.
    """

    type: Literal["move_requested"] = "move_requested"
    by: str
    reason: str = ""
    to: str = ""
    """The id of the only place that may import it (`holdfast import --place`); empty for any."""


class RunImported(Event):
    """The thread continues here, from a portable file: the events before this one are the file's, byte for byte. A run
    that is closed stays closed. What was open where it was moved away is open here; what people decided there counts
    where the policy of this place vouches for it (`holdfast.core.run.inputs.import_run`). Recorded from feature level 1
    on.

    Followed by: for a run that was moved, `agent_loaded`, then the ends of calls that cannot stay open, and
    `approval_requested` for each call that is to be judged anew.
    Correlate: `point.head` is the digest of the event before.
    """

    type: Literal["run_imported"] = "run_imported"
    run_id: str
    """Temporal's id of the run that continues the thread here."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins here. Effects keep the one that names them."""
    point: ImportPoint
    """What was imported."""
    by: str = ""
    """Who imported it."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""

"""What can go wrong at the front door to threads (`holdfast.runtime.threads`). The CLI gives each an exit code.

HoldfastError
├── TaskInvalid          the task is empty, too long or not text
├── ThreadIdInvalid      a thread id that cannot be used
├── ThreadExists         a run of that thread is open
├── FleetKeyMissing      only who has the fleet key may start this
├── StatusInvalid        no such status
├── PositionInvalid      the thread has no event at that position
├── ThreadNotFound       no thread of that id
├── AgentNotFound        the worker's catalog has no such agent
├── WorkspaceNotFound    the workspace is not a folder on the worker
├── Refused              the run is not in a state for what was asked
├── QueryRefused         a worker answered that it cannot answer
├── EventsMissing        earlier events of the thread are nowhere to be read
├── LogBroken            what Temporal has does not follow from what the permanent record has
├── AnswerForged         something answered for a run that is not one of our workers
├── RecordAway           the permanent record does not answer
└── ServerUnreachable
    ├── NoWorker         Temporal answers, but no worker does
    │   └── RunPaused    somebody has paused the run in Temporal
    └── RunStuck         a worker has the run, but its code cannot go on with it
"""

from holdfast.errors import HoldfastError, ServerUnreachable


class TaskInvalid(HoldfastError):
    """The task is empty, too long or not text."""


class ThreadIdInvalid(HoldfastError):
    """A thread id that cannot be used."""


class ThreadExists(HoldfastError):
    """A run of that thread is open."""


class FleetKeyMissing(HoldfastError):
    """Only who has the fleet key may start this."""


class StatusInvalid(HoldfastError):
    """No such status."""


class PositionInvalid(HoldfastError):
    """The thread has no event at that position."""


class ThreadNotFound(HoldfastError):
    """No thread of that id."""


class AgentNotFound(HoldfastError):
    """The worker's catalog has no such agent."""


class WorkspaceNotFound(HoldfastError):
    """The workspace is not a folder on the worker."""


class AnswerForged(HoldfastError):
    """Something answered for a run that is not one of our workers."""


class Refused(HoldfastError):
    """The run is not in a state for what was asked."""


class QueryRefused(HoldfastError):
    """A worker answered that it cannot answer."""


class EventsMissing(HoldfastError):
    """Earlier events of the thread are nowhere to be read.

    Args:
        message: What is missing, why, and what to do.
        stop: Position of the first event after them; None where nobody can tell.
    """

    def __init__(self, message: str, *, stop: int | None) -> None:
        super().__init__(message)
        self.stop = stop


class LogBroken(HoldfastError):
    """What Temporal has does not follow from what the permanent record has."""


class RecordAway(HoldfastError):
    """The permanent record does not answer."""


class NoWorker(ServerUnreachable):
    """Temporal answers, but no worker does."""


class RunPaused(NoWorker):
    """Somebody has paused the run in Temporal."""


class RunStuck(ServerUnreachable):
    """A worker has the run, but its code cannot go on with it."""

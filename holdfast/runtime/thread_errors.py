"""What can go wrong at the front door to threads (`holdfast.runtime.threads`). The CLI gives each an exit code.

HoldfastError
├── TaskInvalid          the task is empty, too long or not text
├── ThreadIdInvalid      a thread id that cannot be used
├── ThreadExists         the thread id is taken, by a run that is open or closed
├── StatusInvalid        no such status
├── ThreadNotFound       no thread of that id
├── AgentNotFound        the worker's catalog has no such agent
├── WorkspaceNotFound    the workspace is not a folder on the worker
├── Refused              the run is not in a state for what was asked
├── QueryRefused         a worker answered that it cannot answer
└── ServerUnreachable
    ├── NoWorker         Temporal answers, but no worker does
    └── RunStuck         a worker has the run, but its code cannot go on with it
"""

from holdfast.errors import HoldfastError, ServerUnreachable


class TaskInvalid(HoldfastError):
    """The task is empty, too long or not text."""


class ThreadIdInvalid(HoldfastError):
    """A thread id that cannot be used."""


class ThreadExists(HoldfastError):
    """The thread id is taken, by a run that is open or closed."""


class StatusInvalid(HoldfastError):
    """No such status."""


class ThreadNotFound(HoldfastError):
    """No thread of that id."""


class AgentNotFound(HoldfastError):
    """The worker's catalog has no such agent."""


class WorkspaceNotFound(HoldfastError):
    """The workspace is not a folder on the worker."""


class Refused(HoldfastError):
    """The run is not in a state for what was asked."""


class QueryRefused(HoldfastError):
    """A worker answered that it cannot answer."""


class NoWorker(ServerUnreachable):
    """Temporal answers, but no worker does."""


class RunStuck(ServerUnreachable):
    """A worker has the run, but its code cannot go on with it."""

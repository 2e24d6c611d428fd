"""The errors Holdfast raises on purpose. Each message says what happened, which id, and what to do next.

    HoldfastError
    ├── SettingsError        a setting has a value that cannot be used
    ├── LoadError            "module:attribute" does not lead to the object asked for
    ├── StackError           a server that is needed cannot start, or lacks something
    ├── ServerUnreachable    no Temporal server answers
    │   ├── NoWorker         Temporal answers, but no worker does
    │   │   └── RunPaused    somebody has paused the run in Temporal
    │   └── RunStuck         a worker has the run, but its code cannot go on with it
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
    ├── RecordUnavailable           the permanent record does not answer
    ├── ToolSignatureError   a function cannot become a tool
    ├── CatalogError         agents and tools of a catalog do not fit together
    ├── PolicyError          a policy file cannot be used
    ├── SkillInvalid         a skill cannot be used (`holdfast.agents.skills`)
    ├── MemoryRefused        a memory file cannot be changed, or a repository committed to (`holdfast.memory.errors`)
    ├── ItemRefused          something cannot be remembered, superseded or forgotten so (`holdfast.memory.semantic`)
    ├── ItemNotFound         no item of semantic memory has this id
    ├── TranscriptMismatch   messages do not have the digest that the workflow computed
    ├── HistoryUnreadable    a Temporal history is no agent run's, is cut short, or does not decode
    ├── HistoryFileNotFound  there is no such file
    ├── HistoryFileInvalid   a file holds no agent run's history
    ├── EventUnreadable      a stored event is none, or of a version that this release does not know
    ├── RecordConflict       the permanent record holds another event at this position
    ├── RecordGap            events before this position are missing in the permanent record
    ├── RecordUnreadable     a line of the permanent record does not decode, is missing, or was altered
    │   └── EventOutOfPlace  an event follows from nothing that was recorded before it
    ├── ArtifactNotFound     no artifact has this address
    ├── ArtifactAltered      what is kept at an artifact's address has another digest
    ├── SecretNotDeclared    a tool asks for a secret that it does not name
    ├── DecryptionFailed     an encrypted payload cannot be read: KeyUnknown, PayloadAltered
    └── BodyInvalid          a request to the codec server is not what the protocol says

What goes wrong inside a run is not raised: it is an event (`holdfast.log.events`) or a tool result the LLM can read.
"""

from collections.abc import Iterable
from typing import NamedTuple


class HoldfastError(Exception):
    """Base of every error Holdfast raises on purpose; its text is fit to show to a user."""


class SettingsError(HoldfastError):
    """A setting has a value that cannot be used."""


class LoadError(HoldfastError):
    """`module:attribute` does not lead to the object asked for."""


class StackError(HoldfastError):
    """A server that is needed cannot start, or lacks something."""


class ServerUnreachable(HoldfastError):
    """No Temporal server answers."""


class ToolSignatureError(HoldfastError):
    """A function cannot become a tool: its parameters do not translate to a JSON schema."""


class CatalogError(HoldfastError):
    """The agents and tools of a catalog do not fit together."""


class PolicyProblem(NamedTuple):
    """One thing that is wrong with a policy file."""

    file: str
    line: int
    """From 1; 0 where it is the file as a whole."""
    column: int
    field: str
    """`rules[3].when`; empty where it is no field's."""
    message: str

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{place}: " + (f"{self.field}: " if self.field else "") + self.message


class PolicyError(HoldfastError):
    """A policy file cannot be used; the text has a line for each thing that is wrong.

    Args:
        problems: All of them, in the order of the file.
    """

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class TranscriptMismatch(HoldfastError):
    """Messages read back do not have the digest that the workflow computed."""


class HistoryUnreadable(HoldfastError):
    """A Temporal history is no agent run's, is cut short, or does not decode."""


class RecordConflict(HoldfastError):
    """The permanent record holds another event at this position than the one to be appended."""


class RecordGap(HoldfastError):
    """Events before the position to append at are missing in the permanent record."""


class RecordUnreadable(HoldfastError):
    """A line of the permanent record does not decode, is missing, or was altered."""


class EventOutOfPlace(RecordUnreadable):
    """An event follows from nothing that was recorded before it: no run of ours has written it."""


class ArtifactNotFound(HoldfastError):
    """No artifact has this address."""


class ArtifactAltered(HoldfastError):
    """What is kept at an artifact's address is not what was put there: its digest is another."""


class HistoryFileNotFound(HoldfastError):
    """There is no such file."""


class HistoryFileInvalid(HoldfastError):
    """A file holds no agent run's history."""


class EventUnreadable(HoldfastError):
    """A stored event is none, or of a version that this release does not know."""


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


class RecordUnavailable(HoldfastError):
    """The permanent record does not answer."""


class NoWorker(ServerUnreachable):
    """Temporal answers, but no worker does."""


class RunPaused(NoWorker):
    """Somebody has paused the run in Temporal."""


class RunStuck(ServerUnreachable):
    """A worker has the run, but its code cannot go on with it."""

"""The errors Holdfast raises on purpose. Each message says what happened, which id, and what to do next.

    HoldfastError
    ├── SettingsError        a setting has an invalid value
    ├── LoadError            `module:attribute` does not name the expected object
    ├── StackError           a required server cannot start or lacks a required feature
    ├── ServerUnreachable    no Temporal server responds
    │   ├── NoWorker         Temporal responds, but no worker does
    │   │   └── RunPaused    the run was paused in Temporal
    │   ├── TreeNotRead      a run of a tree could not be read within the time limit for the tree
    │   └── RunStuck         a worker has the run, but its code cannot advance it
    ├── TaskInvalid          the task is empty, too long or not text
    ├── ContextInvalid       a typed context of a run is no instance of its model, too large, or holds a secret
    ├── ThreadIdInvalid      the thread id is not valid
    ├── ThreadExists         the thread has an open run
    │   └── TaskDiffers      the thread was started with another task, agent, context or conversation, or other nodes
    ├── ScheduleInvalid      a schedule's name, times or options are not valid
    ├── ScheduleExists       another schedule has this name
    ├── ScheduleNotFound     no schedule has this name
    ├── FleetKeyMissing      the start requires a fleet key
    ├── StatusInvalid        there is no such status
    ├── CursorInvalid        no page of a list returned this cursor
    ├── PositionInvalid      the thread has no event at this position
    ├── ThreadNotFound       no thread has this id
    ├── AgentNotFound        the worker's catalog has no such agent
    ├── WorkspaceNotFound    the workspace is not a folder on the worker
    ├── Refused              the run's state does not permit the request
    │   ├── NotAccepted      the run rejected a decision or a message
    │   └── ImportRefused    a portable file cannot be imported here
    ├── RunFailed            the awaited run failed
    ├── RunCancelled         the awaited run was cancelled
    ├── AttentionNeeded      the awaited run cannot end before a person acts
    ├── ResultNotStructured  the result is not a value of the type
    ├── QueryRefused         a worker cannot answer a query
    ├── EventsMissing        earlier events of the thread are in neither Temporal nor the permanent record
    ├── LogBroken            the events in Temporal and in the permanent record do not form one log
    ├── AnswerForged         a reply on behalf of a run does not come from one of our workers
    ├── RecordUnavailable    the permanent record does not respond
    ├── ToolSignatureError   a function cannot become a tool
    ├── CatalogError         the agents, tools and skills of a catalog are inconsistent
    ├── ResourceFailed       a resource of the catalog could not be opened
    ├── PolicyError          a policy file is invalid
    ├── SkillInvalid         a skill is invalid (`holdfast.core.agents.skills`)
    ├── MemoryRefused        a memory file cannot be changed, or a commit is rejected (`holdfast.core.memory.errors`)
    ├── ItemRefused          semantic memory rejects a change (`holdfast.core.memory.semantic`)
    ├── ItemNotFound         semantic memory has no item with this id
    ├── NotAReply            an LLM endpoint sent something other than a reply
    │                        (`holdfast.activities.llm_calls.llm_replies`)
    ├── NotPortable          a value has no canonical JSON
    ├── TranscriptMismatch   messages do not have the digest that the workflow computed
    ├── HistoryUnreadable    a Temporal history does not belong to an agent run, is truncated, or does not decode
    │   └── HistoryForged    it has values without the MAC of a known fleet key
    ├── HistoryFileNotFound  there is no such file
    ├── HistoryFileInvalid   a file does not hold the history of an agent run
    ├── FileUnreadable       a portable file cannot be opened
    ├── ExportFailed         a thread cannot be exported to this file
    ├── NotPlayable          a recorded run cannot be rerun: its file does not verify, or it is of another kind
    ├── SetInvalid           a dataset of recorded runs cannot be used
    ├── EventUnreadable      a stored event is malformed, or its version is unknown to this release
    ├── FeaturesUnknown      a run has a feature level that this release lacks (`holdfast.core.run.state.features`)
    ├── RecordConflict       the permanent record holds a different event at this position
    ├── RecordGap            the permanent record lacks the events before this position
    ├── RecordUnreadable     a line of the permanent record does not decode, is missing, or was altered
    │   ├── EventOutOfPlace  no run could have recorded this event at its position
    │   └── ThreadForgotten  the content of the thread was removed on request
    ├── BackupInvalid        a backup cannot be used: it was altered, or does not fit the database
    ├── ArtifactNotFound     no artifact is stored at this address
    ├── ArtifactAltered      the content at an artifact's address has a different digest
    ├── CallRefused          middleware rejects a call (`holdfast.core.agents.middleware`)
    ├── SecretNotDeclared    a tool requests a secret that it does not declare
    ├── DecryptionFailed     an encrypted payload cannot be read: KeyUnknown, PayloadAltered
    └── BodyInvalid          a request to the codec server violates the protocol

Failures inside a run are not raised: they become events (`holdfast.core.log.events`) or tool results that the LLM
reads.
"""

from collections.abc import Iterable
from typing import NamedTuple


class HoldfastError(Exception):
    """Base of every error Holdfast raises on purpose; its message is meant for users."""


class SettingsError(HoldfastError):
    """A setting has an invalid value."""


class LoadError(HoldfastError):
    """`module:attribute` does not name the expected object."""


class StackError(HoldfastError):
    """A required server cannot start or lacks a required feature."""


class ServerUnreachable(HoldfastError):
    """No Temporal server responds."""


class ToolSignatureError(HoldfastError):
    """A function cannot become a tool: its parameters do not translate to a JSON schema."""


class CatalogError(HoldfastError):
    """The agents, tools and skills of a catalog are inconsistent."""


class ResourceFailed(HoldfastError):
    """A resource of the catalog could not be opened, so the worker does not start."""


class PolicyProblem(NamedTuple):
    """One problem in a policy file."""

    file: str
    line: int
    """From 1; 0 if the problem concerns the whole file."""
    column: int
    field: str
    """Such as `rules[3].when`; empty if the problem concerns no field."""
    message: str

    def __str__(self) -> str:
        position = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.file}{position}: " + (f"{self.field}: " if self.field else "") + self.message


class PolicyError(HoldfastError):
    """A policy file is invalid; the message has one line for each problem.

    Args:
        problems: All problems, in the order of the file.
    """

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class NotPortable(HoldfastError, ValueError):
    """A value has no canonical JSON, so parsers may disagree about it. The message names the offending content."""


class TranscriptMismatch(HoldfastError):
    """Messages read from storage do not have the digest that the workflow computed."""


class HistoryUnreadable(HoldfastError):
    """A Temporal history does not belong to an agent run, is truncated, or does not decode."""


class HistoryForged(HistoryUnreadable):
    """A Temporal history was not written by our own processes: a MAC is missing, wrong, or made with an unknown key."""


class RecordConflict(HoldfastError):
    """The permanent record already holds a different event at the position to append at."""


class RecordGap(HoldfastError):
    """The permanent record lacks events before the position to append at."""


class RecordUnreadable(HoldfastError):
    """A line of the permanent record does not decode, is missing, or was altered."""


class EventOutOfPlace(RecordUnreadable):
    """No run could have recorded this event at its position, given the events before it."""


class ThreadForgotten(RecordUnreadable):
    """The content of the thread was removed on request; the digests of its events remain."""


class BackupInvalid(HoldfastError):
    """A backup cannot be used: it was altered, is incomplete, or does not fit the database."""


class ArtifactNotFound(HoldfastError):
    """No artifact is stored at this address."""


class ArtifactAltered(HoldfastError):
    """The content at an artifact's address has a different digest from the stored content."""


class HistoryFileNotFound(HoldfastError):
    """There is no such file."""


class HistoryFileInvalid(HoldfastError):
    """A file does not hold the history of an agent run."""


class FileUnreadable(HoldfastError):
    """A portable file cannot be opened."""


class ExportFailed(HoldfastError):
    """A thread cannot be exported to this file."""


class NotPlayable(HoldfastError):
    """A recorded run cannot be rerun: its file does not verify, or runs of its kind cannot be rerun."""


class SetInvalid(HoldfastError):
    """A dataset of recorded runs cannot be used: its file has errors, or it names no run."""


class EventUnreadable(HoldfastError):
    """A stored event is malformed, or its version is unknown to this release."""


class FeaturesUnknown(HoldfastError):
    """A run has a feature level that this release lacks; it needs a worker of a newer release."""


class TaskInvalid(HoldfastError):
    """The task is empty, too long or not text, or the conversation that comes with it cannot be used."""


class ContextInvalid(HoldfastError):
    """The typed context of a run does not fit its model, is too large, or holds the value of a secret."""


class ThreadIdInvalid(HoldfastError):
    """The thread id is not valid."""


class ThreadExists(HoldfastError):
    """The thread has an open run."""


class TaskDiffers(ThreadExists):
    """The thread was started with another task, agent, context or conversation, or other nodes."""


class ScheduleInvalid(HoldfastError):
    """A schedule's name, times or options are not valid."""


class ScheduleExists(HoldfastError):
    """Another schedule has this name."""


class ScheduleNotFound(HoldfastError):
    """No schedule has this name."""


class FleetKeyMissing(HoldfastError):
    """The start requires a fleet key."""


class StatusInvalid(HoldfastError):
    """There is no such status."""


class CursorInvalid(HoldfastError):
    """No page of a list returned this cursor."""


class PositionInvalid(HoldfastError):
    """The thread has no event at this position."""


class ThreadNotFound(HoldfastError):
    """No thread has this id."""


class AgentNotFound(HoldfastError):
    """The worker's catalog has no such agent."""


class WorkspaceNotFound(HoldfastError):
    """The workspace is not a folder on the worker."""


class AnswerForged(HoldfastError):
    """A reply on behalf of a run does not come from one of our workers."""


class Refused(HoldfastError):
    """The run's state does not permit the request."""


class NotAccepted(Refused):
    """The run rejected a decision or a message.

    Args:
        message: The rejected input, and the reason.
        outcome: The reason as a short name: `duplicate`, `not_entitled`, `unknown_request`, …
    """

    def __init__(self, message: str, *, outcome: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class ImportRefused(Refused):
    """A portable file cannot be imported here. Nothing was changed."""


class RunFailed(HoldfastError):
    """The awaited run failed.

    Args:
        message: The thread and the reason.
        thread: The thread id.
        cause: The reason as a short name: `AgentNotFound`, …; empty if the run was closed from outside.
    """

    def __init__(self, message: str, *, thread: str, cause: str) -> None:
        super().__init__(message)
        self.thread = thread
        self.cause = cause


class RunCancelled(HoldfastError):
    """The awaited run was cancelled.

    Args:
        message: Names the thread.
        thread: The thread id.
    """

    def __init__(self, message: str, *, thread: str) -> None:
        super().__init__(message)
        self.thread = thread


class AttentionNeeded(HoldfastError):
    """The awaited run cannot end before a person acts: it or a sub-agent is blocked, or nobody attends it and the
    outcome of an effect is unknown. The run stays open.

    Args:
        message: The thread, and why.
        thread: The id of the thread that needs a person: the awaited one, or that of a sub-agent.
        cause: The reason as a short name: `LLMRejected`, `StepLimit`, `OutcomeUnknown`, …
    """

    def __init__(self, message: str, *, thread: str, cause: str) -> None:
        super().__init__(message)
        self.thread = thread
        self.cause = cause


class ResultNotStructured(HoldfastError):
    """The result is not a value of the type that the caller expects."""


class QueryRefused(HoldfastError):
    """A worker cannot answer a query."""


class EventsMissing(HoldfastError):
    """Earlier events of the thread are in neither Temporal nor the permanent record.

    Args:
        message: The missing events, the reason, and what to do.
        stop: Position of the first event after the missing ones; None if unknown.
    """

    def __init__(self, message: str, *, stop: int | None) -> None:
        super().__init__(message)
        self.stop = stop


class LogBroken(HoldfastError):
    """The events in Temporal and in the permanent record do not form one log."""


class RecordUnavailable(HoldfastError):
    """The permanent record does not respond."""


class NoWorker(ServerUnreachable):
    """Temporal responds, but no worker does."""


class RunPaused(NoWorker):
    """The run was paused in Temporal."""


class TreeNotRead(ServerUnreachable):
    """A run of a tree could not be read within the time limit for the tree."""


class RunStuck(ServerUnreachable):
    """A worker has the run, but its code cannot advance it."""

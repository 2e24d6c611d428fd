"""Exit codes, and which error leads to which. Part of the CLI's contract."""

from holdfast.errors import (
    AgentNotFound,
    CatalogError,
    EventsMissing,
    HistoryFileInvalid,
    HistoryFileNotFound,
    HoldfastError,
    LoadError,
    PolicyError,
    PositionInvalid,
    Refused,
    ServerUnreachable,
    SettingsError,
    StatusInvalid,
    TaskInvalid,
    ThreadExists,
    ThreadIdInvalid,
    ThreadNotFound,
    WorkspaceNotFound,
)
from holdfast.memory.semantic import ItemNotFound, ItemRefused

OK = 0
FAILED = 1
"""The run failed or was cancelled, or does not replay; or something went wrong that has no code of its own."""
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
"""No server, or no worker."""
REFUSED = 5
INTERRUPTED = 130

_CODES: tuple[tuple[tuple[type[HoldfastError], ...], int], ...] = (
    ((TaskInvalid, ThreadIdInvalid, ThreadExists, StatusInvalid, PositionInvalid, HistoryFileInvalid), USAGE),
    ((SettingsError, LoadError, CatalogError, PolicyError), USAGE),
    ((ThreadNotFound, AgentNotFound, WorkspaceNotFound, EventsMissing, HistoryFileNotFound, ItemNotFound), NOT_FOUND),
    ((ServerUnreachable,), UNREACHABLE),
    ((Refused, ItemRefused), REFUSED),
)


def exit_code(error: BaseException) -> int:
    """The exit code that an error leads to."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), FAILED)

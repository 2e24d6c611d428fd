"""Exit codes, and the code of each error. Part of the CLI's contract.

A verb returns its exit code; an error that a verb raises gets one in `exit_code`, called by `main.carry_out`.
"""

OK = 0
FAILED = 1
"""The run failed or was cancelled, or does not replay; `verify` found a fault; or an error without a code."""
USAGE = 2
NOT_FOUND = 3
UNREACHABLE = 4
"""No server or database, or no worker."""
REFUSED = 5
WAITING = 6
"""`start --wait`: the run waits for a person, for an approval or a `retry`."""
NOT_PROVEN = 7
"""`verify` found nothing altered, and could not check enough to prove it."""
INTERRUPTED = 130

VERDICTS = {"proven": OK, "altered": FAILED, "not_proven": NOT_PROVEN}
"""The exit code of `verify`, by its verdict."""

_CODES = {
    **dict.fromkeys(("SettingsError", "LoadError", "CatalogError", "PolicyError"), USAGE),
    **dict.fromkeys(("TaskInvalid", "ThreadIdInvalid", "ThreadExists", "StatusInvalid"), USAGE),
    **dict.fromkeys(("PositionInvalid", "HistoryFileInvalid", "ScheduleInvalid", "ScheduleExists"), USAGE),
    **dict.fromkeys(("ExportFailed", "SetInvalid"), USAGE),
    **dict.fromkeys(("ThreadNotFound", "AgentNotFound", "WorkspaceNotFound", "EventsMissing"), NOT_FOUND),
    "ThreadForgotten": NOT_FOUND,
    **dict.fromkeys(("HistoryFileNotFound", "ItemNotFound", "ArtifactNotFound", "ScheduleNotFound"), NOT_FOUND),
    **dict.fromkeys(("FileUnreadable",), NOT_FOUND),
    **dict.fromkeys(("ServerUnreachable", "StackError", "RecordUnavailable", "QueryRefused"), UNREACHABLE),
    **dict.fromkeys(("Refused", "ItemRefused"), REFUSED),
}
"""By the name of the error's class or of a superclass. By name, because not every verb imports all of these classes."""


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    return next((_CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CODES), FAILED)

"""The activities of a loop, as entries for the table of activities (`holdfast.core.run.contracts.table`)."""

from holdfast.core.loop.state import (
    LoopArchived,
    LoopArchiveRequest,
    LoopState,
    Settled,
    SettleRequest,
    Survey,
    SurveyRequest,
)
from holdfast.core.run.contracts.table import FILES, Activity


def _before(_: SurveyRequest, loop: LoopState) -> str:
    return f"look at the files, before iteration {loop.count}"


def _settles(request: SettleRequest, _: LoopState) -> str:
    return f"settle iteration {request.number}"


def _archives(request: LoopArchiveRequest, _: object) -> str:
    return f"events {request.log.start} to {request.log.start + len(request.log.events) - 1}"


SURVEY = Activity(
    name="survey_workspace",
    request=SurveyRequest,
    answer=Survey,
    summary=_before,
    time_limit=lambda request, loop: FILES,
)
"""Read the files of a loop. Fails permanently with AGENT_NOT_FOUND, AGENT_UNFIT or WORKSPACE_NOT_FOUND, which ends a
loop that has not begun yet and blocks one that has. Writes the request's `log` into the permanent record first.
"""

SETTLE = Activity(
    name="settle_iteration",
    request=SettleRequest,
    answer=Settled,
    summary=_settles,
    time_limit=lambda request, loop: FILES,
)
"""Determine the outcome of an iteration, and record it in the files and in git."""

ARCHIVE_LOOP: Activity[LoopArchiveRequest, LoopArchived, object] = Activity(
    name="archive_loop",
    request=LoopArchiveRequest,
    answer=LoopArchived,
    summary=_archives,
)
"""Write a loop's events into the permanent record."""

"""The two activities of a loop, as entries of the table of activities (`holdfast.run.activities`)."""

from holdfast.loop.state import LoopState, Settled, SettleRequest, Survey, SurveyRequest
from holdfast.run.activities import FILES, Activity


def _before(_: SurveyRequest, loop: LoopState) -> str:
    return f"look at the files, before iteration {loop.count}"


def _settles(request: SettleRequest, _: LoopState) -> str:
    return f"settle iteration {request.number}"


SURVEY = Activity(
    name="survey_workspace",
    request=SurveyRequest,
    answer=Survey,
    summary=_before,
    time_limit=lambda request, loop: FILES,
)
"""Read what a loop's files say. Fails for good with AGENT_NOT_FOUND, AGENT_UNFIT or WORKSPACE_NOT_FOUND: that ends a
loop which has not begun, and blocks one that has.
"""

SETTLE = Activity(
    name="settle_iteration",
    request=SettleRequest,
    answer=Settled,
    summary=_settles,
    time_limit=lambda request, loop: FILES,
)
"""Find out what became of an iteration, and record it in the files and in git."""

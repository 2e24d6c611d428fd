"""What `doctor` finds on the gateway's machine, for operators.

1. It says where the installation is weak and what is where, so it takes a scope of its own, which `threads` cannot
   confine, and which no token has unless somebody gives it.
2. A finding is shared by all who may see it, with its age. Opening the page begins the checks if they are old, and
   never waits for them. LLM endpoints are asked only if a person presses the button.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog
from starlette.responses import Response

from holdfast.doctor.check import Check
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import see_other
from holdfast.gateway.page.views.checks import ChecksView, Findings, checks_view
from holdfast.gateway.page.visits import Visit

FRESH = timedelta(minutes=5)
"""The age from which opening the page begins the checks again."""
AGAIN = timedelta(seconds=10)
"""The age below which nobody can ask for the next ones."""

log = structlog.get_logger("gateway")


class Checks(Protocol):
    """The checks of this process (`holdfast.doctor.own`)."""

    async def installation(self) -> list[Check]:
        """Make all checks but those of LLM endpoints."""

    async def endpoints(self) -> list[Check]:
        """Ask the LLM endpoints."""


class _Kept:
    """The last findings of some checks, which are made one at a time."""

    def __init__(self, make: Callable[[], Awaitable[list[Check]]]) -> None:
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self.findings: Findings | None = None

    @property
    def under_way(self) -> bool:
        """Whether the next checks are being made."""
        return self._task is not None

    def is_older(self, age: timedelta, now: datetime) -> bool:
        """Whether the last findings, if there are any, have at least this age, and no next ones are under way."""
        return not self.under_way and (self.findings is None or now - self.findings.at >= age)

    def begin(self) -> None:
        """Begin the checks, unless they are under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        at = datetime.now(UTC)
        try:
            self.findings = Findings(at, await self._make())
        except Exception as error:  # shown, not lost in a task
            log.exception("checks_failed")
            detail = f"the checks failed: {type(error).__name__}"
            self.findings = Findings(at, [Check("checks", "missing", detail, "the gateway's log says why")])
        finally:
            self._task = None


class Examining:
    """The part of the page Fleet that has the checks.

    Args:
        checks: The checks of this process; None for none.
    """

    def __init__(self, checks: Checks | None) -> None:
        self._installation = _Kept(checks.installation) if checks else None
        self._endpoints = _Kept(checks.endpoints) if checks else None

    def look(self, visit: Visit) -> ChecksView | None:
        """Return the last findings, as far as the person may see them, and begin the next ones if they are old."""
        installation, endpoints = self._installation, self._endpoints
        if installation is None or endpoints is None or "doctor" not in visit.caller.scopes:
            return None
        if installation.is_older(FRESH, visit.now):
            installation.begin()
        under_way = installation.under_way or endpoints.under_way
        return checks_view(installation.findings, endpoints.findings, visit.now, under_way=under_way)

    async def show(self, visit: Visit) -> Response:
        """Show the findings to an open page."""
        visit.require("doctor")
        return visit.render("checks.html", checks=self.look(visit))

    async def check(self, visit: Visit) -> Response:
        """Make all checks now, and ask the LLM endpoints.

        Raises:
            HTTPProblem: 403: the scope is missing, or it is no form of this session; 429: they have just begun.
        """
        visit.require("doctor")
        await visit.form()
        kept = [each for each in (self._installation, self._endpoints) if each]
        due = [each for each in kept if each.is_older(AGAIN, visit.now)]
        if kept and not due:
            raise HTTPProblem(
                429, f"they are being made, or began less than {AGAIN.seconds} seconds ago; wait a moment"
            )
        for each in due:
            each.begin()
        return see_other("fleet")

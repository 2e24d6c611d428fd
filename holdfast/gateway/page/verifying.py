"""The verdict on a run's record: it is checked when a person asks for it, and its badge leads to what was found.

A check reads the whole thread and judges each event again, so it runs beside the requests, a few at a time, and its
result is kept for all who may read the run: it names the event up to which it holds.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from starlette.responses import Response

from holdfast.audit.evidence.anchors import Anchors
from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.errors import HoldfastError
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.page.guards import see_other
from holdfast.gateway.page.views.insights import Verdict, verdict_view
from holdfast.gateway.page.views.runs import head_view
from holdfast.gateway.page.visits import Visit

CHECKS, CHECKS_EACH = 4, 2
"""The most checks at once, and those of one caller."""
KEPT = 500
"""The most results in memory; beyond that, the oldest is dropped."""

log = structlog.get_logger("gateway")


@dataclass(frozen=True)
class _Checked:
    at: datetime
    found: Verification | None
    problem: str = ""


class Verifying:
    """Verifies runs, and remembers the verdicts.

    Args:
        threads: The threads.
        evidence: Ledger and artifacts; None without them.
        anchors: The anchors with seals of threads; None for none.
    """

    def __init__(self, threads: Threads, evidence: Evidence | None, anchors: Anchors | None) -> None:
        self._threads = threads
        self._evidence = evidence
        self._anchors = anchors
        self._slots = Slots("checks of records", CHECKS, CHECKS_EACH)
        self._checked: dict[str, _Checked] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def badge(self, thread: str, now: datetime) -> Verdict | None:
        """Return the last verdict on a thread; None if it was not checked by this process."""
        checked = self._checked.get(thread)
        return verdict_view(checked.found, checked.at, now) if checked and checked.found else None

    async def show(self, visit: Visit) -> Response:
        """Show the last verdict, and the form that asks for the next one."""
        visit.require("read")
        thread = visit.thread()
        state = await self._threads.state(thread, note=note)
        checked = self._checked.get(thread)
        return visit.render(
            "verify.html",
            run=head_view(state, visit.caller.scopes),
            silent=False,
            verdict=self.badge(thread, visit.now),
            problem=checked.problem if checked else "",
            checking=thread in self._under_way,
        )

    async def check(self, visit: Visit) -> Response:
        """Begin a check, unless one is under way."""
        visit.require("read")
        thread = visit.thread()
        await visit.form()
        await self._threads.state(thread, note=note)  # there is such a thread
        if thread not in self._under_way:
            self._slots.acquire(visit.caller.name)
            self._under_way[thread] = asyncio.create_task(self._check(thread, visit.caller.name))
        return see_other("runs", thread, "verify")

    async def _check(self, thread: str, caller: str) -> None:
        found, problem = None, ""
        try:
            found = await verify(self._threads, thread, evidence=self._evidence, anchors=self._anchors)
        except HoldfastError as error:
            problem = str(error)
        except Exception as error:  # shown as a failed check, not lost in a task
            log.exception("check_failed", thread=thread)
            problem = f"the check failed ({type(error).__name__}); the gateway's log says why"
        finally:
            self._slots.release(caller)
            del self._under_way[thread]
        self._checked.pop(thread, None)
        self._checked[thread] = _Checked(datetime.now(UTC), found, problem)
        if len(self._checked) > KEPT:
            del self._checked[next(iter(self._checked))]

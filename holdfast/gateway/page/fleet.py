"""What runs the runs: workers with their versions, schedules, loops, the state of Temporal and the record, and what
`doctor` finds.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.responses import Response
from temporalio.service import RPCError

from holdfast.client.listing import list_loops
from holdfast.client.schedule_states import list_schedules
from holdfast.client.threads import Threads
from holdfast.client.workers import pollers, server_version
from holdfast.core.base.text import one_line
from holdfast.errors import HoldfastError, ServerUnreachable
from holdfast.gateway.page.examining import Examining
from holdfast.gateway.page.views.fleet import loop_row, schedule_row, service_facts, worker_row
from holdfast.gateway.page.visits import Visit
from holdfast.version import __version__

LOOPS = 50
"""The most loops on the page."""
SCHEDULES = 100
"""The most schedules on the page."""

_T = TypeVar("_T")


class Fleet:
    """The page of workers, schedules and loops.

    Args:
        threads: The threads.
        examining: Has the checks.
    """

    def __init__(self, threads: Threads, examining: Examining) -> None:
        self._threads = threads
        self._examining = examining

    async def show(self, visit: Visit) -> Response:
        """Show all parts that the caller may read; a part that cannot be read says why."""
        visit.require("list")
        threads, prefixes, now = self._threads, visit.caller.threads, visit.now
        client = threads.runs.client
        may_read_schedules = "schedules" in visit.caller.scopes
        workers, server, record, loops, schedules = await asyncio.gather(
            _part(pollers(client, threads.task_queue)),
            _part(server_version(client)),
            _part(self._record()),
            _part(list_loops(threads, prefixes=prefixes, limit=LOOPS)),
            _part(list_schedules(threads, prefixes=prefixes, limit=SCHEDULES) if may_read_schedules else _nothing()),
        )
        return visit.render(
            "fleet.html",
            facts=service_facts(server, record, namespace=client.namespace, queue=threads.task_queue, own=__version__),
            workers=workers if isinstance(workers, str) else [worker_row(each, now, __version__) for each in workers],
            loops=loops if isinstance(loops, str) else [loop_row(each, now) for each in loops],
            schedules=schedules if isinstance(schedules, str) else [schedule_row(each, now) for each in schedules],
            may_read_schedules=may_read_schedules,
            may_examine="doctor" in visit.caller.scopes,
            checks=self._examining.look(visit),
        )

    async def _record(self) -> bool:
        """Whether there is a permanent record, which answers.

        Raises:
            RecordUnavailable: It does not answer.
        """
        record = self._threads.reader.record
        if record is None:
            return False
        await record.length("-")
        return True


async def _part(reading: Awaitable[_T]) -> _T | str:
    """Return what is read, or in words why it cannot be."""
    try:
        return await reading
    except (RPCError, ServerUnreachable) as error:
        return f"Temporal does not say: {one_line(str(error), 200)}"
    except HoldfastError as error:
        return one_line(str(error), 300)


async def _nothing() -> list[dict[str, str]]:
    return []

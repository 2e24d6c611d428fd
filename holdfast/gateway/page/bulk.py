"""Decide several requests at once: those of the same tool under the same rule.

1. A person selects requests, then sees each with all that its digest covers, and decides only there.
2. Each decision is one of its own, with its request's digest, by the same way as any other, and has its own result.
3. A request that has changed, or that the person cannot decide, stays undecided. A form that mixes tools or rules
   decides nothing.
4. A person sends one such form at a time, of at most `SELECTED` requests, and their quota counts it once.
"""

import asyncio
import json
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

import structlog
from starlette.responses import Response

from holdfast.client.start_options import check_thread_id
from holdfast.client.threads import JSON, Threads
from holdfast.errors import HoldfastError, ThreadNotFound
from holdfast.gateway.http.problems import HTTPProblem, problem_of
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.page.bulk_forms import SELECTED, BulkForm, read_bulk, read_items
from holdfast.gateway.page.inbox import Inbox
from holdfast.gateway.page.views.bulk import Item, Sorted, kind_of, sort_items
from holdfast.gateway.page.views.requests import Call, call_view, is_for, urgency
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.routes.interventions import Actions

AT_ONCE = 8
"""The most runs that one form reads, or decides on, at the same time."""
START_SECONDS = 30.0
"""After this time, no further decision of a form is sent: its response has to begin in time."""
FORMS = 8
"""The most forms that are decided at the same time."""
SILENT = "No worker answers for this run, so it cannot be read as it is now. Try again later."

log = structlog.get_logger("gateway")


class Result(NamedTuple):
    """The result of a decision."""

    call: Call
    is_done: bool
    words: str


class BulkDeciding:
    """The pages on which people decide several requests at once.

    Args:
        threads: The threads.
        actions: Sends decisions, in the name of the person who is signed in.
        inbox: The open requests.
    """

    def __init__(self, threads: Threads, actions: Actions, inbox: Inbox) -> None:
        self._threads = threads
        self._actions = actions
        self._inbox = inbox
        self._forms = Slots("forms that decide several requests", FORMS, 1)

    async def show(self, visit: Visit) -> Response:
        """Show the open requests of a tool and a rule, to select some of them."""
        visit.require("read")
        return await self._select(visit)

    async def act(self, visit: Visit) -> Response:
        """Show the selected requests before a decision, decide them, or return to the selection."""
        visit.require("read")
        visit.require("decide")
        fields = await visit.form()
        step = fields.get("step", [""])[-1]
        try:
            if step == "select":
                return await self._select(visit, picked=read_items(fields))
            form = read_bulk(fields)
        except HTTPProblem as problem:
            return await self._select(visit, problem=problem)
        if step != "decide":
            return await self._review(visit, form)
        with self._forms.slot(visit.caller.name):
            return await self._decide(visit, form)

    async def _select(
        self, visit: Visit, *, picked: Collection[Item] = (), problem: HTTPProblem | None = None
    ) -> Response:
        reading, kind = await self._inbox.look(), visit.segment("kind")
        found = [
            each
            for each in reading.requests
            if kind_of(each) == kind and visit.caller.reaches(each["thread"]) and is_for(each, visit.caller.name)
        ]
        found.sort(key=lambda each: urgency(each, visit.now))
        items = [Item(each["thread"], each["request"], each["digest"]) for each in found[:SELECTED]]
        return visit.render(
            "bulk_select.html",
            problem.status if problem else 200,
            calls=[call_view(each, visit.person, visit.now) for each in found[:SELECTED]],
            items=list(map(_text, items)),
            picked=set(map(_text, picked)),
            total=len(found),
            problem=str(problem or ""),
        )

    async def _review(self, visit: Visit, form: BulkForm) -> Response:
        found = await self._sort(visit, form, can_sign=True)
        choices = [call.choice(form.said.decision) for _, call in found.open]
        return visit.render(
            "bulk_review.html",
            200 if found.open else 409,
            decision=form.said.decision,
            calls=[call for _, call in found.open],
            items=[_text(item) for item, _ in found.open],
            left_out=found.left_out,
            needs_key=next((choice.refused for choice in choices if choice and choice.needs_key), ""),
        )

    async def _decide(self, visit: Visit, form: BulkForm) -> Response:
        found = await self._sort(visit, form, can_sign=False)
        of_thread: dict[str, list[tuple[Item, Call]]] = {}
        for item, call in found.open:
            of_thread.setdefault(item.thread, []).append((item, call))
        until, slots = time.monotonic() + START_SECONDS, asyncio.Semaphore(AT_ONCE)

        async def decide(pairs: Iterable[tuple[Item, Call]]) -> list[Result]:
            async with slots:
                return [await self._decide_one(visit, form, *pair, until=until) for pair in pairs]

        lists = await asyncio.gather(*map(decide, of_thread.values()))
        results = [result for results in lists for result in results]
        return visit.render(
            "bulk_decided.html",
            200 if any(each.is_done for each in results) else 409,
            decision=form.said.decision,
            results=results,
            left_out=found.left_out,
            done=sum(each.is_done for each in results),
        )

    async def _decide_one(self, visit: Visit, form: BulkForm, item: Item, call: Call, *, until: float) -> Result:
        if time.monotonic() > until:
            return Result(call, False, "Not sent: the decisions before it took too long. Decide it again.")
        signature = form.signatures.get(item, "")
        try:
            _, outcome = await self._actions.decide(
                item.thread, form.said.on(item), by=visit.caller.name, signature=signature
            )
        except HTTPProblem as problem:
            return Result(call, False, str(problem))
        except HoldfastError as error:
            return Result(call, False, str(problem_of(error, item.thread)))
        except Exception:  # the results of the others are shown all the same
            log.exception("decision_failed", thread=item.thread)
            return Result(call, False, "The gateway failed, and this may have been decided: look at it again.")
        self._inbox.forget(item.thread, item.request)
        words = outcome.outcome.replace("_", " ").capitalize()
        return Result(call, True, f"{words}: {outcome.explanation}" if outcome.explanation else words)

    async def _sort(self, visit: Visit, form: BulkForm, *, can_sign: bool) -> Sorted:
        """Read the requests of a form as they are now, and sort out those that the person can decide.

        Raises:
            HTTPProblem: 422: they belong to different tools or rules.
        """
        found = await self._read(visit, form.items)
        kind, signed = visit.segment("kind"), None if can_sign else form.signatures.keys()
        sorted_items = sort_items(form.items, found, kind, form.said.decision, visit.person, visit.now, signed=signed)
        if sorted_items.mixed:
            raise HTTPProblem(422, "these requests are not all of one tool and one rule, so none was decided")
        return sorted_items

    async def _read(self, visit: Visit, items: Iterable[Item]) -> dict[tuple[str, str], JSON | str]:
        """Return the requests as their runs have them now, or why they cannot be read."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def pending(thread: str) -> list[JSON] | str:
            silence: list[str] = []
            try:
                if not visit.caller.reaches(check_thread_id(thread)):
                    raise ThreadNotFound(thread)
                async with slots:
                    state = await self._threads.state(thread, note=silence.append)
            except HoldfastError as error:
                return str(problem_of(error, thread))
            return SILENT if silence else list(state["pending"])

        threads = list(dict.fromkeys(item.thread for item in items))
        answers = dict(zip(threads, await asyncio.gather(*map(pending, threads)), strict=True))
        found: dict[tuple[str, str], JSON | str] = {}
        for item in items:
            if isinstance(answer := answers[item.thread], str):
                found[item.thread, item.request] = answer
            elif request := next((each for each in answer if each["request"] == item.request), None):
                found[item.thread, item.request] = {**request, "thread": item.thread}
        return found


def _text(item: Item) -> str:
    """Return a request as a field of a form."""
    return json.dumps(item._asdict())

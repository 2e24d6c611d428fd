"""The pages that show a run from other sides: calls, costs, prompt, tree, and its state at an event, with `fork`."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from holdfast.client.forks import fork, new_fork_id
from holdfast.client.prompts import prompt_of
from holdfast.client.threads import JSON, Threads
from holdfast.client.trees import read_tree
from holdfast.errors import EventsMissing, PositionInvalid, TaskInvalid, ThreadExists, ThreadIdInvalid
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.page.guards import number_of, read_fields, see_other
from holdfast.gateway.page.views.calls import call_rows, timed
from holdfast.gateway.page.views.insights import prompt_page, state_blocks, tree_rows
from holdfast.gateway.page.views.plots import costs_view, slim
from holdfast.gateway.page.views.runs import head_view
from holdfast.gateway.page.views.text import when
from holdfast.gateway.page.views.timeline import entry
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.routes.forks import ForkBody
from holdfast.gateway.routes.starts import own_id

CALL_EVENTS = 400
"""The most events whose calls are on a page."""
LOOKS, LOOKS_EACH = 8, 3
"""The most pages at once that read a whole thread, and those of one caller."""


class Inspecting:
    """The pages that show a run from other sides.

    Args:
        threads: The threads.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._slots = Slots("pages of whole runs", LOOKS, LOOKS_EACH)

    async def calls(self, visit: Visit) -> Response:
        """Show the last calls, or those before an event, with what each waited for."""
        visit.require("read")
        thread, state, silent = await self._state(visit)
        total = int(state["events"])
        before = min(number_of(visit.request.query_params.get("before"), total), total)
        first = max(0, before - CALL_EVENTS)
        events: list[Mapping[str, Any]] = []
        async for event in self._threads.events(thread, after=first - 1, note=note):
            if int(event["position"]) >= before:
                break
            events.append(timed(event))
        head = head_view(state, visit.caller.scopes)
        rows = call_rows(events, visit.now, is_open=head.is_open and before >= total)
        return visit.render("calls.html", run=head, silent=silent, rows=rows, first=first, last_page=before >= total)

    async def costs(self, visit: Visit) -> Response:
        """Show tokens and cost over time."""
        visit.require("read")
        thread, state, silent = await self._state(visit)
        with self._slots.slot(visit.caller.name):
            events = [
                slim(json.loads(line))
                async for line in self._threads.reader.lines(thread, 0, found=None, note=note)
                if b'"usage"' in line  # decoding each event of a long run would take most of the time
            ]
        head = head_view(state, visit.caller.scopes)
        return visit.render("costs.html", run=head, silent=silent, costs=costs_view(events, visit.now))

    async def prompt(self, visit: Visit) -> Response:
        """Show the next request to the LLM, part by part."""
        visit.require("read")
        visit.require("transcript")
        thread, state, silent = await self._state(visit)
        with self._slots.slot(visit.caller.name):
            prompt = prompt_page((await prompt_of(self._threads, thread, note=note)).view())
        head = head_view(state, visit.caller.scopes)
        return visit.render("prompt.html", run=head, silent=silent, prompt=prompt)

    async def tree(self, visit: Visit) -> Response:
        """Show the run and its sub-agents."""
        visit.require("read")
        thread, state, silent = await self._state(visit)
        with self._slots.slot(visit.caller.name):
            top = await read_tree(self._threads, thread, state=state, note=note)
        head = head_view(state, visit.caller.scopes)
        return visit.render("tree.html", run=head, silent=silent, rows=tree_rows(top))

    async def at(self, visit: Visit) -> Response:
        """Show the state right after an event, and the form that forks the run there."""
        visit.require("read")
        thread = visit.thread()
        return await self._at_page(visit, thread)

    async def fork(self, visit: Visit) -> Response:
        """Fork the run at an event, in the name of the person who is signed in."""
        for scope in ("read", "fork", "start"):
            visit.require(scope)
        thread = visit.thread()
        fields = {name: values[-1] for name, values in (await visit.form()).items()}
        position, say = number_of(fields.get("at"), -1), fields.get("say", "").strip()
        try:
            payload: JSON = {"at": position, **({"say": say} if say else {})}
            body = read_fields(payload, ForkBody)
            forked = await fork(
                self._threads,
                thread,
                at=body.at,
                id=own_id(new_fork_id(thread), visit.caller),
                say=body.say,
                keeps_policy=True,
                by=visit.caller.name,
            )
        except HTTPProblem as problem:
            return await self._at_page(visit, thread, problem=problem, typed=say, position=position)
        except (PositionInvalid, TaskInvalid, ThreadIdInvalid, ThreadExists) as error:
            return await self._at_page(
                visit, thread, problem=HTTPProblem(422, str(error)), typed=say, position=position
            )
        return see_other("runs", forked.thread)

    async def _at_page(
        self, visit: Visit, thread: str, *, problem: HTTPProblem | None = None, typed: str = "", position: int = -1
    ) -> Response:
        now = await self._threads.state(thread, note=note)
        last = max(0, int(now["events"]) - 1)
        asked = visit.request.query_params.get("position")
        position = min(position if position >= 0 else number_of(asked, last), last)
        with self._slots.slot(visit.caller.name):
            state = await self._threads.state_at(thread, position, note=note) if now["events"] else now
            event = await self._event(thread, position)
        lacking = [scope for scope in ("fork", "start") if scope not in visit.caller.scopes]
        return visit.render(
            "at_state.html" if visit.is_fragment else "at.html",
            problem.status if problem else 200,
            run=head_view({**state, "thread": thread}, visit.caller.scopes),
            silent=False,
            problem=str(problem or ""),
            typed=typed,
            position=position,
            last=last,
            entry=entry(event, thread, visit.now) if event else None,
            at=when(event["at"], visit.now) if event else None,
            blocks=state_blocks(state),
            may_fork=position >= 1 and not lacking,
            lacks=" and ".join(lacking),
        )

    async def _event(self, thread: str, position: int) -> JSON | None:
        try:
            async for event in self._threads.events(thread, after=position - 1, note=note):
                return event
        except EventsMissing:
            pass
        return None

    async def _state(self, visit: Visit) -> tuple[str, dict[str, Any], bool]:
        """Return the thread in the path, its state, and whether no worker has answered."""
        silence: list[str] = []
        thread = visit.thread()
        return thread, await self._threads.state(thread, note=silence.append), bool(silence)

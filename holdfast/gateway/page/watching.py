"""The list of runs, the page of a run with its timeline, and the forms that start and steer runs."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from starlette.responses import Response

from holdfast.client.idempotent_starts import start_once
from holdfast.client.listing import STATUSES, list_page
from holdfast.client.start_options import StartOptions, new_thread_id
from holdfast.client.threads import JSON, Threads
from holdfast.gateway.bodies import MessageBody, PauseBody, ReasonBody, StartBody
from holdfast.gateway.callers import Scope
from holdfast.gateway.http.pages import note, take
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.cached_log import CachedLog
from holdfast.gateway.page.drafts import Drafts
from holdfast.gateway.page.guards import HEADERS, number_of, read_fields, see_other
from holdfast.gateway.page.signed import read_once, read_steering
from holdfast.gateway.page.state_cache import StateCache
from holdfast.gateway.page.views.insights import Verdict
from holdfast.gateway.page.views.runs import head_view, run_row
from holdfast.gateway.page.views.timeline import entry
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.routes.interventions import Actions
from holdfast.streaming.hub import Hub

EVENTS = 100
"""The most events on a page of a timeline."""
RUNS = 50
"""The most runs on a page of the list."""

ACTS: Mapping[str, tuple[Scope, type[ReasonBody]]] = {
    "pause": ("pause", PauseBody),
    "resume": ("pause", ReasonBody),
    "retry": ("retry", ReasonBody),
    "cancel": ("cancel", ReasonBody),
}
"""The ways to steer a run → the scope that each needs, and its body."""


class Watching:
    """The pages on which people watch, start and steer runs.

    Args:
        threads: The threads.
        actions: Sends interventions, in the name of the person who is signed in.
        badge: Returns the last verdict on a thread's record, at a time; None if there is none.
        hub: The streams of replies; None for none.
    """

    def __init__(
        self, threads: Threads, actions: Actions, badge: Callable[[str, datetime], Verdict | None], hub: Hub | None
    ) -> None:
        self._threads = threads
        self._actions = actions
        self._badge = badge
        self._cache = StateCache(lambda thread: threads.state(thread, note=note))
        log = CachedLog(self._cache, lambda thread, after: self._events(thread, after + 1, EVENTS))
        self.drafts = Drafts(threads, hub, self._cache, log)

    async def list_runs(self, visit: Visit) -> Response:
        """List runs, newest first, by status and agent: first as Temporal lists them, then, for htmx, as they say."""
        visit.require("list")
        query = visit.request.query_params
        status, agent, cursor = (query.get(name, "")[:2_000] for name in ("status", "agent", "cursor"))
        # The agent's name goes into a query of Temporal.
        known = StartBody.model_validate({"task": "-", "agent": agent}).agent if _is_agent(agent) else None
        rows, following = await list_page(
            self._threads,
            status=status if status in STATUSES else None,
            agent=known or "",
            prefixes=visit.caller.threads,
            limit=RUNS,
            cursor=cursor,
            asked=visit.is_fragment,
        )
        return visit.render(
            "runs_list.html" if visit.is_fragment else "runs.html",
            query=str(visit.request.query_params),
            rows=[run_row(row, visit.now) for row in rows],
            statuses=STATUSES,
            status=status,
            agent=agent,
            next=following,
            may_start="start" in visit.caller.scopes,
        )

    async def show(self, visit: Visit) -> Response:
        """Show a run, with its last events, or with those before a position."""
        visit.require("read")
        return await self._run_page(visit, visit.thread())

    async def live(self, visit: Visit) -> Response:
        """Return the events after a position, and the head of the run, to an open page; 204 if nothing is new."""
        visit.require("read")
        thread, after = visit.thread(), number_of(visit.request.query_params.get("after"), -1)
        seen = visit.request.query_params.get("seen", "")
        state = await self._cache.state(thread)
        if int(state["events"]) <= after + 1 and seen == state["status"]:
            return Response(status_code=204, headers=HEADERS)
        events = await self._cache.events(thread, after, lambda: self._events(thread, after + 1, EVENTS))
        return visit.render("run_live.html", seen=seen, **self._parts(visit, thread, state, events, after=after))

    async def act(self, visit: Visit) -> Response:
        """Pause, resume, retry or cancel a run."""
        visit.require("read")
        thread, act = visit.thread(), visit.request.path_params["act"]
        if act not in ACTS:
            raise HTTPProblem(404, "there is no such page")
        scope, kind = ACTS[act]
        visit.require(scope)
        fields = await visit.form()
        body = read_fields({"reason": fields.get("reason", [""])[-1]}, kind)
        try:
            if act == "cancel":
                await self._actions.cancel(thread, body, by=visit.caller.name)
            else:
                signature = read_steering(thread, fields.get("signed", [""])[-1])
                await self._actions.intervene(act, thread, body, by=visit.caller.name, signature=signature)
        except HTTPProblem as problem:
            return await self._run_page(visit, thread, problem=problem)
        finally:
            self._cache.forget(thread)
        return see_other("runs", thread)

    async def say(self, visit: Visit) -> Response:
        """Send the agent a message."""
        visit.require("read")
        visit.require("say")
        thread, fields = visit.thread(), await visit.form()
        message, signed = (fields.get(name, [""])[-1] for name in ("message", "signed"))
        try:
            if signed:
                body, signature = read_once(thread, signed, MessageBody)
                await self._actions.say(thread, body, by=visit.caller.name, id=signature["id"], signature=signature)
            else:
                await self._actions.say(thread, read_fields({"message": message}, MessageBody), by=visit.caller.name)
        except HTTPProblem as problem:
            return await self._run_page(visit, thread, problem=problem, typed=message)
        finally:
            self._cache.forget(thread)
        return see_other("runs", thread)

    async def new(self, visit: Visit) -> Response:
        """Show the form that starts a run."""
        visit.require("start")
        return visit.render("new_run.html", task="", agent="", problem="")

    async def start(self, visit: Visit) -> Response:
        """Start a run, in the name of the person who is signed in."""
        visit.require("start")
        fields = {name: values[-1] for name, values in (await visit.form()).items()}
        task, agent = fields.get("task", ""), fields.get("agent", "").strip()
        try:
            body = read_fields({"task": task, **({"agent": agent} if agent else {})}, StartBody)
        except HTTPProblem as problem:
            return visit.render("new_run.html", problem.status, task=task, agent=agent, problem=str(problem))
        thread = "".join([*visit.caller.threads[:1], new_thread_id(body.agent)])
        options = StartOptions(agent=body.agent, by=visit.caller.name)
        await start_once(self._threads, body.task, thread, options, exactly=True)
        return see_other("runs", thread)

    async def _run_page(
        self, visit: Visit, thread: str, *, problem: HTTPProblem | None = None, typed: str = ""
    ) -> Response:
        silence: list[str] = []
        state = await self._threads.state(thread, note=silence.append)
        self._cache.put(thread, state)
        total = int(state["events"])
        before = min(number_of(visit.request.query_params.get("before"), total), total)
        first = max(0, before - EVENTS)
        events = await self._events(thread, first, before - first or 1)
        parts = self._parts(visit, thread, state, events, after=before - 1)
        return visit.render(
            "run.html",
            problem.status if problem else 200,
            problem=str(problem or ""),
            typed=typed,
            silent=bool(silence),
            first=first,
            last_page=before >= total,
            verdict=self._badge(thread, visit.now),
            may_say="say" in visit.caller.scopes,
            streams=self.drafts.shows(visit),
            **parts,
        )

    async def _events(self, thread: str, start: int, limit: int) -> list[JSON]:
        return (await take(self._threads.events(thread, after=start - 1, note=note), limit=limit))[0]

    def _parts(self, visit: Visit, thread: str, state: JSON, events: list[JSON], *, after: int) -> dict[str, Any]:
        return {
            "run": head_view(state, visit.caller.scopes, visit.person),
            "raw_status": state["status"],
            "entries": [entry(event, thread, visit.now) for event in events],
            "after": max([after, *(int(event["position"]) for event in events)]),
        }


def _is_agent(name: str) -> bool:
    return bool(name) and name.isascii() and all(each.isalnum() or each in "_.-" for each in name) and len(name) <= 64

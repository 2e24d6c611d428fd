"""The page on which people refine the task of an open run, and extend its budget."""

import secrets
from typing import Any

from starlette.responses import Response

from holdfast.client.threads import Threads
from holdfast.gateway.bodies import Body, ExtensionBody, RefinementBody
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import number_of, read_fields, see_other
from holdfast.gateway.page.signed import read_once
from holdfast.gateway.page.views.runs import head_view
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.routes.interventions import Actions

AMOUNTS = {"steps": "steps", "tokens": "tokens", "usd": "US dollars", "seconds": "seconds of work"}
"""The limits of a budget → their names."""


class Changing:
    """The forms that refine a task and extend a budget.

    Args:
        threads: The threads.
        actions: Sends interventions, in the name of the person who is signed in.
    """

    def __init__(self, threads: Threads, actions: Actions) -> None:
        self._threads = threads
        self._actions = actions

    async def show(self, visit: Visit) -> Response:
        """Show both forms."""
        visit.require("read")
        return await self._page(visit, {})

    async def refine(self, visit: Visit) -> Response:
        """Refine the task."""
        visit.require("refine")
        sent = await visit.form()
        return await self._change(visit, "refine", RefinementBody, _filled(sent, ("kind", "text", "id")), sent)

    async def extend(self, visit: Visit) -> Response:
        """Extend the budget."""
        visit.require("extend")
        sent = await visit.form()
        typed = _filled(sent, (*AMOUNTS, "reason", "id"))
        numbers = {name: number_of(typed.get(name), -1) for name in AMOUNTS if name != "usd"}
        amounts = {name: number for name, number in numbers.items() if number >= 0}
        return await self._change(visit, "extend", ExtensionBody, typed | amounts, sent)

    async def _change(
        self, visit: Visit, name: str, kind: type[Body], fields: dict[str, Any], sent: dict[str, list[str]]
    ) -> Response:
        """Change the run by what the browser has signed, or else by the fields of the form."""
        visit.require("read")
        thread, signed = visit.thread(), sent.get("signed", [""])[-1]
        signature: dict[str, Any] | None = None
        try:
            if signed:
                body, signature = read_once(thread, signed, kind)
            else:
                body = read_fields(fields, kind)
            await self._actions.intervene(name, thread, body, by=visit.caller.name, signature=signature)
        except HTTPProblem as problem:
            return await self._page(visit, fields, problem=problem)
        return see_other("runs", thread)

    async def _page(self, visit: Visit, typed: dict[str, Any], *, problem: HTTPProblem | None = None) -> Response:
        thread = visit.thread()
        state = await self._threads.state(thread, note=note)
        return visit.render(
            "change.html",
            problem.status if problem else 200,
            run=head_view(state, visit.caller.scopes, visit.person),
            may_refine="refine" in visit.caller.scopes,
            may_extend="extend" in visit.caller.scopes,
            amounts=AMOUNTS,
            typed=dict.fromkeys(("kind", "text", "reason", *AMOUNTS), "") | typed,
            once=secrets.token_hex(8),
            problem=str(problem or ""),
        )


def _filled(fields: dict[str, list[str]], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a form that have a value."""
    return {name: text for name in names if (text := fields.get(name, [""])[-1].strip())}

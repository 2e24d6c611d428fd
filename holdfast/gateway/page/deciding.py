"""The inbox, and the page of a request with its decisions."""

import json
from typing import Any

from starlette.responses import Response

from holdfast.client.threads import JSON, Threads
from holdfast.core.base.names import person_name
from holdfast.gateway.answers import Outcome
from holdfast.gateway.bodies import Body, DecisionBody, SignedDecision, read_body
from holdfast.gateway.callers import Callers
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import read_fields
from holdfast.gateway.page.inbox import Inbox
from holdfast.gateway.page.views.bulk import groups
from holdfast.gateway.page.views.diffs import difference
from holdfast.gateway.page.views.requests import LABELS, Call, call_view, is_for, urgency
from holdfast.gateway.page.views.runs import head_view, spent
from holdfast.gateway.page.views.text import when
from holdfast.gateway.page.visits import Visit
from holdfast.gateway.routes.interventions import Actions

SHOWN = 50
"""The most requests on a page of the inbox."""

TEXTS = ("reason", "say", "result")
"""The texts of a decision."""


class ArgumentsBody(Body):
    """The arguments that a person has edited."""

    arguments: dict[str, Any]


class Deciding:
    """The pages on which people decide.

    Args:
        threads: The threads.
        actions: Sends decisions, in the name of the person who is signed in.
        callers: The gateway's callers, whose keys it knows.
        inbox: The open requests.
    """

    def __init__(self, threads: Threads, actions: Actions, callers: Callers, inbox: Inbox) -> None:
        self._threads = threads
        self._actions = actions
        self._callers = callers
        self._inbox = inbox

    async def inbox(self, visit: Visit) -> Response:
        """Show the requests that the person may decide, and the runs that are blocked."""
        visit.require("read")
        reading = await self._inbox.look(brief=True)
        reaches, now = visit.caller.reaches, visit.now
        everybody, may_decide = "all" in visit.request.query_params, "decide" in visit.caller.scopes
        mine = [each for each in reading.requests if reaches(each["thread"])]
        others = [each for each in mine if not is_for(each, visit.caller.name)]
        shown = sorted(
            mine if everybody else (each for each in mine if is_for(each, visit.caller.name)),
            key=lambda each: urgency(each, now),
        )
        return visit.render(
            "inbox_list.html" if visit.is_fragment else "inbox.html",
            calls=[call_view(each, visit.person, now) for each in shown[:SHOWN]],
            total=len(shown),
            others=len(others),
            everybody=everybody,
            groups=groups(each for each in mine if is_for(each, visit.caller.name)) if may_decide else (),
            blocked=[head_view(each, visit.caller.scopes) for each in reading.blocked if reaches(each["thread"])],
            unread=[each for each in reading.unread if reaches(each)],
            read=when(reading.at, now),
            missing=None if reading.missing is None else sum(map(reaches, reading.missing)),
        )

    async def key(self, visit: Visit) -> Response:
        """Show the page on which the browser makes a key to sign with."""
        visit.require("decide")
        try:
            name = person_name(visit.caller.name)
        except ValueError as error:
            raise HTTPProblem(422, f"nobody can sign as {visit.caller.name}: {error}") from None
        return visit.render("key.html", name=name, known=self._callers.keys_of(visit.caller.name))

    async def show(self, visit: Visit) -> Response:
        """Show a request."""
        visit.require("read")
        return await self._request_page(visit, visit.thread(), visit.segment("request"))

    async def decide(self, visit: Visit) -> Response:
        """Make the decision of a form on the request as it was shown; show edited arguments before they are sent."""
        visit.require("read")
        visit.require("decide")
        thread, id = visit.thread(), visit.segment("request")
        fields = {name: values[-1] for name, values in (await visit.form()).items()}
        try:
            body, signature = _signed(thread, id, fields) if fields.get("signed") else (_decision(id, fields), "")
        except HTTPProblem as problem:
            return await self._request_page(visit, thread, id, problem=problem, typed=fields)
        if fields.get("decision") == "review":
            return await self._request_page(visit, thread, id, edited=body.arguments, digest=body.digest)
        try:
            _, outcome = await self._actions.decide(thread, body, by=visit.caller.name, signature=signature)
        except HTTPProblem as problem:
            return await self._request_page(visit, thread, id, problem=problem, typed=fields)
        self._inbox.forget(thread, id)
        return self._done(visit, thread, id, body, outcome)

    def _done(self, visit: Visit, thread: str, id: str, body: DecisionBody, outcome: Outcome) -> Response:
        return visit.render(
            "decided.html",
            thread=thread,
            request=id,
            decision=LABELS[body.decision][0],
            outcome=outcome.outcome.replace("_", " "),
            explanation=outcome.explanation,
        )

    async def _request_page(
        self,
        visit: Visit,
        thread: str,
        id: str,
        *,
        problem: HTTPProblem | None = None,
        typed: dict[str, str] | None = None,
        edited: dict[str, Any] | None = None,
        digest: str = "",
    ) -> Response:
        """Show a request as it is now.

        Args:
            visit: The visit.
            thread: The thread.
            id: The request's id.
            problem: Why a decision was not made; None for none.
            typed: The fields of that decision, to show again.
            edited: Arguments to review before they are sent; None for none.
            digest: The digest of the request that was edited.
        """
        silence: list[str] = []
        state = await self._threads.state(thread, note=silence.append)
        request = next((each for each in state["pending"] if each["request"] == id), None)
        if request is None:
            status = problem.status if problem else 404
            return visit.render("gone.html", status, thread=thread, request=id, problem=str(problem or ""))
        call = call_view({**request, "thread": thread}, visit.person, visit.now)
        changed = bool(edited is not None and digest != call.digest)
        review = edited is not None and not changed
        return visit.render(
            "review.html" if review else "request.html",
            problem.status if problem else 409 if changed else 200,
            call=call,
            problem=_words(problem, changed=changed),
            typed=_typed(call, typed),
            silent=bool(silence),
            spent=spent(state),
            agent=state.get("agent") or "",
            run=head_view(state, visit.caller.scopes),
            rows=difference(request["arguments"], edited) if review else (),
            edited=json.dumps(edited, ensure_ascii=True) if review else "",
        )


def _decision(id: str, fields: dict[str, str]) -> DecisionBody:
    """Read a form as a decision.

    Raises:
        HTTPProblem: 422: it is none.
    """
    edits = fields.get("decision") == "review" or "edited" in fields
    payload: JSON = {"decision": "approve" if edits else fields.get("decision", ""), "request": id}
    payload |= {"digest": fields.get("digest", "")}
    payload |= {name: fields[name] for name in TEXTS if fields.get(name, "").strip()}
    if fields.get("remember"):
        payload["remember"] = True
    if edits:
        text = fields.get("edited") or fields.get("arguments", "")
        payload["arguments"] = read_body(b'{"arguments":' + text.encode() + b"}", ArgumentsBody).arguments
    return read_fields(payload, DecisionBody)


def _signed(thread: str, id: str, fields: dict[str, str]) -> tuple[DecisionBody, str]:
    """Read the decision that the browser has signed, and the signature. The run verifies it.

    Raises:
        HTTPProblem: 422: it is none, or is about another request than the page.
    """
    signed = read_body(fields["signed"].encode(), SignedDecision)
    if (signed.thread, signed.statement.request) != (thread, id):
        raise HTTPProblem(422, "the signed decision is about another request than this page")
    return signed.statement, signed.signature


def _words(problem: HTTPProblem | None, *, changed: bool) -> str:
    if changed or (problem and problem.outcome == "digest_mismatch"):
        return "Nothing was sent: the request has changed since it was shown to you. It is shown as it is now."
    return str(problem or "")


def _typed(call: Call, fields: dict[str, str] | None) -> dict[str, str]:
    """Return what a person has typed, to show it again: not on another request than the one that they saw."""
    same = fields is not None and fields.get("digest") == call.digest
    known = fields if fields and same else {}
    empty = {"arguments": call.editable} | dict.fromkeys(TEXTS, "")
    return {name: known.get(name, text) for name, text in empty.items()}

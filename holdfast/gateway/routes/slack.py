"""Decisions by buttons in Slack.

1. Slack signs its request and names the user who pressed; the tokens file maps that user to a name of the policy.
2. The button's value holds the thread and the decision, which go to `Actions.decide` (`interventions.py`), as for any
   caller.
3. The text that the user typed beside the buttons goes to the agent: as the `say` of an approval, or as the reason of
   any other decision.
4. Slack shows its user a warning for any status but 200; the gateway's log has the reason.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic_core import from_json

from holdfast.core.run.contracts.record import FEEDBACK_INPUT
from holdfast.errors import HoldfastError
from holdfast.gateway.answers import Outcome
from holdfast.gateway.bodies import DecisionBody, read_body
from holdfast.gateway.callers import Callers
from holdfast.gateway.http.problems import HTTPProblem, problem_of
from holdfast.gateway.routes.interventions import Actions

WINDOW = 300
"""Seconds by which a timestamp may differ from our clock."""
TIMESTAMP, SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"


def slack_signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature that Slack sends, version 0."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def slack_router(actions: Actions, callers: Callers, *, secret: str, now: Callable[[], float] = time.time) -> APIRouter:
    """Return the route for Slack's interactions.

    Args:
        actions: Sends decisions to runs.
        callers: The names of Slack's users.
        secret: The Slack app's signing secret.
        now: Returns the time, in seconds since 1970.
    """
    routes = APIRouter()

    @routes.post("/slack/actions", include_in_schema=False)
    async def decide_by_button(request: Request) -> Outcome:
        """Decide a request by a button that a user pressed."""
        body, timestamp = await request.body(), request.headers.get(TIMESTAMP, "")
        expected = slack_signature(secret, timestamp, body)
        if not hmac.compare_digest(expected.encode(), request.headers.get(SIGNATURE, "").encode()):
            raise HTTPProblem(401, "the request is not signed with the secret of our Slack app")
        if not timestamp.isdigit() or abs(now() - int(timestamp)) > WINDOW:
            raise HTTPProblem(401, f"{TIMESTAMP} differs from our clock by more than {WINDOW} s")
        user, value, text = _read_button(body)
        caller = callers.with_slack_id(user)
        if caller is None:
            raise HTTPProblem(
                403, f"no caller has the Slack id {user[:40]!a}; list it under `slack` in the tokens file"
            )
        request.state.caller = caller.name
        thread, decision = _read_decision(value, text)
        try:
            _, outcome = await actions.decide(thread, decision, by=caller.name)
        except HoldfastError as error:
            raise problem_of(error, thread) from error
        return outcome

    return routes


def _read_button(body: bytes) -> tuple[str, str, str]:
    """Return the id of the user who pressed a button, the button's value, and the text that the user typed beside it.

    Raises:
        HTTPProblem: The body is not a button press.
    """
    try:
        payload: Any = from_json(parse_qs(body.decode(), strict_parsing=True)["payload"][0])
        return str(payload["user"]["id"]), str(payload["actions"][0]["value"]), _read_text(payload)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise HTTPProblem(422, "this is not a press of one of our buttons") from None


def _read_text(payload: Any) -> str:
    """Return the text that the user typed into the field beside the buttons; empty if the message has no such field.

    Raises:
        AttributeError: The payload is malformed.
    """
    values = (payload.get("state") or {}).get("values") or {}
    text = values.get(FEEDBACK_INPUT, {}).get(FEEDBACK_INPUT, {}).get("value") or ""
    return str(text).strip()


def _read_decision(value: str, text: str) -> tuple[str, DecisionBody]:
    """Return the thread and the decision in a button's value, with the text that the user typed."""
    try:
        decision = from_json(value)
        thread = str(decision.pop("thread"))
        if text:
            decision["say" if decision.get("decision") == "approve" else "reason"] = text
    except (ValueError, KeyError, AttributeError, TypeError):
        raise HTTPProblem(422, "this is not the value of one of our buttons") from None
    return thread, read_body(json.dumps(decision).encode(), DecisionBody)

"""Decisions from buttons in Slack. Slack signs what it sends, and says who has pressed; a file says whose name that is.

Slack shows its user a warning where the answer is no 200; why, the gateway's log has.
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

from holdfast.errors import HoldfastError
from holdfast.runtime.gateway.actions import Acting
from holdfast.runtime.gateway.bodies import DecisionBody, Outcome, read_body
from holdfast.runtime.gateway.callers import Callers
from holdfast.runtime.gateway.problems import Trouble, trouble_of

WINDOW = 300
"""Seconds by which a timestamp may differ from our clock."""
TIMESTAMP, SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"


def slack_signature(secret: str, timestamp: str, body: bytes) -> str:
    """What Slack sends as its signature, version 0."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def slack_router(acting: Acting, callers: Callers, *, secret: str, now: Callable[[], float] = time.time) -> APIRouter:
    """The path that Slack sends interactions to.

    Args:
        acting: Carries decisions out.
        callers: Knows who has which id in Slack.
        secret: The Slack app's signing secret.
        now: The time, in seconds since 1970.
    """
    routes = APIRouter()

    @routes.post("/slack/actions", include_in_schema=False)
    async def pressed(request: Request) -> Outcome:
        """A button was pressed."""
        body, timestamp = await request.body(), request.headers.get(TIMESTAMP, "")
        expected = slack_signature(secret, timestamp, body)
        if not hmac.compare_digest(expected.encode(), request.headers.get(SIGNATURE, "").encode()):
            raise Trouble(401, "this is not signed with the secret of our Slack app")
        if not timestamp.isdigit() or abs(now() - int(timestamp)) > WINDOW:
            raise Trouble(401, f"{TIMESTAMP} differs from our clock by more than {WINDOW} s")
        user, value = _button(body)
        caller = callers.on_slack(user)
        if caller is None:
            raise Trouble(403, f"nobody here has the Slack id {user[:40]!a}; list it under `slack` in the tokens file")
        request.state.caller = caller.name
        thread, decision = _decision(value)
        try:
            _, outcome = await acting.decide(thread, decision, by=caller.name)
        except HoldfastError as error:
            raise trouble_of(error, thread) from error
        return outcome

    return routes


def _button(body: bytes) -> tuple[str, str]:
    """Who has pressed a button, and its value.

    Raises:
        Trouble: It is something else.
    """
    try:
        payload: Any = from_json(parse_qs(body.decode(), strict_parsing=True)["payload"][0])
        return str(payload["user"]["id"]), str(payload["actions"][0]["value"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise Trouble(422, "this is no button of ours that was pressed") from None


def _decision(value: str) -> tuple[str, DecisionBody]:
    try:
        said = from_json(value)
        thread = str(said.pop("thread"))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise Trouble(422, "this is the value of no button of ours") from None
    return thread, read_body(json.dumps(said).encode(), DecisionBody)

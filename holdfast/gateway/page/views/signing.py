"""What the browser needs to sign a decision on a request, the values that its digest covers, or another statement about
a run; and the person's keys.

`static/sign.js` computes the digest from these values, draws the dialog from them, and signs with one of the keys.
"""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.core.authority.interventions import Extension, Message, Refinement
from holdfast.core.authority.statements import Signed
from holdfast.core.base.canonical import canonical, exact_json
from holdfast.core.base.names import person_name
from holdfast.errors import NotPortable

SAID: Mapping[str, type[Signed]] = {"say": Message, "refine": Refinement, "extend": Extension}
BOUND = ("tool", "spec_hash", "effect_key", "epoch", "digest", "kind")


def signable(request: Mapping[str, Any], name: str) -> str:
    """Return what a person may sign, as JSON for the browser; empty if the request has no canonical JSON.

    Args:
        request: As `pending` presents it, with its `thread`.
        name: The person who is signed in.
    """
    arguments, context, preview = request["arguments"], request.get("context"), request.get("preview")
    try:
        by = person_name(name)
        values = {each: request[each] for each in BOUND} | {
            "thread": request["thread"],
            "request": request["request"],
            "by": by,
            "arguments": arguments if isinstance(arguments, str) else exact_json(arguments),
            "context": None if context is None else canonical(context).decode(),
            "preview": preview or None,
            "keys": keys_of(request, name),
        }
        return json.dumps(values)
    except (KeyError, ValueError, NotPortable):
        return ""


def steerable(state: Mapping[str, Any], act: str, name: str) -> str:
    """Return the statement that a person may sign to steer a run, as JSON for the browser; empty if there is none.

    Args:
        state: As `show` presents it.
        act: `pause`, `resume` or `retry`.
        name: The person who is signed in.
    """
    bound, may = state.get("steering"), state.get("may_steer")
    try:
        by = person_name(name)
    except ValueError:
        return ""
    if not bound or not may:
        return ""
    values = {"act": act, "thread": state["thread"], "by": by, "run": bound["run"], "seen": bound["seen"]}
    return json.dumps({**values, "keys": keys_of(state, name, "may_steer")})


def signable_once(state: Mapping[str, Any], act: str, name: str) -> str:
    """Return what a person may sign to send a run something, as JSON for the browser; empty if there is nothing.

    Args:
        state: As `show` presents it.
        act: `say`, `refine` or `extend`.
        name: The person who is signed in.
    """
    try:
        by = person_name(name)
    except ValueError:
        return ""
    if not state.get("may_steer"):
        return ""
    values = {"act": act, "format": SAID[act].FORMAT, "thread": state["thread"], "by": by}
    return json.dumps({**values, "keys": keys_of(state, name, "may_steer")})


def keys_of(view: Mapping[str, Any], name: str, may: str = "may") -> list[str]:
    """Return the keys with which a person can sign a decision on a request, or steer a run."""
    try:
        listed = ((view.get(may) or {}).get("keys") or {}).get(person_name(name), [])
    except ValueError:
        return []
    return list(listed)

"""Reads what a browser has signed (`static/sign.js`) as it was signed; the run verifies it."""

from typing import Any, TypeVar

from holdfast.gateway.bodies import Body, SignedOnce, SignedSteering, read_body
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.page.guards import read_fields

_Sent = TypeVar("_Sent", bound=Body)


def read_steering(thread: str, signed: str) -> dict[str, Any] | None:
    """Read a statement that steers a run: the signature, and the state to which it is bound; None for nothing.

    Args:
        thread: The thread of the page.
        signed: The field of the form; empty for nothing.

    Raises:
        HTTPProblem: 422: it is none, or is about another run than the page.
    """
    if not signed:
        return None
    body = read_body(signed.encode(), SignedSteering)
    _check_thread(body.thread, thread)
    return body.model_dump(exclude={"thread"})


def read_once(thread: str, signed: str, kind: type[_Sent]) -> tuple[_Sent, dict[str, Any]]:
    """Read a statement that counts once: what it says, and the signature with its id and its expiry.

    Args:
        thread: The thread of the page.
        signed: The field of the form.
        kind: What the statement says.

    Raises:
        HTTPProblem: 422: it is none, or is about another run than the page.
    """
    body = read_body(signed.encode(), SignedOnce)
    _check_thread(body.thread, thread)
    return read_fields(body.statement, kind), body.model_dump(include={"id", "until", "signature"})


def _check_thread(signed: str, shown: str) -> None:
    if signed != shown:
        raise HTTPProblem(422, "the signed statement is about another run than this page")

"""What the gateway answers when it does not do what was asked: problem bodies (RFC 9457) that say what to do.

Errors of ours become a status here, and nowhere else. Their own words are kept where they help the caller; those that
tell of the machinery behind the gateway (addresses, namespaces) are not passed on.
"""

from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ConfigDict
from starlette.exceptions import HTTPException

from holdfast.base.models import Frozen
from holdfast.errors import (
    EventsMissing,
    HistoryUnreadable,
    HoldfastError,
    LogBroken,
    NoWorker,
    QueryRefused,
    RecordUnavailable,
    RecordUnreadable,
    RunStuck,
    ServerUnreachable,
    TaskInvalid,
    ThreadIdInvalid,
    ThreadNotFound,
)
from holdfast.runtime.reading.runs import NeverRan

RETRY_SECONDS = 5
"""When to ask again, where somebody is away."""

MEDIA_TYPE = "application/problem+json"

TITLES = {
    401: "Who is asking?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Too late, or not what was asked",
    413: "Too large",
    422: "Malformed",
    429: "Too many requests",
    500: "Our fault",
    503: "Not now",
}


class Answer(Frozen):
    """What the gateway answers with; its field docstrings reach `/openapi.json`."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Problem(Answer):
    """Why something was not done."""

    title: str
    status: int
    detail: str
    """What happened, and what to do."""
    outcome: str = ""
    """What became of a decision or message, where one was judged: `duplicate`, `not_entitled`, …"""


class Trouble(Exception):
    """Something is not done.

    Args:
        status: Of HTTP.
        detail: What happened, and what to do.
        outcome: Of a decision or a message that was judged.
        headers: Of the response.
    """

    def __init__(self, status: int, detail: str, *, outcome: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.outcome = outcome
        again = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
        self.headers = {**again, **(headers or {})}

    @property
    def response(self) -> JSONResponse:
        """The response that says so."""
        problem = Problem(
            title=TITLES.get(self.status, "Refused"), status=self.status, detail=str(self), outcome=self.outcome
        )
        body = problem.model_dump(exclude_defaults=True)
        return JSONResponse(body, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def trouble_of(error: HoldfastError, thread: str) -> Trouble:
    """An error of ours as what the caller is told.

    Args:
        error: What came back.
        thread: The thread that was asked for; empty for all.
    """
    match error:
        case ThreadNotFound() | ThreadIdInvalid():
            return Trouble(404, f"there is no thread {thread!r}; GET /pending lists those that wait for somebody")
        case TaskInvalid():
            return Trouble(422, str(error))
        case NeverRan():
            return Trouble(409, f"the run of thread {thread!r} was closed before any worker had it", outcome="too_late")
        case NoWorker():
            return Trouble(503, f"no worker answers for thread {thread!r}; the run is safe. Start one, and ask again")
        case RunStuck():
            return Trouble(503, f"a worker has thread {thread!r}, and its code cannot go on. Workers' logs say why")
        case QueryRefused():
            return Trouble(503, f"the worker that has thread {thread!r} cannot answer yet; ask again")
        case EventsMissing() | LogBroken() | RecordUnreadable() | HistoryUnreadable():
            where = f"`starter.py verify` says where thread {thread!r} is broken"
            return Trouble(409, f"not all events can be read: {type(error).__name__}. {where}")
        case RecordUnavailable():
            return Trouble(503, "the permanent record does not answer, and this is nowhere else; ask again")
        case ServerUnreachable():
            return Trouble(503, "Temporal does not answer; nothing is lost. Ask again")
        case _:
            return Trouble(503, f"this cannot be answered now ({type(error).__name__}); the gateway's log says why")


async def on_trouble(_: Request, error: Exception) -> JSONResponse:
    """Answer with a `Trouble`."""
    assert isinstance(error, Trouble)
    return error.response


async def on_http(_: Request, error: Exception) -> JSONResponse:
    """Answer what the framework refuses: no such path, no such method."""
    assert isinstance(error, HTTPException)
    words = f"{error.detail}; GET /openapi.json lists what there is"
    return Trouble(error.status_code, words, headers=dict(error.headers or {})).response


async def on_invalid(_: Request, error: Exception) -> JSONResponse:
    """Answer a parameter that does not fit. What was sent is not repeated: it may be anything."""
    assert isinstance(error, RequestValidationError)
    return Trouble(422, in_words(error.errors())).response


async def on_failure(_: Request, error: Exception) -> JSONResponse:
    """Answer where we failed; the log has the rest."""
    return Trouble(500, "the gateway failed; its log says how").response


def in_words(errors: Any) -> str:
    """Pydantic's errors in one line."""
    each = (f"{'.'.join(map(str, item['loc']))}: {item['msg'].removeprefix('Value error, ')}" for item in errors)
    return "; ".join(each)[:2_000].encode("utf-8", "replace").decode()

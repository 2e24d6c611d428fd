"""Problem responses (RFC 9457): the status and the text of every failed request.

Only this module maps our errors to a status. Their messages are kept if they help the caller, and replaced if they
would reveal the infrastructure behind the gateway (addresses, namespaces).
"""

from typing import Any

import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ConfigDict
from starlette.exceptions import HTTPException

from holdfast.client.reading.runs import NeverRan
from holdfast.config.programs import CLI
from holdfast.core.base.models import Frozen
from holdfast.errors import (
    AnswerForged,
    ArtifactAltered,
    ArtifactNotFound,
    CursorInvalid,
    EventsMissing,
    ExportFailed,
    HistoryForged,
    HistoryUnreadable,
    HoldfastError,
    LogBroken,
    NoWorker,
    QueryRefused,
    RecordUnavailable,
    RecordUnreadable,
    Refused,
    RunStuck,
    ScheduleExists,
    ScheduleInvalid,
    ScheduleNotFound,
    ServerUnreachable,
    TaskInvalid,
    ThreadForgotten,
    ThreadIdInvalid,
    ThreadNotFound,
    TreeNotRead,
)

RETRY_SECONDS = 5
"""The `Retry-After` if a server or a worker is unavailable."""

MEDIA_TYPE = "application/problem+json"

log = structlog.get_logger("gateway")

TITLES = {
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict with the state of the run",
    413: "Too large",
    414: "URL too long",
    416: "No such range",
    421: "Not this gateway",
    422: "Malformed",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Unavailable",
}


class ResponseBody(Frozen):
    """The body of a response; its field docstrings reach `/openapi.json`."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Problem(ResponseBody):
    """Why a request failed."""

    title: str
    status: int
    detail: str
    """What happened, and what to do."""
    outcome: str = ""
    """The outcome of a decision or a message, if the run judged it: `duplicate`, `not_entitled`, …"""


class HTTPProblem(Exception):
    """A request that fails with this problem as its response.

    Args:
        status: The HTTP status.
        detail: What happened, and what to do.
        outcome: The outcome of a decision or a message that the run judged.
        headers: Headers of the response.
    """

    def __init__(self, status: int, detail: str, *, outcome: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.outcome = outcome
        retry = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
        self.headers = {**retry, **(headers or {})}

    @property
    def response(self) -> JSONResponse:
        """The response with this problem."""
        problem = Problem(
            title=TITLES.get(self.status, "Refused"), status=self.status, detail=str(self), outcome=self.outcome
        )
        body = problem.model_dump(exclude_defaults=True)
        return JSONResponse(body, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def problem_of(error: HoldfastError, thread: str) -> HTTPProblem:
    """Return the problem for one of our errors.

    Args:
        error: The error.
        thread: The thread of the request; empty if it is not about a single thread.
    """
    match error:
        case ThreadNotFound() | ThreadIdInvalid():
            return HTTPProblem(404, f"there is no thread {thread!r}; GET /threads lists those that there are")
        case ScheduleNotFound():
            return HTTPProblem(404, "there is no such schedule; GET /schedules lists those that there are")
        case ScheduleExists():
            detail = "there is another schedule of this name; choose another name, or set `replace`"
            return HTTPProblem(409, detail, outcome="exists")
        case TaskInvalid() | CursorInvalid() | ScheduleInvalid():
            return HTTPProblem(422, str(error))
        case Refused():
            return HTTPProblem(409, str(error), outcome="refused")
        case ArtifactNotFound():
            return HTTPProblem(404, "there is no such artifact any more: it was pruned, or is in another store")
        case ArtifactAltered():
            where = f"`{CLI.command('verify')}` names the event"
            return HTTPProblem(409, f"the artifact's content was altered, so none of it is returned; {where}")
        case ExportFailed() if error.__cause__ is None:
            return HTTPProblem(409, str(error), outcome="refused")
        case ExportFailed():
            log.warning("export_failed", thread=thread, why=str(error))
            return HTTPProblem(503, "the gateway has no room for the file; try again later")
        case NeverRan():
            return HTTPProblem(
                409, f"the run of thread {thread!r} was closed before a worker picked it up", outcome="too_late"
            )
        case NoWorker():
            return HTTPProblem(
                503, f"no worker answers for thread {thread!r}; the run is safe. Start one, and try again"
            )
        case TreeNotRead():
            return HTTPProblem(503, f"thread {thread!r} was not read in time, with all of its tree; read it by itself")
        case RunStuck():
            return HTTPProblem(
                503, f"a worker has thread {thread!r}, but its code cannot resume it. The workers' logs say why"
            )
        case QueryRefused():
            return HTTPProblem(503, f"the worker that has thread {thread!r} cannot answer yet; try again")
        case ThreadForgotten():
            return HTTPProblem(410, f"thread {thread!r} was forgotten: its content was removed")
        case HistoryForged():
            detail = f"the run of thread {thread!r} was not made by our own processes: nothing that it says counts"
            return HTTPProblem(409, detail, outcome="unauthenticated")
        case AnswerForged():
            detail = f"what answers for thread {thread!r} is no worker of ours. The gateway's log says more"
            log.warning("answer_forged", thread=thread, why=str(error))
            return HTTPProblem(503, detail, outcome="unauthenticated")
        case EventsMissing() | LogBroken() | RecordUnreadable() | HistoryUnreadable():
            where = f"`{CLI.command('verify')}` says where thread {thread!r} is broken"
            return HTTPProblem(409, f"not all events can be read: {type(error).__name__}. {where}")
        case RecordUnavailable():
            return HTTPProblem(503, "the permanent record does not answer, and this is stored nowhere else; try again")
        case ServerUnreachable():
            return HTTPProblem(503, "Temporal does not answer; nothing is lost. Try again")
        case _:
            log.warning("request_refused", thread=thread, error=type(error).__name__, why=str(error))
            return HTTPProblem(503, f"the request failed ({type(error).__name__}); the gateway's log says why")


async def answer_problem(_: Request, error: Exception) -> JSONResponse:
    """Respond with an `HTTPProblem`."""
    assert isinstance(error, HTTPProblem)
    return error.response


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Respond to one of our errors."""
    assert isinstance(error, HoldfastError)
    return problem_of(error, getattr(request.state, "thread", "")).response


async def answer_http_exception(_: Request, error: Exception) -> JSONResponse:
    """Respond to an error of the framework: no such path, no such method."""
    assert isinstance(error, HTTPException)
    detail = f"{error.detail}; GET /openapi.json lists what there is"
    return HTTPProblem(error.status_code, detail, headers=dict(error.headers or {})).response


async def answer_validation_error(_: Request, error: Exception) -> JSONResponse:
    """Respond to an invalid parameter, without its value, which may be harmful."""
    assert isinstance(error, RequestValidationError)
    return HTTPProblem(422, validation_text(error.errors())).response


async def answer_unexpected_error(_: Request, error: Exception) -> JSONResponse:
    """Respond to an unexpected error; the log has the details."""
    return HTTPProblem(500, "the gateway failed; its log says why").response


def validation_text(errors: Any) -> str:
    """Return Pydantic's errors in one line."""
    each = (
        ": ".join(filter(None, (".".join(map(str, item["loc"])), item["msg"].removeprefix("Value error, "))))
        for item in errors
    )
    return "; ".join(each)[:2_000].encode("utf-8", "replace").decode()

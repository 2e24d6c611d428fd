"""Parts of the OpenAPI description that the framework cannot derive."""

from functools import cache
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from holdfast.gateway.http.problems import MEDIA_TYPE, TITLES, Problem

ALWAYS = (401, 403, 405, 408, 413, 414, 422, 429, 431, 500, 503)
"""The problem statuses of every authenticated route."""

ON_THREAD = (404, 409, *ALWAYS)
"""The problem statuses of a route on one thread."""


class DescribedApp(FastAPI):
    """An application whose description has the schema of problems.

    FastAPI adds the schema of a response's `model`, and builds a validator for each status of each route: half a second
    of CPU time.
    """

    def openapi(self) -> dict[str, Any]:
        description = super().openapi()
        description["components"]["schemas"][Problem.__name__] = _schema_of(Problem)
        return description


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may respond with."""
    return {status: _problem(status) for status in statuses}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    example = {"title": TITLES[status], "status": status, "detail": _DETAILS[status]}
    content = {MEDIA_TYPE: {"schema": schema, "example": example}}
    return {"description": TITLES[status], "content": content}


_DETAILS = {
    401: "say who you are: `Authorization: Bearer TOKEN`, or sign the request",
    403: "this requires the scope start, and dashboard has only list, read",
    404: "there is no thread 'refund-4711'; GET /threads lists those that there are",
    405: "Method Not Allowed; GET /openapi.json lists what there is",
    408: "the body did not arrive within 10 s; send it at once",
    409: "the run of thread 'refund-4711' is over",
    413: "a body has at most 262,144 bytes; put more into a file in the workspace",
    414: "path and query have 12,087 bytes, and may have 8,192",
    416: "it has 120000 bytes",
    422: "task: Field required",
    429: "more than 50 requests a second; wait a moment, and try again",
    431: "the headers, path and query have 20,113 bytes in 12 headers, and may have 16,384 in 100",
    500: "the gateway failed; its log says why",
    503: "Temporal does not answer; nothing is lost. Try again",
}


@cache
def _schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    parts = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inlined(schema, parts)
    return inlined


def body_of(kind: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Describe the body of a route, which the route reads itself, after it has authenticated the caller."""
    content = {"application/json": {"schema": _schema_of(kind)}}
    return {"requestBody": {"required": required, "content": content}}


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """Inline the parts of a schema: `#/$defs` would be resolved at the top of the description."""
    if isinstance(schema, list):
        return [_inlined(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {key: _inlined(each, parts) for key, each in schema.items()}


def content(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Describe a response with another media type than JSON."""
    return {"content": {media_type: {"schema": schema}}}


LOCATION = {"headers": {"Location": {"description": "The thread's address.", "schema": {"type": "string"}}}}

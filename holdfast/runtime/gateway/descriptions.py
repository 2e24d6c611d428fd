"""Parts of the OpenAPI description that the framework cannot derive."""

from typing import Any

from holdfast.runtime.gateway.bodies import Body
from holdfast.runtime.gateway.problems import MEDIA_TYPE, TITLES, Problem

ALWAYS = (401, 403, 405, 408, 413, 422, 429, 500, 503)
"""The problems that every route with a caller may respond with."""

ON_THREAD = (404, 409, *ALWAYS)
"""Those of a route on one thread."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may respond with."""
    return {status: _problem(status) for status in statuses}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    example = {"title": TITLES[status], "status": status, "detail": "What happened, and what to do."}
    return {
        "model": Problem,
        "description": TITLES[status],
        "content": {MEDIA_TYPE: {"schema": schema, "example": example}},
    }


def body_of(kind: type[Body], *, required: bool = True) -> dict[str, Any]:
    """The body of a route: the route reads it itself, after it has authenticated the caller."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def content(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A response in another form than JSON."""
    return {"content": {media_type: {"schema": schema}}}


LOCATION = {"headers": {"Location": {"description": "The thread's address.", "schema": {"type": "string"}}}}

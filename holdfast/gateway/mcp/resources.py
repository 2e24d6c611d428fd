"""The resources of a task: its transcript, and the artifacts that its own events refer to.

holdfast://tasks/{task}/transcript{?after}
holdfast://tasks/{task}/artifacts{?after}
holdfast://tasks/{task}/artifacts/{address}{?offset}
"""

import base64
import json
import re
from dataclasses import asdict
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from mcp_types import BlobResourceContents, ReadResourceResult, ResourceTemplate, TextResourceContents

from holdfast.client.artifacts import Artifact, references
from holdfast.client.threads import Threads
from holdfast.core.stores import ArtifactStore
from holdfast.errors import ArtifactNotFound
from holdfast.gateway.callers import Scope
from holdfast.gateway.http.pages import note, take
from holdfast.gateway.http.problems import HTTPProblem

SCHEME = "holdfast"
ITEMS = 100
"""The most messages or addresses of one resource."""
PART_BYTES = 512 * 1024
"""The most bytes of an artifact in one resource."""

_PATH = re.compile(r"/(?P<task>[^/]{1,200})/(?P<kind>transcript|artifacts)(?:/(?P<address>sha256:[0-9a-f]{64}))?")
_NUMBER = re.compile(r"\d{1,15}", re.ASCII)
_JSON = "application/json"


class Wanted(NamedTuple):
    """A resource that a client asks for."""

    task: str
    scope: Scope
    """The scope that the caller needs."""
    address: str | None
    """The artifact's address; None for a list."""
    start: int
    """The first item or byte."""


def templates() -> list[ResourceTemplate]:
    """Return the templates of the resources."""
    task = f"{SCHEME}://tasks/{{task}}"
    return [
        ResourceTemplate(
            name="transcript",
            uri_template=f"{task}/transcript{{?after}}",
            description="The messages of a task, oldest first: a page, and as `next` the `after` of the next page.",
            mime_type=_JSON,
        ),
        ResourceTemplate(
            name="artifacts",
            uri_template=f"{task}/artifacts{{?after}}",
            description="The addresses of results and replies that were too long for the log: a page, and `next`.",
            mime_type=_JSON,
        ),
        ResourceTemplate(
            name="artifact",
            uri_template=f"{task}/artifacts/{{address}}{{?offset}}",
            description=f"The content of an artifact, at most {PART_BYTES:,} bytes from an offset. A tool or an LLM "
            "wrote it, so it is text or bytes of unknown origin.",
        ),
    ]


def wanted(uri: str) -> Wanted:
    """Read the URI of a resource.

    Raises:
        HTTPProblem: 404: there are no such resources.
    """
    missing = HTTPProblem(404, "there is no such resource; resources/templates/list has the forms")
    try:
        parts = urlsplit(uri)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=1)
    except ValueError:
        raise missing from None
    match = _PATH.fullmatch(parts.path)
    if parts.scheme != SCHEME or parts.netloc != "tasks" or parts.fragment or match is None:
        raise missing
    if match["address"] and match["kind"] == "transcript":
        raise missing
    name = "offset" if match["address"] else "after"
    start = dict(query).pop(name, "") if query else "0"
    if (query and query[0][0] != name) or not _NUMBER.fullmatch(start):
        raise missing
    scope: Scope = "transcript" if match["kind"] == "transcript" else "artifacts"
    return Wanted(match["task"], scope, match["address"], int(start))


async def read_list(threads: Threads, uri: str, resource: Wanted) -> ReadResourceResult:
    """Read a page of a transcript or of a list of artifacts.

    Args:
        threads: Reads the log.
        uri: The URI of the resource.
        resource: The same, parsed.
    """
    kind, rows = "messages", threads.messages(resource.task, note=note)
    if resource.scope == "artifacts":
        kind, rows = "artifacts", (asdict(each) async for each in references(threads, resource.task, note=note))
    page, more = await take(rows, limit=ITEMS, skip=resource.start)
    view: dict[str, Any] = {kind: page, "next": resource.start + len(page) if more else None}
    text = json.dumps(view, ensure_ascii=False)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=_JSON, text=text)])


async def read_content(threads: Threads, store: ArtifactStore, uri: str, resource: Wanted) -> ReadResourceResult:
    """Read a part of an artifact that an event of the task refers to.

    Args:
        threads: Reads the log.
        store: The artifact store.
        uri: The URI of the resource.
        resource: The same, parsed.

    Raises:
        ArtifactNotFound: No event of the task refers to it.
    """
    address = resource.address or ""
    async for reference in references(threads, resource.task, note=note):
        if reference.address == address:
            break
    else:
        raise ArtifactNotFound(f"no event of task {resource.task!r} refers to this artifact")
    size = await store.size(address)
    content = await store.get(address, resource.start, PART_BYTES) if resource.start < size else b""
    meta = {"holdfast/size": size, "holdfast/offset": resource.start}
    kind = Artifact(address, content, reference.position).media_type
    contents: TextResourceContents | BlobResourceContents
    if len(content) == size and kind.startswith("text/"):
        contents = TextResourceContents(uri=uri, mime_type=kind, text=content.decode(), meta=meta)
    else:
        blob = base64.b64encode(content).decode()
        contents = BlobResourceContents(uri=uri, mime_type="application/octet-stream", blob=blob, meta=meta)
    return ReadResourceResult(contents=[contents])

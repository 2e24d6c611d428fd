"""The routes of artifacts: a list of those that a thread's own log refers to, and their content.

A tool or an LLM wrote the artifact, so a browser must never show it as one of our pages: it is a download without a
media type, which may not run scripts.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from holdfast.client.artifacts import references
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import MAX_INTEGER, digest_of
from holdfast.core.stores import ArtifactStore
from holdfast.gateway.answers import ArtifactsPage, ListedArtifact
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, content, problems
from holdfast.gateway.http.limits import Message, Receive, Send
from holdfast.gateway.http.pages import PageLimit, note, take
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots

PART_BYTES = 1024 * 1024
"""The part of an artifact that is in memory at a time."""

MEDIA_TYPE = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{1,15})?-(\d{1,15})?", re.ASCII)


class Download(StreamingResponse):
    """A part of an artifact, which holds a slot until it has been sent.

    Args:
        store: The artifact store.
        address: The artifact's address.
        part: The bytes to send.
        size: The artifact's size.
        first: The first bytes of the part, already read.
        slots: The downloads; the caller has acquired a slot already.
        caller: The caller's name.
    """

    def __init__(
        self, store: ArtifactStore, address: str, part: range, *, size: int, first: bytes, slots: Slots, caller: str
    ) -> None:
        self._slots = slots
        self._caller = caller
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Disposition": f'attachment; filename="{digest_of(address)}"',
            "Content-Length": str(len(part)),
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": f'"{address}"',
        }
        if len(part) < size:
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
        sent = _content(store, address, part, first)
        super().__init__(sent, 206 if len(part) < size else 200, headers=headers, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send the part, and release the slot."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slots.release(self._caller)


async def _content(store: ArtifactStore, address: str, part: range, first: bytes) -> AsyncIterator[bytes]:
    yield first
    for start in range(part.start + len(first), part.stop, PART_BYTES):
        yield await store.get(address, start, min(PART_BYTES, part.stop - start))


def artifacts_router(
    threads: Threads, authenticator: Authenticator, store: ArtifactStore | None, slots: Slots
) -> APIRouter:
    """Return the routes of artifacts.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        store: The artifact store; None if this gateway has none.
        slots: The downloads.
    """
    routes = APIRouter()
    reads = Depends(authenticator.for_thread("artifacts"))

    @routes.get("/threads/{thread}/artifacts", response_model=ArtifactsPage, responses=problems(*ON_THREAD))
    async def list_artifacts(
        access: Annotated[Access, reads],
        after: Annotated[int, Query(ge=-1, le=MAX_INTEGER, description="The `next` of the page before.")] = -1,
        limit: PageLimit = 100,
    ) -> ArtifactsPage:
        """List the artifacts that the thread's events refer to: full results and replies, images, files and skills."""
        rows = (asdict(each) async for each in references(threads, access.thread, note=note))
        page, more = await take(rows, limit=limit, skip=after + 1)
        artifacts = [ListedArtifact.model_validate(each) for each in page]
        return ArtifactsPage(artifacts=artifacts, next=after + len(artifacts) if more else None)

    @routes.get(
        "/threads/{thread}/artifacts/{address}",
        response_class=Response,
        responses={
            200: content(MEDIA_TYPE, {"type": "string", "format": "binary"}),
            206: {"description": "The range.", **content(MEDIA_TYPE, {"type": "string", "format": "binary"})},
            **problems(416, *ON_THREAD),
        },
    )
    async def get_artifact(
        request: Request,
        access: Annotated[Access, reads],
        address: Annotated[str, Path(description="`sha256:` and 64 hex digits.", examples=["sha256:" + "0" * 64])],
        requested: Annotated[str, Header(alias="Range", max_length=100, description="`bytes=0-999`: one range.")] = "",
    ) -> Response:
        """Get the content of an artifact, as a download. The thread's own events have to refer to it."""
        await _check_referred(threads, access.thread, address)
        if store is None:
            raise HTTPProblem(503, "this gateway has no artifact store: set DATABASE_URL as the workers have it")
        size = await store.size(address)
        part = _part(requested, size)
        slots.acquire(access.caller.name)
        try:
            first = await store.get(address, part.start, min(PART_BYTES, len(part)))  # verifies all of it
        except BaseException:
            slots.release(access.caller.name)
            raise
        request.state.cleanup.close()  # from here on it counts as a download, not as a request
        return Download(store, address, part, size=size, first=first, slots=slots, caller=access.caller.name)

    return routes


async def _check_referred(threads: Threads, thread: str, address: str) -> None:
    """Check that an event of the thread refers to an artifact; a caller may not read those of other threads.

    Raises:
        HTTPProblem: 404: no event does, even if the artifact exists.
    """
    async for reference in references(threads, thread, note=note):
        if reference.address == address:
            return
    raise HTTPProblem(404, f"no event of thread {thread!r} refers to this artifact; GET its /artifacts lists those")


def _part(requested: str, size: int) -> range:
    """Return the bytes of a `Range` header; all bytes for a form that we do not support.

    Raises:
        HTTPProblem: 416: there are no such bytes.
    """
    match = _RANGE.fullmatch(requested.strip())
    if match is None or not (match[1] or match[2]):
        return range(size)
    if match[1]:
        part = range(int(match[1]), min(int(match[2]) + 1, size) if match[2] else size)
    else:
        part = range(max(size - int(match[2]), 0), size)
    if not part:
        if match[1] and match[2] and int(match[1]) > int(match[2]):
            return range(size)  # invalid, so ignored
        raise HTTPProblem(416, f"it has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    return part

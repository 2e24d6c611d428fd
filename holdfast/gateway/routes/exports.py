"""The route that exports a thread as one file, which verifies offline.

The file is written to the disk first, because its headers have sizes and checksums. It never has a name, so a kill
leaves nothing of it; and nothing waits for the disk, because a crash may lose it. Callers with the scope `read` get the
log; artifacts take their own scope, as everywhere.

An export may take as long as it makes progress: while it is written, and while it is sent. A caller that stops reading
loses its place.

Seals may be on a slow mount. So those of one thread are read after the other, and a file whose seals are not read in
time has none.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Annotated, BinaryIO
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from holdfast.audit.evidence.anchors import Anchors
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.errors import ExportFailed, SettingsError
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, content, problems
from holdfast.gateway.http.limits import Message, Receive, Send
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.quotas import Places
from holdfast.portable.export import export_thread, read_seals
from holdfast.portable.format.manifest import Exported
from holdfast.portable.format.seals import OwnSeals

PART_BYTES = 64 * 1024
"""How much of the file is in memory at once, and how much a caller has to read in `STALL_SECONDS`."""

STALL_SECONDS = 60.0
"""How long a caller may read nothing."""

SEALS_SECONDS = 10.0
"""How long an export waits for its seals, and reads them."""

MEDIA_TYPE = "application/zip"

log = structlog.get_logger(__name__)


class ExportResponse(StreamingResponse):
    """A portable file, which holds a place until it has been sent.

    Args:
        file: The file, without a name on the disk; it is closed at the end.
        exported: What was written to it.
        places: Counts this one: the caller has entered already.
        caller: The caller's name.
    """

    def __init__(self, file: BinaryIO, exported: Exported, *, places: Places, caller: str) -> None:
        self._file = file
        self._places = places
        self._caller = caller
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(exported.thread, safe='')}.holdfast",
            "Content-Length": str(exported.bytes),
            "Holdfast-Seals": str(exported.seals),
            "Holdfast-Signed": str(exported.signed).lower(),
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        super().__init__(_parts(file), headers=headers, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send it, as long as the caller reads.

        Raises:
            TimeoutError: The caller does not.
        """

        async def sending(message: Message) -> None:
            async with asyncio.timeout(STALL_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, sending)
        finally:
            self._file.close()
            self._places.leave(self._caller)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(PART_BYTES):
        yield part


class _Seals:
    """Reads the seals of one thread after the other, however many callers wait or have left.

    Args:
        threads: The threads.
        anchors: Where their seals are; None for nowhere.
    """

    def __init__(self, threads: Threads, anchors: Anchors | None) -> None:
        self._threads = threads
        self._anchors = anchors
        self._reading = ThreadPoolExecutor(1, "seals")

    async def of(self, thread: str) -> OwnSeals:
        """Return the seals for a thread's file; none where they cannot be read in time."""
        if self._anchors is None:
            return OwnSeals()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SEALS_SECONDS):
                return await loop.run_in_executor(self._reading, read_seals, self._threads, thread, self._anchors)
        except (SettingsError, TimeoutError) as error:
            log.warning("export_without_seals", thread=thread, why=str(error) or "others were read for too long")
            return OwnSeals()


@contextmanager
def _room() -> Iterator[None]:
    """Raise `ExportFailed` from the error of a disk that is full, or of a temporary folder that is not there."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not of the file: a timeout while the thread was read
        raise ExportFailed(f"a temporary file cannot be written: {error.strerror}") from error


def exports_router(
    threads: Threads,
    authenticator: Authenticator,
    evidence: Evidence | None,
    places: Places,
    *,
    key: str | None,
    anchors: Anchors | None,
) -> APIRouter:
    """The route of exports.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        evidence: Ledger and artifacts; None to leave them out.
        places: Counts the exports, from the first event that is read to the last byte that is sent.
        key: The gateway's private key, which signs the files; None to sign none.
        anchors: Where seals of threads are, which the files are to have; None to put none into them.
    """
    routes = APIRouter()
    sealed = _Seals(threads, anchors)
    reads = Depends(authenticator.for_thread("read"))

    @routes.get(
        "/threads/{thread}/export",
        response_class=Response,
        responses={200: content(MEDIA_TYPE, {"type": "string", "format": "binary"}), **problems(*ON_THREAD)},
    )
    async def export_thread_as_file(
        request: Request,
        access: Annotated[Access, reads],
        redact: Annotated[bool, Query(description="Drop bodies and artifacts, and keep digests.")] = False,
        artifacts: Annotated[bool, Query(description="With the artifacts; needs the scope `artifacts`, too.")] = True,
        subagents: Annotated[bool, Query(description="With the logs of the sub-agents, of theirs, and so on.")] = True,
    ) -> Response:
        """The thread as one file that verifies offline, signed with the gateway's key if it has one, and if the seals
        of the run and the permanent record were checked and hold: `Holdfast-Signed` says so. What does not verify is
        refused.

        An open run is exported as far as it is recorded. It has the seals of nodes that the gateway can read:
        `Holdfast-Seals` says how many.
        """
        caller = access.caller
        places.enter(caller.name)
        try:
            with _room(), ExitStack() as unsent:  # to close a file on a full disk fails, too
                file = unsent.enter_context(tempfile.TemporaryFile())
                exported = await export_thread(
                    threads,
                    access.thread,
                    file,
                    evidence=evidence,
                    private=key,
                    redact=redact,
                    artifacts=artifacts and "artifacts" in caller.scopes,
                    subagents=subagents,
                    note=note,
                    progress=request.state.progress,
                    seals=await sealed.of(access.thread),
                    unsigned=True,
                )
                if exported.not_vouched_for:
                    log.warning("export_unsigned", thread=access.thread, why=exported.not_vouched_for)
                file.seek(0)
                unsent.pop_all()  # the response closes it
        except BaseException:
            places.leave(caller.name)
            raise
        request.state.cleanup.close()  # from here on it counts as an export, and not as a request
        return ExportResponse(file, exported, places=places, caller=caller.name)

    return routes

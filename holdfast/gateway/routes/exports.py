"""The route that exports a thread as one file, which verifies offline.

The file is written to the disk first, because its headers have sizes and checksums. It never has a name, so a killed
process leaves nothing behind; and it is not flushed, because a crash may lose it. The scope `read` suffices for the
log; artifacts require their own scope, as everywhere.

An export may take any time while it makes progress: while it is written, and while it is sent. A caller that stops
reading loses its slot.

Seals may be on a slow mount. So they are read for one thread at a time, and a file whose seals are not read in time has
none.
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
from holdfast.gateway.http.quotas import Slots
from holdfast.portable.export import export_thread, read_seals
from holdfast.portable.format.manifest import Exported
from holdfast.portable.format.seals import FileCheckpoints

PART_BYTES = 64 * 1024
"""The part of the file that is in memory at a time, and that a caller has to read within `STALL_SECONDS`."""

STALL_SECONDS = 60.0
"""The longest time without a read by the caller."""

SEALS_SECONDS = 10.0
"""The time limit for reading the seals of an export."""

MEDIA_TYPE = "application/zip"

log = structlog.get_logger(__name__)


class ExportResponse(StreamingResponse):
    """A portable file, which holds a slot until it has been sent.

    Args:
        file: The file, without a name on the disk; closed at the end.
        exported: The report of the export.
        slots: The exports; the caller has acquired a slot already.
        caller: The caller's name.
    """

    def __init__(self, file: BinaryIO, exported: Exported, *, slots: Slots, caller: str) -> None:
        self._file = file
        self._slots = slots
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
        """Send the file, and release the slot.

        Raises:
            TimeoutError: The caller has stopped reading.
        """

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(STALL_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        finally:
            self._file.close()
            self._slots.release(self._caller)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(PART_BYTES):
        yield part


class _Seals:
    """Reads the seals of one thread at a time, even if many callers wait or have disconnected.

    Args:
        threads: The threads.
        anchors: The anchors with their seals; None for none.
    """

    def __init__(self, threads: Threads, anchors: Anchors | None) -> None:
        self._threads = threads
        self._anchors = anchors
        self._reading = ThreadPoolExecutor(1, "seals")

    async def of(self, thread: str) -> FileCheckpoints:
        """Return the seals for a thread's file; none if they cannot be read in time."""
        if self._anchors is None:
            return FileCheckpoints()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SEALS_SECONDS):
                return await loop.run_in_executor(self._reading, read_seals, self._threads, thread, self._anchors)
        except (SettingsError, TimeoutError) as error:
            log.warning("export_without_seals", thread=thread, why=str(error) or "others were read for too long")
            return FileCheckpoints()


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise `ExportFailed` from an error of the disk, such as a full disk or a missing temporary folder."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # not from the file, but a timeout while the thread was read
        raise ExportFailed(f"a temporary file cannot be written: {error.strerror}") from error


def exports_router(
    threads: Threads,
    authenticator: Authenticator,
    evidence: Evidence | None,
    slots: Slots,
    *,
    key: str | None,
    anchors: Anchors | None,
) -> APIRouter:
    """Return the route of exports.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        evidence: Ledger and artifacts; None to leave them out.
        slots: The exports, from the first event that is read to the last byte that is sent.
        key: The gateway's private key, which signs the files; None to sign none.
        anchors: The anchors with the seals to include; None for no seals.
    """
    routes = APIRouter()
    seals = _Seals(threads, anchors)
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
        subagents: Annotated[bool, Query(description="With the logs of all sub-agents, at any depth.")] = True,
    ) -> Response:
        """Export the thread as one file that verifies offline. It is signed with the gateway's key, if there is one,
        and if the seals of the run and the permanent record were verified; `Holdfast-Signed` says whether. A thread
        that does not verify is not exported.

        An open run is exported as far as it is recorded. The file has the nodes' seals that the gateway can read:
        `Holdfast-Seals` is their number.
        """
        caller = access.caller
        slots.acquire(caller.name)
        try:
            with _disk_errors(), ExitStack() as unsent:  # closing a file on a full disk fails, too
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
                    seals=await seals.of(access.thread),
                    unsigned=True,
                )
                if exported.not_vouched_for:
                    log.warning("export_unsigned", thread=access.thread, why=exported.not_vouched_for)
                file.seek(0)
                unsent.pop_all()  # the response closes it
        except BaseException:
            slots.release(caller.name)
            raise
        request.state.cleanup.close()  # from here on it counts as an export, not as a request
        return ExportResponse(file, exported, slots=slots, caller=caller.name)

    return routes

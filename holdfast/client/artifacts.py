"""Read an artifact of a thread: a result that was clipped in the log, an image that was left out of it, a skill."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.client.reading.reader import Note
from holdfast.client.reading.record import call_store
from holdfast.client.reading.states import decode_lines
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import digest_of
from holdfast.core.log.events import AgentLoaded, RunContinued
from holdfast.core.log.references import artifacts_of
from holdfast.core.run.state.features import RESULT_NAMES_ARTIFACTS
from holdfast.core.stores import ArtifactStore
from holdfast.errors import ArtifactNotFound, SettingsError

TEXT = "text/plain; charset=utf-8"
_BINARY = "application/octet-stream"

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
}
"""How files of a kind begin. The store keeps bytes alone, so the media type follows from them."""


@dataclass(frozen=True)
class ArtifactReference:
    """An event's reference to an artifact."""

    address: str
    position: int
    """The position of the event."""


@dataclass(frozen=True)
class Artifact:
    """An artifact, whole."""

    address: str
    content: bytes
    position: int
    """Position of the first event that refers to it."""

    @property
    def media_type(self) -> str:
        """The media type, as far as the bytes show it."""
        content = self.content
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return "image/webp"
        for beginning, kind in _SIGNATURES.items():
            if content.startswith(beginning):
                return kind
        try:
            return _BINARY if "\0" in content.decode() else TEXT
        except UnicodeDecodeError:
            return _BINARY


async def read_artifact(
    threads: Threads, store: ArtifactStore | None, thread: str, address: str, *, note: Note | None = None
) -> Artifact:
    """Read an artifact that a thread's log refers to; the store compares its digest with the address.

    Args:
        threads: Reads the log.
        store: The store that the workers have; None where none is known here.
        thread: The thread id.
        address: `sha256:` and 64 hex digits.
        note: As for `Threads.state`.

    Raises:
        ThreadNotFound: There is no such thread.
        ArtifactNotFound: The thread's log does not refer to it, or the store does not have it.
        ArtifactAltered: The content has another digest.
        RecordUnavailable: The store does not answer.
        SettingsError: No store is known here.
    """
    digest_of(address)
    position = await _position(threads, thread, address, note)
    if store is None:
        raise SettingsError(
            "no artifact store is known here: set DATABASE_URL or HOLDFAST_ARTIFACTS as the workers have it"
        )
    return Artifact(address, await call_store(store.get(address)), position)


async def references(threads: Threads, thread: str, *, note: Note | None = None) -> AsyncIterator[ArtifactReference]:
    """Yield the references of a thread's events to artifacts, oldest first. An artifact may have several.

    Args:
        threads: Reads the log.
        thread: The thread id.
        note: As for `Threads.state`.
    """
    features = 0
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=note)):
        if isinstance(event, AgentLoaded | RunContinued):
            features = max(features, event.features)
        for address in artifacts_of(event, named=features >= RESULT_NAMES_ARTIFACTS):
            yield ArtifactReference(address, event.position)


async def _position(threads: Threads, thread: str, address: str, note: Note | None) -> int:
    async for reference in references(threads, thread, note=note):
        if reference.address == address:
            return reference.position
    raise ArtifactNotFound(
        f"the log of thread {thread!r} refers to no artifact {address}; `log --json` has the addresses of those it has"
    )

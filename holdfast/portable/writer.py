"""Writes a portable file member by member, with memory use independent of the size of the log."""

import fcntl
import hashlib
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import ExportFailed
from holdfast.portable.envelope import make_envelope
from holdfast.portable.format.layout import Entry, directory, local_header
from holdfast.portable.format.manifest import Manifest, Member, statement_of
from holdfast.portable.format.members import (
    ARTIFACTS,
    LEDGER,
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_MEMBERS,
    MAX_SMALL_BYTES,
    STATEMENT,
)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`, and publish it at the end of the block: a kill leaves no partial file there.

    Remains of killed writers are removed; files that are being written are locked.

    Raises:
        ExportFailed: The file exists already, or cannot be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        _remove_leftovers(path)
        if os.path.lexists(path):
            raise FileExistsError
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)  # unlike a rename, it never replaces a file
        finally:
            with suppress(OSError):
                part.unlink()
    except FileExistsError:
        raise ExportFailed(f"{path} exists already, and is not overwritten; name another file") from None
    except OSError as error:
        if error.errno is None:
            raise  # not about the file: a timeout while the thread was read
        raise ExportFailed(f"{path} cannot be written: {error.strerror}") from None


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files for that name, except locked ones."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part", re.ASCII)
    for each in path.parent.iterdir():
        if ours.fullmatch(each.name):
            with suppress(OSError):
                descriptor = os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    each.unlink()
                finally:
                    os.close(descriptor)


class Writer:
    """Writes the members of one file, in their order.

    Args:
        file: An empty, seekable file.
        progress: Called with each part that is written.
    """

    def __init__(self, file: BinaryIO, progress: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._progress = progress
        self._entries: list[Entry] = []
        self._members: list[Member] = []

    @contextmanager
    def member(self, name: str) -> Iterator["_OpenMember"]:
        """Write a member part by part. If the block raises, the member is removed again."""
        begin = self._file.tell()
        self._file.write(local_header(Entry(name, 0, 0)))
        content = _OpenMember(self._file, self._progress)
        try:
            yield content
        except BaseException:
            self._file.seek(begin)
            self._file.truncate()
            raise
        entry, end = Entry(name, content.size, content.crc), self._file.tell()
        if len(self._entries) >= MAX_MEMBERS - 2 or end > MAX_FILE_BYTES - 10_000_000:
            raise ExportFailed(
                f"the thread is too large for one file: at most {MAX_FILE_BYTES:,} bytes and {MAX_MEMBERS:,} members; "
                "try --no-artifacts or --no-subagents"
            )
        self._file.seek(begin)
        self._file.write(local_header(entry))
        self._file.seek(end)
        self._entries.append(entry)
        self._members.append(Member(name=name, size=entry.size, sha256=content.digest))

    def add(self, name: str, content: bytes) -> None:
        """Write a member.

        Raises:
            ExportFailed: The member is larger than a reader accepts.
        """
        if len(content) > MAX_SMALL_BYTES and name != LEDGER and not name.startswith(ARTIFACTS):
            raise ExportFailed(f"the thread is too large for one file: {name} has more than {MAX_SMALL_BYTES:,} bytes")
        with self.member(name) as member:
            member.write(content)

    def finish(self, manifest: Manifest, private: str | None) -> Manifest:
        """Write the manifest, the statement (signed if there is a key) and the directory.

        Args:
            manifest: The manifest without its members.
            private: The key to sign with; None to sign nothing.
        """
        manifest = manifest.model_copy(update={"members": tuple(self._members)})
        self.add(MANIFEST, manifest.encoded)
        self.add(STATEMENT, make_envelope(statement_of(manifest), private))
        self._file.write(directory(self._entries))
        return manifest


class _OpenMember:
    """A member that is being written."""

    def __init__(self, file: BinaryIO, progress: Callable[[], None]) -> None:
        self._file = file
        self._progress = progress
        self._hash = hashlib.sha256()
        self.size = self.crc = 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._progress()
        self._hash.update(content)
        self.crc = zlib.crc32(content, self.crc)
        self.size += len(content)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

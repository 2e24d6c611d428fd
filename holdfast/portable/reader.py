"""Reads an untrusted portable file: layout, manifest and statement first, then each member.

Only small members are held in memory. A reader raises `Unsound` at the first fault.
"""

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.core.stores import origin_of
from holdfast.errors import FileUnreadable
from holdfast.portable.envelope import signers
from holdfast.portable.format.layout import (
    END_BYTES,
    LocatedEntry,
    Unsound,
    directory_bytes,
    local_header,
    read_directory,
)
from holdfast.portable.format.manifest import Manifest, read_manifest, statement_of
from holdfast.portable.format.members import (
    LOG,
    MANIFEST,
    MAX_LINE_BYTES,
    MAX_SMALL_BYTES,
    REDACTED_LOG,
    STATEMENT,
    child_member,
    is_log,
    path_of,
)

_CHUNK = 1 << 20


@contextmanager
def open_portable_file(path: Path) -> Iterator["PortableFile"]:
    """Open a portable file, and check its layout, its manifest and its statement.

    Raises:
        FileUnreadable: The file cannot be read, or is not a regular file.
        Unsound: The file has a fault.
    """
    try:
        # O_NONBLOCK: a named pipe would block for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileUnreadable(f"{path} is not a regular file")
            yield PortableFile(file)
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None


class PortableFile:
    """An open file, whose layout, manifest and statement have been checked.

    Args:
        file: A seekable file.

    Raises:
        Unsound: One of them has a fault.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._entries = self._read_layout()
        self.manifest = self._read_manifest()
        self._digests = {each.name: each.sha256 for each in self.manifest.members}
        self.signers = signers(self.small(STATEMENT), statement_of(self.manifest))
        """The public keys that signed the statement, trusted or not."""

    @property
    def names(self) -> list[str]:
        """The names of the members, in their order."""
        return list(self._entries)

    @property
    def subagents(self) -> list[str]:
        """The paths of the sub-agents whose logs it has, as `3.1`, parents first."""
        return [path_of(name) for name in self._entries if path_of(name) and is_log(name)]

    @property
    def log(self) -> str:
        """The name of the log."""
        return REDACTED_LOG if self.manifest.redacted else LOG

    @property
    def owner(self) -> str:
        """The thread to which its last event belongs; for an archived branch, its thread."""
        return origin_of(self.manifest.thread) or self.manifest.thread

    def thread_at(self, path: str) -> str:
        """Return the thread of a sub-agent; for an empty path, the root thread."""
        return f"{self.owner}.{path}" if path else self.owner

    def has(self, name: str) -> bool:
        """Whether the file has a member of that name."""
        return name in self._entries

    def content(self, name: str) -> bytes:
        """Return a small member, after checking its digest.

        Raises:
            Unsound: It was altered.
        """
        content = self.small(name)
        if hashlib.sha256(content).hexdigest() != self._digest(name):
            raise Unsound(name, "it was altered: its digest is not that in the manifest")
        return content

    def check(self, name: str) -> str:
        """Read a member of any size, check its digest, and return that.

        Raises:
            Unsound: It was altered.
        """
        hashed, crc = hashlib.sha256(), 0
        for chunk in self._chunks(name):
            hashed.update(chunk)
            crc = zlib.crc32(chunk, crc)
        if hashed.hexdigest() != self._digest(name) or crc != self._entries[name].entry.crc:
            raise Unsound(name, "it was altered: its digest is not that in the manifest")
        return hashed.hexdigest()

    def whole(self, name: str, limit: int) -> bytes:
        """Return a member of at most `limit` bytes, after checking its digest.

        Raises:
            Unsound: The member is larger, or was altered.
        """
        if self._entries[name].entry.size > limit:
            raise Unsound(name, f"it has more than {limit:,} bytes")
        content = b"".join(self._chunks(name))
        if hashlib.sha256(content).hexdigest() != self._digest(name):
            raise Unsound(name, "it was altered: its digest is not that in the manifest")
        return content

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a member without line ends; check its digest after the last one.

        Raises:
            Unsound: A line is too long or the last one has no end; the member was altered.
        """
        hashed, rest, crc = hashlib.sha256(), list[bytes](), 0
        for chunk in self._chunks(name):
            hashed.update(chunk)
            crc = zlib.crc32(chunk, crc)
            first, *more = chunk.split(b"\n")
            rest.append(first)
            if more:
                yield b"".join(rest)
                yield from more[:-1]
                rest = more[-1:]
            if sum(map(len, rest)) > MAX_LINE_BYTES:
                raise Unsound(name, f"it has a line of more than {MAX_LINE_BYTES:,} bytes")
        if any(rest):
            yield b"".join(rest)
            raise Unsound(name, "its last line has no end")
        if hashed.hexdigest() != self._digest(name) or crc != self._entries[name].entry.crc:
            raise Unsound(name, "it was altered: its digest is not that in the manifest")

    # Layout and manifest.

    def _read_layout(self) -> dict[str, LocatedEntry]:
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, size - END_BYTES))
        ending = directory_bytes(self._file.read(END_BYTES), size)
        self._file.seek(size - ending)
        entries = {each.entry.name: each for each in read_directory(self._file.read(ending))}
        for each in entries.values():
            self._file.seek(each.offset)
            if self._file.read(each.entry.header_bytes) != local_header(each.entry):
                raise Unsound("zip", f"the header of {each.entry.name} differs from the directory")
        for name in (MANIFEST, STATEMENT):
            if name not in entries:
                raise Unsound("zip", f"it has no {name}")
        return entries

    def _read_manifest(self) -> Manifest:
        manifest = read_manifest(self.small(MANIFEST))
        listed = [(each.name, each.size) for each in manifest.members]
        stored = [(each.entry.name, each.entry.size) for each in self._entries.values()][:-2]
        if listed != stored:
            raise Unsound(MANIFEST, "its members are not those of the file")
        paths = dict.fromkeys(path_of(name) for name in self._entries)
        logs = {child_member(REDACTED_LOG if manifest.redacted else LOG, path) for path in paths}
        if logs != set(filter(is_log, self._entries)):
            raise Unsound(MANIFEST, "it lists no log, or two")
        for path in paths:
            if path.rpartition(".")[0] not in paths:
                raise Unsound(MANIFEST, f"it lists sub-agent {path}, and not the one above it")
        return manifest

    def _digest(self, name: str) -> str:
        return self._digests[name]

    def small(self, name: str) -> bytes:
        """Return a small member without checking it against the manifest.

        Raises:
            Unsound: The member is too large, or its checksum is wrong.
        """
        if self._entries[name].entry.size > MAX_SMALL_BYTES:
            raise Unsound(name, f"it has more than {MAX_SMALL_BYTES:,} bytes")
        content = b"".join(self._chunks(name))
        if zlib.crc32(content) != self._entries[name].entry.crc:
            raise Unsound(name, "it was altered: its checksum does not match")
        return content

    def _chunks(self, name: str) -> Iterator[bytes]:
        entry, offset = self._entries[name]
        at, stop = offset + entry.header_bytes, offset + entry.header_bytes + entry.size
        while at < stop:
            self._file.seek(at)
            chunk = self._file.read(min(_CHUNK, stop - at))
            if not chunk:
                raise Unsound(name, "it was cut off while it was read")
            at += len(chunk)
            yield chunk

"""The layout of a portable file: a zip file in which every byte is determined by its members.

Members are stored without compression, one right after the other from the first byte; every header field is fixed, and
the directory ends the file. A reader therefore computes the layout from the directory and compares: no byte is
unaccounted for, nothing overlaps, nothing is hidden before, between or after members, and nothing expands.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.portable.format.members import MAX_FILE_BYTES, MAX_MEMBERS, MAX_NAME_BYTES, MemberOrder, rank

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")

END_BYTES = _END.size
MAX_DIRECTORY_BYTES = MAX_MEMBERS * (_CENTRAL.size + MAX_NAME_BYTES)

_VERSION, _UNIX, _STORED, _MIDNIGHT, _DAY = 20, 3 << 8, 0, 0, 0x21
"""Values of the zip specification: version needed, system, method, time and date (1980-01-01 00:00)."""
_MODE = 0o100600 << 16
"""Mode 0600: readable and writable by the owner alone."""


class Unsound(Exception):
    """The first fault in a file; the verification catches it.

    Args:
        where: A member's name, or `zip` for the layout.
        reason: The fault.
        position: The position of the event at fault; None if the fault is in no event.
    """

    def __init__(self, where: str, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.where, self.reason, self.position = where, reason, position


class Entry(NamedTuple):
    """A member in the directory."""

    name: str
    size: int
    crc: int
    """CRC-32 of the content."""

    @property
    def header_bytes(self) -> int:
        """The size of the header before the content."""
        return _LOCAL.size + len(self.name)


class LocatedEntry(NamedTuple):
    """A member, and the offset of its header in the file."""

    entry: Entry
    offset: int


def local_header(entry: Entry) -> bytes:
    """Return the bytes before a member's content."""
    size, name = entry.size, entry.name.encode("ascii")
    fields = (_VERSION, 0, _STORED, _MIDNIGHT, _DAY, entry.crc, size, size, len(name), 0)
    return _LOCAL.pack(b"PK\x03\x04", *fields) + name


def locate(entries: Sequence[Entry]) -> list[LocatedEntry]:
    """Return the offset of each member: the first is at 0, each other one at the end of the one before."""
    located, offset = list[LocatedEntry](), 0
    for entry in entries:
        located.append(LocatedEntry(entry, offset))
        offset += entry.header_bytes + entry.size
    return located


def directory(entries: Sequence[Entry]) -> bytes:
    """Return the end of the file: the directory, and the record with its offset."""
    lines, offset = list[bytes](), 0
    for entry, offset in locate(entries):
        size, name = entry.size, entry.name.encode("ascii")
        values = (_UNIX | _VERSION, _VERSION, 0, _STORED, _MIDNIGHT, _DAY, entry.crc, size, size, len(name))
        lines.append(_CENTRAL.pack(b"PK\x01\x02", *values, 0, 0, 0, 0, _MODE, offset) + name)
    begin = offset + entries[-1].header_bytes + entries[-1].size if entries else 0
    body, count = b"".join(lines), len(entries)
    return body + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(body), begin, 0)


def directory_bytes(end: bytes, file_bytes: int) -> int:
    """Return the size of the directory with its end record.

    Args:
        end: The last `END_BYTES` bytes of the file.
        file_bytes: The size of the file.

    Raises:
        Unsound: The file does not end like a zip file of this format.
    """
    if file_bytes > MAX_FILE_BYTES:
        raise Unsound("zip", f"it has {file_bytes:,} bytes; the format has at most {MAX_FILE_BYTES:,}")
    if len(end) != END_BYTES or not end.startswith(b"PK\x05\x06"):
        raise Unsound("zip", "it does not end with the directory of a zip file: it was cut off, or is something else")
    _, _, _, _, count, size, begin, _ = _END.unpack(end)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES:
        raise Unsound("zip", f"it has {count:,} members; the format has at most {MAX_MEMBERS:,}")
    if begin + size + END_BYTES != file_bytes:
        raise Unsound("zip", "its directory is not where it has to be")
    return int(size) + END_BYTES


def read_directory(data: bytes) -> list[LocatedEntry]:
    """Read the directory with its end record; takes time in proportion to its size.

    Raises:
        Unsound: A name is not in the format, members are out of order, or a byte differs from the computed one.
    """
    entries, at, stop = list[Entry](), 0, len(data) - END_BYTES
    last: MemberOrder = (-1, (), "")
    end = 0
    while at < stop:
        head = data[at : at + _CENTRAL.size]
        if len(head) < _CENTRAL.size or not head.startswith(b"PK\x01\x02"):
            raise Unsound("zip", f"entry {len(entries)} of its directory is unreadable")
        fields = _CENTRAL.unpack(head)
        crc, size, name_bytes = fields[7], fields[9], fields[10]
        name = data[at + _CENTRAL.size : at + _CENTRAL.size + name_bytes].decode("latin-1")
        order = rank(name)
        if order is None or order <= last:
            reason = "is no member of the format" if order is None else "is out of order, or there twice"
            raise Unsound("zip", f"entry {len(entries)} of its directory, {name[:200]!r}, {reason}")
        last = order
        entries.append(Entry(name, size, crc))
        end += entries[-1].header_bytes + size
        if end > MAX_FILE_BYTES:
            raise Unsound("zip", f"entry {len(entries) - 1} of its directory ends beyond the largest file")
        at += _CENTRAL.size + name_bytes
    if directory(entries) != data:
        raise Unsound("zip", "its directory differs from the one that its members have")
    return locate(entries)

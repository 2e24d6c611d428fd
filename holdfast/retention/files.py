"""The files of a backup. A kill leaves the earlier backup intact, and no link below the folder is followed."""

import asyncio
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Literal
from uuid import uuid4

from holdfast.errors import ArtifactAltered, BackupInvalid
from holdfast.retention.format import ARTIFACTS, MANIFEST, NAME, PARTS, Artifact, Manifest, Part
from holdfast.storage.artifacts import PART_BYTES as PIECE

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_LOCK = ".lock"
_UNFINISHED = ".unfinished-"
HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


def prepare(folder: Path) -> None:
    """Create the folders, for their owner alone.

    Raises:
        BackupInvalid: The folder has other files than those of a backup.
    """
    if folder.exists() and not folder.is_dir():
        raise BackupInvalid(f"{folder} is a file: name a new folder, or one with an earlier backup")
    others = (
        {each.name for each in folder.iterdir()} - {MANIFEST, PARTS, ARTIFACTS, _LOCK} if folder.exists() else set()
    )
    if any(not name.startswith(_UNFINISHED) for name in others):
        raise BackupInvalid(f"{folder} holds something else than a backup: name a new folder")
    for each in (folder, folder / PARTS, folder / ARTIFACTS):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Reject other backups to the folder during a block. The kernel releases the lock when the process ends."""
    with os.fdopen(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupInvalid(f"another backup is being written to {folder}: wait until it has ended") from None
        yield


@contextmanager
def _new_file(file: Path) -> Iterator[BinaryIO]:
    """Open a file that appears with all its content at the end of the block, or not at all if the block raises."""
    unfinished = file.with_name(f"{_UNFINISHED}{uuid4().hex}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def write_part(folder: Path, part: Part, content: bytes) -> None:
    """Write a part."""
    with _new_file(folder / PARTS / part.name) as output:
        output.write(content)


def digests_in(folder: Path, parts: Sequence[Part]) -> Iterator[str]:
    """Yield the digest of each artifact once, in the order of the rows."""
    last = ""
    for part in parts:
        if part.kind == "artifacts":
            for line in (folder / PARTS / part.name).read_bytes().splitlines():
                digest = Artifact.model_validate_json(line).digest
                if digest != last:
                    yield (last := digest)


async def keep_artifact(
    folder: Path, digest: str, content: AsyncIterator[bytes]
) -> Literal["copied", "kept", "missing"]:
    """Copy an artifact, unless the backup has it intact; return `missing` if its content has another digest."""
    file = folder / ARTIFACTS / digest[:2] / digest[2:4] / digest
    if await asyncio.to_thread(_is_intact, file, digest):
        return "kept"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed = hashlib.sha256()
    try:
        with _new_file(file) as output:
            async for piece in content:
                hashed.update(piece)
                await asyncio.to_thread(output.write, piece)
            if hashed.hexdigest() != digest:
                raise ArtifactAltered
    except ArtifactAltered:
        return "missing"
    return "copied"


def _is_intact(file: Path, digest: str) -> bool:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == digest
    except OSError:
        return False


def publish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, then remove the files that no longer belong to the backup."""
    with _new_file(folder / MANIFEST) as output:
        output.write(manifest.model_dump_json(indent=1).encode())
    current = {part.name for part in manifest.parts}
    for each in (folder / PARTS).iterdir():
        if each.name not in current and (NAME.fullmatch(each.name) or each.name.startswith(_UNFINISHED)):
            each.unlink(missing_ok=True)
    _remove_others(folder, manifest)


def _remove_others(folder: Path, manifest: Manifest) -> None:
    """Remove the artifacts that only earlier backups had: their threads were pruned or forgotten."""
    wanted = digests_in(folder, manifest.parts)
    digest = next(wanted, "")
    for inner in sorted((folder / ARTIFACTS).glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]")):
        prefix, current = inner.parent.name + inner.name, set[str]()
        while digest and digest[:4] <= prefix:
            current.add(digest)
            digest = next(wanted, "")
        for each in inner.iterdir():
            if each.name not in current and (HEX.fullmatch(each.name) or each.name.startswith(_UNFINISHED)):
                each.unlink(missing_ok=True)


@contextmanager
def open_regular_file(folder: Path, *names: str) -> Iterator[int]:
    """Open a regular file below a folder.

    Raises:
        FileNotFoundError: There is no such file.
        BackupInvalid: It is not a regular file, or its path has a link.
    """
    *folders, name = names
    with ExitStack() as stack:

        def enter(path: str | Path, flags: int, parent: int | None = None) -> int:
            descriptor = os.open(path, flags, dir_fd=parent)
            stack.callback(os.close, descriptor)
            return descriptor

        try:
            parent = enter(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for each in folders:
                parent = enter(each, _FOLDER, parent)
            file = enter(name, _FILE, parent)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise BackupInvalid(f"{'/'.join(names)} is not a regular file")
            yield file
        except FileNotFoundError:
            raise
        except OSError as error:
            raise BackupInvalid(f"{'/'.join(names)} cannot be read: {error.strerror}; links are not followed") from None


@contextmanager
def open_artifact(folder: Path, digest: str) -> Iterator[int]:
    """Open an artifact.

    Raises:
        BackupInvalid: It is missing, or not a regular file.
    """
    try:
        with open_regular_file(folder, ARTIFACTS, digest[:2], digest[2:4], digest) as file:
            yield file
    except FileNotFoundError:
        raise BackupInvalid(f"artifact sha256:{digest} is missing from the backup") from None


def read(fd: int, most: int, what: str) -> bytes:
    """Read a file of at most `most` bytes; `what` names it in errors.

    Raises:
        BackupInvalid: The file is larger.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(fd, PIECE):
        size += len(piece)
        if size > most:
            raise BackupInvalid(f"{what} is larger than it may be ({most:,} bytes)")
        pieces.append(piece)
    return b"".join(pieces)

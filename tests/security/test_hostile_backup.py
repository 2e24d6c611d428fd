"""A backup is untrusted input: an altered one is not restored, writes nothing, and no path escapes it."""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.stack_file import Stack
from holdfast.errors import BackupInvalid, HoldfastError
from holdfast.retention.backup import back_up
from holdfast.retention.restore import restore
from holdfast.retention.source import Source
from holdfast.storage.artifacts import FolderArtifacts, PostgresArtifacts
from holdfast.storage.blocks import pack
from holdfast.storage.threads import PostgresThreads
from tests.support.keeping import add_thread, lines_of, new_pool

SQL = "x'; DROP SCHEMA holdfast CASCADE; --"


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def part(folder: Path, kind: str) -> Path:
    """Return the file of the only part of a kind."""
    (path,) = (folder / "parts").glob(f"{kind}-*")
    return path


def replace_rows(folder: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of a kind and their digests, as anyone can."""
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    digest = hashlib.sha256(content).hexdigest()
    (folder / "parts" / f"{kind}-{digest}.jsonl").write_bytes(content)

    def change(manifest: dict[str, Any]) -> None:
        mine = {"kind": kind, "sha256": digest, "bytes": len(content), "rows": len(rows)}
        manifest["parts"] = [mine if each["kind"] == kind else each for each in manifest["parts"]]

    rewrite(folder, change)


def rows_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of a kind."""
    return [json.loads(line) for line in part(folder, kind).read_bytes().splitlines()]


def edit(kind: str, **fields: Any) -> Callable[[Path], None]:
    """Change fields of the first row of a kind."""

    def change(folder: Path) -> None:
        rows = rows_of(folder, kind)
        rows[0] |= fields
        replace_rows(folder, kind, rows)

    return change


def flip(folder: Path) -> None:
    """Alter a part."""
    file = part(folder, "events")
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)


def name_path(folder: Path) -> None:
    """Replace the name of a part by a path that leads outside."""
    rewrite(folder, lambda manifest: manifest["parts"][0].update(sha256="../../../etc/passwd"))


def link_part(folder: Path) -> None:
    """Replace a part by a link to the same content."""
    file = part(folder, "events")
    file.rename(folder.parent / "outside")
    file.symlink_to(folder.parent / "outside")


def link_parts(folder: Path) -> None:
    """Replace the folder of parts by a link."""
    (folder / "parts").rename(folder.parent / "outside")
    (folder / "parts").symlink_to(folder.parent / "outside")


def pipe(folder: Path) -> None:
    """Replace a part by a pipe: reading it would block forever."""
    file = part(folder, "events")
    file.unlink()
    os.mkfifo(file)


def artifact(folder: Path) -> Path:
    """Return the file of an artifact."""
    return sorted((folder / "artifacts").glob("*/*/*"))[0]


def alter_artifact(folder: Path) -> None:
    """Alter an artifact without changing its size."""
    artifact(folder).write_bytes(b"x" * artifact(folder).stat().st_size)


def link_artifact(folder: Path) -> None:
    """Replace an artifact by a link to a file outside."""
    file = artifact(folder)
    file.unlink()
    file.symlink_to("/etc/passwd")


def drop_event(folder: Path) -> None:
    """Remove the first event of a thread: another row comes first."""
    lines = lines_of("a")
    block = pack(1, lines[1:])[0]
    row = {"thread": "a", "position": 1, "stop": 3, "size": block.size, "at": block.at}
    replace_rows(folder, "events", [row | {"body": base64.urlsafe_b64encode(block.body).decode()}])


ATTACKS: list[tuple[Callable[[Path], None], str]] = [
    (lambda folder: (folder / "manifest.json").unlink(), "holds no backup"),
    (lambda folder: rewrite(folder, lambda manifest: manifest.update(format="other")), "format"),
    (flip, "has another digest than its name"),
    (name_path, r"parts.0.sha256"),
    (link_part, "links are not followed"),
    (link_parts, "links are not followed"),
    (pipe, "is not a regular file"),
    (lambda folder: rewrite(folder, lambda m: m["parts"][0].update(rows=2_000_000_000)), "the manifest says"),
    (lambda folder: rewrite(folder, lambda m: m["parts"][0].update(bytes=1)), "larger than it may be"),
    (lambda folder: rewrite(folder, lambda m: m["parts"][0].update(bytes=2**60)), "parts.0.bytes"),
    (edit("events", stop=2**31 - 1), "is missing, or out of place"),
    (edit("events", size=2**40), "size"),
    (edit("events", thread=SQL), "it has the log of another one"),
    (edit("events", thread=""), "thread"),
    (edit("events", thread="a\0b"), "NUL"),
    (edit("events", extra=1), "extra"),
    (drop_event, "event 0 is missing"),
    (edit("effects", outcome=None), "outcome without a time"),
    (edit("effects", epoch=2**40), "epoch"),
    (edit("memories", trust="root"), "trust"),
    (edit("artifacts", digest="../../../../etc/passwd"), "digest"),
    (edit("artifacts", digest="0" * 64), "is missing from the backup"),
    (alter_artifact, "was altered in the backup"),
    (link_artifact, "links are not followed"),
]


async def test_no_altered_backup_is_restored(stack: Stack, tmp_path: Path) -> None:
    """Each attack is rejected with the reason before anything is written."""
    async with new_pool(stack.database_url) as (url, pool), new_pool(stack.database_url) as (_, empty):
        await add_thread(pool, "a")
        await add_thread(pool, "b")
        await back_up(url, tmp_path / "good", artifacts=None)
        for number, (attack, words) in enumerate(ATTACKS):
            folder = tmp_path / f"{number}" / "backup"
            shutil.copytree(tmp_path / "good", folder)
            attack(folder)
            with pytest.raises(BackupInvalid, match=words):
                await restore(Source(folder), empty, PostgresArtifacts(empty))
        async with empty.connection() as connection:
            for table in ("threads", "events", "effects", "memories", "artifacts"):
                assert (await connection.execute(f"SELECT FROM holdfast.{table}")).rowcount == 0


def damage_last_event(folder: Path) -> None:
    """Alter the last event of the first thread, in a block with matching digests."""
    rows = rows_of(folder, "events")
    lines = lines_of(rows[0]["thread"])
    (block,) = pack(0, [*lines[:-1], lines[-1].replace(b"completed", b"cancelled")])
    rows[0] |= {"size": block.size, "body": base64.urlsafe_b64encode(block.body).decode()}
    replace_rows(folder, "events", rows)


async def test_a_damaged_thread_is_omitted_whole_and_named(stack: Stack, tmp_path: Path) -> None:
    """On request, all other threads are restored, and no event of the damaged one; its effects stay in the ledger."""
    async with new_pool(stack.database_url) as (url, pool):
        for thread in ("a", "b", "c"):
            await add_thread(pool, thread)
        await back_up(url, tmp_path / "good", artifacts=None)
        first = rows_of(tmp_path / "good", "events")[0]["thread"]
        attacks = (damage_last_event, edit("events", stop=2), edit("events", position=1), edit("events", thread=SQL))
        for number, attack in enumerate(attacks):
            folder, named = tmp_path / f"{number}" / "backup", SQL if number == len(attacks) - 1 else first
            shutil.copytree(tmp_path / "good", folder)
            attack(folder)
            with pytest.raises(BackupInvalid, match="--without-damaged"):
                Source(folder).check()
            async with new_pool(stack.database_url) as (_, empty):
                source = Source(folder, without_damaged=True)
                done = await restore(source, empty, PostgresArtifacts(empty))
                assert (done.threads, list(done.damaged)) == ({"a", "b", "c"} - {first}, [named])
                assert await PostgresThreads(empty).length(named) == 0
                assert done.effects == 3
                again = await restore(Source(folder, without_damaged=True), empty, PostgresArtifacts(empty))
                assert again == done, "it can be repeated"


async def test_text_of_a_backup_is_never_sql(stack: Stack, tmp_path: Path) -> None:
    """Ids and texts are values: a thread may have any id, and is restored unchanged."""
    async with new_pool(stack.database_url) as (url, pool), new_pool(stack.database_url) as (_, empty):
        lines = await add_thread(pool, SQL)
        await back_up(url, tmp_path / "b", artifacts=None)
        done = await restore(Source(tmp_path / "b"), empty, FolderArtifacts(tmp_path / "store"))
        assert (done.threads, done.events, done.effects, done.memories) == ({SQL}, len(lines), 1, 2)
        async with empty.connection() as connection:
            found = await connection.execute("SELECT thread FROM holdfast.threads")
            assert await found.fetchall() == [(SQL,)]


async def test_a_folder_with_other_files_is_rejected_for_a_backup(stack: Stack, tmp_path: Path) -> None:
    """A backup overwrites nobody's files."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(HoldfastError, match="holds something else"):
        await back_up(stack.database_url, tmp_path, artifacts=None)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]

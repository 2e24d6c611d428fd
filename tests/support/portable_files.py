"""Portable files for tests: made from any log, taken apart, and reassembled as an attacker would."""

import asyncio
import hashlib
import importlib.util
import io
import json
import sys
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.base.canonical import canonical
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.node_seals import SignedCheckpoint, make_seal
from holdfast.core.stores import EffectRow
from holdfast.portable.envelope import make_envelope
from holdfast.portable.export import with_nodes
from holdfast.portable.exported_logs import ledger_lines, write_log
from holdfast.portable.format.layout import Entry, directory, local_header
from holdfast.portable.format.manifest import Manifest, Member, read_manifest, statement_of
from holdfast.portable.format.members import (
    LEDGER,
    LOG,
    MANIFEST,
    NODES,
    REDACTED_LOG,
    SEALS,
    STATEMENT,
    artifact_member,
    child_member,
)
from holdfast.portable.format.seals import FileCheckpoints
from holdfast.portable.verify import FileVerification, verify_file
from holdfast.portable.writer import Writer

FOLDER = Path(__file__).parents[2] / "docs" / "verify"
ALICE, MALLORY = encode_key(b"a" * 32), encode_key(b"m" * 32)
SIGNER = public_key(ALICE)

Parts = list[tuple[str, bytes]]
"""The members of a file, in their order: name and content."""


def export(
    events: Iterable[AgentEvent],
    *,
    thread: str,
    private: str | None = ALICE,
    rows: Sequence[EffectRow] | None = None,
    artifacts: Iterable[bytes] = (),
    redact: bool = False,
    seals: Sequence[SignedCheckpoint] = (),
    children: Mapping[str, Sequence[AgentEvent]] = MappingProxyType({}),
) -> bytes:
    """Return the file of a log, as `export_thread` writes it; without `rows`, the ledger is left out.

    Args:
        events: The log.
        thread: Its thread.
        private: The key to sign with.
        rows: The ledger's; sub-agents' ledgers are empty.
        artifacts: The content of artifacts.
        redact: Drop bodies.
        seals: The log's signed checkpoints.
        children: The logs of sub-agents, by path, in the order of the file.
    """
    own = FileCheckpoints(tuple(seals))

    async def lines(events: Iterable[AgentEvent]) -> AsyncIterator[bytes]:
        for event in events:
            yield event_line(event)

    async def write() -> bytes:
        writer, started = Writer(file := io.BytesIO()), 0
        log = await write_log(writer, lines(events), redact=redact, sealed=own.positions)
        if rows is not None:
            writer.add(LEDGER, ledger_lines(rows, redact=redact))
        sealed = dict(own.members(log.digests))
        if sealed:
            writer.add(SEALS, sealed[SEALS])
        for path, below in children.items():
            name = child_member(REDACTED_LOG if redact else LOG, path)
            started += len((await write_log(writer, lines(below), redact=redact, name=name)).children)
            if rows is not None:
                writer.add(child_member(LEDGER, path), b"")
        for name, content in sorted((artifact_member(hashlib.sha256(one).hexdigest()), one) for one in artifacts):
            writer.add(name, content)
        for name, content in with_nodes(log.derived.members(redacted=redact), sealed.get(NODES)):
            writer.add(name, content)
        left_out: Any = ("artifacts",) if redact or (log.artifacts and not artifacts) else ()
        left_out += ("ledger",) if rows is None else ()
        left_out += ("subagents",) if len(log.children) + started > len(children) else ()
        manifest = Manifest(
            thread=thread, events=log.events, head=log.head, redacted=redact, left_out=left_out, members=()
        )
        writer.finish(manifest, private)
        return file.getvalue()

    return asyncio.run(write())


NODE_KEY, OTHER_NODE_KEY = encode_key(b"n" * 32), encode_key(b"o" * 32)


def sealed(
    events: Sequence[AgentEvent], counts: Iterable[int], *, thread: str, key: str = NODE_KEY
) -> list[SignedCheckpoint]:
    """Return the checkpoints that a node signed when the log had these numbers of events."""
    return [
        make_seal(
            key,
            namespace="default",
            thread=thread,
            events=count,
            head=events[count - 1].digest,
            at=events[count - 1].at,
        )
        for count in counts
    ]


def export_tree(tree: Mapping[str, Sequence[AgentEvent]], *, thread: str = "t", **options: Any) -> bytes:
    """Return the file of a tree of logs, by path, the root's first; the ledgers are empty."""
    below = {path: events for path, events in tree.items() if path}
    return export(tree[""], thread=thread, **{"rows": (), "children": below, **options})


def parts_of(file: bytes) -> Parts:
    """Take a file apart."""
    with zipfile.ZipFile(io.BytesIO(file)) as read:
        return [(each.filename, read.read(each)) for each in read.infolist()]


def packed(parts: Parts) -> bytes:
    """Assemble members in a layout that is valid for any names."""
    entries = [Entry(name, len(content), zlib.crc32(content)) for name, content in parts]
    members = [local_header(entry) + content for entry, (_, content) in zip(entries, parts, strict=True)]
    return b"".join(members) + directory(entries)


def rebuilt(parts: Parts, private: str | None, **changes: Any) -> bytes:
    """Assemble members with a manifest and a statement that match them: all that an attacker can do.

    Args:
        parts: The members; a manifest and a statement among them are replaced.
        private: The key to sign with; None to sign nothing.
        changes: Fields of the manifest that differ from those of the manifest among `parts`.
    """
    old = read_manifest(dict(parts)[MANIFEST])
    kept = [(name, content) for name, content in parts if name not in (MANIFEST, STATEMENT)]
    members = tuple(
        Member(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()) for name, content in kept
    )
    manifest = old.model_copy(update={"members": members, **log_changes(dict(kept)), **changes})
    return packed([*kept, (MANIFEST, manifest.encoded), (STATEMENT, make_envelope(statement_of(manifest), private))])


def log_changes(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the manifest's entries about the log among these members."""
    lines = parts.get(LOG, parts.get(REDACTED_LOG, b"")).splitlines()
    try:
        return {"events": len(lines), "head": str(json.loads(lines[-1])["digest"])} if lines else {}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}


def log_of(events: Iterable[AgentEvent]) -> bytes:
    """Return a log's lines."""
    return b"".join(event_line(event) + b"\n" for event in events)


def row_line(row: EffectRow) -> bytes:
    """Return a row of the ledger as a line."""
    return canonical({"key": row.key, "epoch": row.epoch, "tool": row.tool, "outcome": row.outcome}) + b"\n"


def ours(path: Path, *, signer: str | None = SIGNER, **options: Any) -> FileVerification:
    """Verify a file as Holdfast does."""
    return asyncio.run(verify_file(path, signer=signer, **options))


@cache
def independent() -> ModuleType:
    """Import `docs/verify/verify_file.py`, which nothing else imports; it finds `verify.py` beside itself."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("verify_file", FOLDER / "verify_file.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("verify", None)

"""Reads the rows of the effect ledger in a portable file, and compares them with the log."""

import json

from holdfast.audit.evidence.evidence import ledger_faults
from holdfast.client.reading.record import Evidence
from holdfast.core.base.canonical import canonical
from holdfast.core.stores import EffectRow, origin_of
from holdfast.errors import NotPortable
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import LEDGER, child_member
from holdfast.portable.judging import LogFindings
from holdfast.portable.reader import PortableFile


async def check_ledger(file: PortableFile, judged: LogFindings, path: str = "") -> None:
    """Check the rows of a ledger against a judged log.

    Raises:
        Unsound: The ledger contradicts the log.
    """
    name = child_member(LEDGER, path)
    if not file.has(name):
        if "ledger" in file.manifest.left_out:
            return
        raise Unsound(name, "it is missing, and the manifest does not say that it was left out")
    rows = ledger_of(file, path)
    keys = [(row.key, row.epoch) for row in rows]
    if keys != sorted(set(keys)):
        raise Unsound(name, "its rows are out of order, or there twice")

    async def effects(thread: str) -> list[EffectRow]:
        return rows

    async def archived(thread: str) -> list[str]:
        return []

    audit, thread = judged.audit, file.thread_at(path)
    faults = await ledger_faults(
        Evidence(effects, archived, None),
        thread,
        rows,
        audit.effects,
        began=audit.effects,
        past=audit.past.keys(),
        # The ledger of an archived branch also has the effects that its thread started after the reset.
        whole=origin_of(file.manifest.thread) is None,
    )
    if faults:
        first = min(faults, key=lambda fault: fault.order)
        raise Unsound(name, first.reason, first.position)


def ledger_of(file: PortableFile, path: str = "") -> list[EffectRow]:
    """Return the ledger's rows of a file's thread, or of a sub-agent in it.

    Raises:
        Unsound: A line is not a row, or the member was altered.
    """
    name = child_member(LEDGER, path)
    return [_row(name, line) for line in file.lines(name)]


def _row(name: str, line: bytes) -> EffectRow:
    try:
        row = json.loads(line)
        if canonical(row) == line and row.keys() == {"key", "epoch", "tool", "outcome"}:
            fits = [isinstance(row[name], str) for name in ("key", "tool")]
            if all(fits) and type(row["epoch"]) is int and isinstance(row["outcome"], str | None):
                return EffectRow(row["key"], row["epoch"], row["tool"], row["outcome"])
    except (ValueError, RecursionError, AttributeError, NotPortable):
        pass
    raise Unsound(name, "a line is no row of a ledger in canonical JSON")

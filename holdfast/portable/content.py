"""The importable content of a portable file: checks all of it, and that a trusted key vouches for it.

The author of a file controls everything in it. So a key that is trusted here must have signed it; or a person allows an
unsigned file, and then outcomes that only its ledger has do not count.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.client.start_options import check_own_id
from holdfast.core.authority.policy import Policy
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.state.features import require_features
from holdfast.core.run.state.state import RunState
from holdfast.errors import FeaturesUnknown, ImportRefused
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.manifest import sha256
from holdfast.portable.format.members import ARTIFACTS, LEDGER, LOG, child_member, path_of
from holdfast.portable.importing_children import SubagentContent
from holdfast.portable.judging import LogFindings
from holdfast.portable.ledger import ledger_of
from holdfast.portable.reader import PortableFile, open_portable_file
from holdfast.portable.verify import check_file
from holdfast.storage.imported_effects import ImportedEffect

MAX_LOG_BYTES: Final = 256_000_000
"""A larger log cannot be imported: a run that continues it has to hold it in memory."""

MAX_ARTIFACT_BYTES: Final = 256_000_000
"""A file with a larger artifact cannot be imported: stores take an artifact in one piece."""


@dataclass(frozen=True)
class Content:
    """The content of a file that may be imported."""

    thread: str
    lines: Sequence[bytes]
    """The log."""
    state: RunState
    """The thread's state at its end."""
    effects: Sequence[ImportedEffect]
    """The ledger's rows."""
    point: ImportPoint
    artifacts: Sequence[str]
    """Addresses in the log."""
    children: Sequence[SubagentContent]
    """The sub-agents whose logs are imported, parents first."""


@contextmanager
def open_for_import(path: Path) -> Iterator[PortableFile]:
    """Open a file for a block.

    Raises:
        FileUnreadable: The file cannot be opened.
        ImportRefused: The file has a fault, which opening it or the block found.
    """
    try:
        with open_portable_file(path) as file:
            yield file
    except Unsound as fault:
        event = "" if fault.position is None else f"event {fault.position}, "
        raise ImportRefused(
            f"{path} does not verify: {event}in {fault.where}: {fault.reason}. Nothing was imported; export it again."
        ) from None


async def content_of(file: PortableFile, *, trusted: Policy | None, signer: str | None, unproven: bool) -> Content:
    """Check all of a file, and return its content. Later reads check the same digests.

    Args:
        file: The file.
        trusted: As for `import_thread`.
        signer: As for `import_thread`.
        unproven: As for `import_thread`.

    Raises:
        Unsound: The file has a fault.
        ImportRefused: No trusted key has signed it, or it lacks something that the thread needs to continue.
        ThreadIdInvalid: No thread can have this id here.
    """
    manifest = file.manifest
    thread = check_own_id(manifest.thread)
    voucher = _voucher(file, trusted, signer)
    if not voucher and not unproven:
        raise ImportRefused(_unsigned(file))
    if manifest.redacted:
        raise ImportRefused(f"the file of {thread} is redacted: what was said is not in it. Export it without --redact")
    _check_sizes(file)
    children: dict[str, SubagentContent] = {}

    def below(path: str, child: LogFindings) -> None:
        """Collect an ended sub-agent, unless its parent was left out."""
        above = path.rpartition(".")[0]
        if voucher and child.audit.state.outcome and (not above or above in children):
            effects = _effects(file, child, path, vouched=True)
            children[path] = SubagentContent(file.thread_at(path), path, tuple(child.audit.artifacts), effects)

    judged, tree = await check_file(file, trusted=trusted if voucher else None, signer=voucher or None, below=below)
    assert judged is not None
    try:
        require_features(judged.audit.state.features)
    except FeaturesUnknown as error:
        raise ImportRefused(f"{thread} cannot continue here: {error}") from None
    effects_below = any(child.effects for child in children.values())
    for part, needed in (("artifacts", tree.artifacts), ("ledger", judged.audit.effects or effects_below)):
        if part in manifest.left_out and needed:
            raise ImportRefused(
                f"the file of {thread} has no {part}, without which it cannot continue: export it again"
            )
    lines = await asyncio.to_thread(lambda: list(file.lines(LOG)))
    effects = _effects(file, judged, vouched=bool(voucher))
    point = ImportPoint(
        position=manifest.events - 1, head=manifest.head, manifest=sha256(manifest.encoded), signer=voucher
    )
    return Content(
        thread, lines, judged.audit.state, effects, point, tuple(judged.audit.artifacts), tuple(children.values())
    )


def artifact_of(file: PortableFile, name: str) -> bytes:
    """Return an artifact of a checked file.

    Raises:
        Unsound: The artifact was altered in the meantime.
    """
    return file.whole(name, MAX_ARTIFACT_BYTES)


def _voucher(file: PortableFile, trusted: Policy | None, signer: str | None) -> str:
    """Return the trusted key that has signed the file; empty for none.

    An approver's key counts only if it is also listed as a signer's: approvers sign single decisions, within a quorum.
    """
    if signer is not None:
        return signer if signer in file.signers else ""
    keys = trusted.file_keys if trusted else frozenset[str]()
    return next((key for key in file.signers if key in keys), "")


def _unsigned(file: PortableFile) -> str:
    thread = file.manifest.thread
    signed = f"is signed with {', '.join(file.signers)}" if file.signers else "is not signed"
    return (
        f"the file of {thread} {signed}: name the key of whom you trust with --signer, or `signers` in --keys. "
        "--unproven imports a file for which nobody vouches."
    )


def _check_sizes(file: PortableFile) -> None:
    limits = {LOG: MAX_LOG_BYTES, LEDGER: MAX_LOG_BYTES}
    for member in file.manifest.members:
        own = "memory/" + member.name.rpartition("/")[2] if path_of(member.name) else member.name
        limit = MAX_ARTIFACT_BYTES if member.name.startswith(ARTIFACTS) else limits.get(own, member.size)
        if member.size > limit:
            raise ImportRefused(f"{member.name} has {member.size:,} bytes, and at most {limit:,} are imported")


def _effects(file: PortableFile, judged: LogFindings, path: str = "", *, vouched: bool) -> list[ImportedEffect]:
    """Return a ledger row for each effect that the log starts, so that none can look as if it never began."""
    has = file.has(child_member(LEDGER, path))
    rows = {(row.key, row.epoch): row.outcome for row in ledger_of(file, path)} if has else {}
    effects = []
    for identity, begun in judged.audit.effects.items():
        outcome = rows.pop(identity, None)
        counts = vouched or begun.finished is not None  # a finished effect has its outcome in the log
        effects.append(ImportedEffect(begun.effect, outcome if counts else None))
    for (key, epoch), outcome in rows.items():  # effects of branches that a reset abandoned
        past = judged.audit.past[key].model_copy(update={"epoch": epoch})
        effects.append(ImportedEffect(past, outcome if vouched else None))
    return effects

"""Verify a portable file, without a server: first that it is whole, then that its events follow from one another.

1. Layout, manifest, statement and signatures; then each member in its order, the log event by event. The independent
   verifier, `docs/verify/verify_file.py`, checks exactly this, and names the same first fault.
2. Every event follows from those before it (`holdfast.audit.audit`); what was derived from the log is what follows from
   it; the ledger and the artifacts agree with it. So for each sub-agent's log; and its run began and ended as the log
   above it has it.
3. The result lists what was not checked, and says whether the rest is proven (`holdfast.runtime.audit.verdicts`).
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.audit.anchors import is_trusted
from holdfast.authority.policy import Policy
from holdfast.base.canonical import canonical
from holdfast.base.digests import GENESIS
from holdfast.base.parsing import parse_json
from holdfast.errors import NotPortable
from holdfast.log.event_log import digest_of_line
from holdfast.log.node_seals import NodeSeal, read_seal
from holdfast.portable.layout import Unsound
from holdfast.portable.members import (
    ARTIFACTS,
    CONTEXT,
    DERIVED,
    LEDGER,
    NODES,
    SEALS,
    STATEMENT,
    artifact_member,
    child_member,
    is_log,
    path_of,
)
from holdfast.portable.origins import Segment, Stretch, segments_of, stretches
from holdfast.portable.redaction import is_redacted, shape_fault
from holdfast.portable.seals import check_nodes, check_seals, claimed_positions
from holdfast.runtime.audit.anchors import NONE_GIVEN, Anchors, Compared, find_seals
from holdfast.runtime.audit.evidence import Finding, Unchecked, ledger_faults
from holdfast.runtime.audit.file_anchors import OWN_SEALS, compare_file, compare_own
from holdfast.runtime.audit.verdicts import Verification, checked_of, verdict_of
from holdfast.runtime.portable.judging import Judged, judge
from holdfast.runtime.portable.reader import PortableFile, opened
from holdfast.runtime.portable.tree import JudgedTree
from holdfast.runtime.portable.unproven import not_proven
from holdfast.runtime.reading.record import Evidence
from holdfast.stores import EffectRow, origin_of


@dataclass(frozen=True)
class SealedStretch(Stretch):
    """Events that a node was the first to seal, by the seals in a file."""

    claimed: bool
    """No node was named as trusted: the author of the file can have made these seals."""


@dataclass(frozen=True)
class FileVerification(Verification):
    """The result of verifying a portable file; `where` names a member, or `zip` for the layout, and `head` is as the
    manifest has it.
    """

    signers: tuple[str, ...] = ()
    """The public keys whose signatures over the file verify, trusted or not."""
    redacted: bool = False
    subagents: int = 0
    """How many logs of sub-agents it has."""
    segments: tuple[Segment, ...] = ()
    """The traces that its events belong to; none of a redacted file, whose log does not show them."""
    stretches: tuple[SealedStretch, ...] = ()
    """Which nodes were the first to seal which events, by the seals in the file of nodes that are trusted; of all
    nodes, as claims, where none were named."""


@dataclass
class _Seen:
    """What was read before the first fault."""

    file: PortableFile | None = None
    found: Judged | None = None
    """What the log shows; None where it was not judged."""
    tree: JudgedTree = field(default_factory=JudgedTree)
    """What it shows together with those of the sub-agents."""
    compared: Compared = field(default_factory=lambda: Compared(unchecked=(NONE_GIVEN,)))
    """What seals in anchors show."""
    segments: tuple[Segment, ...] = ()
    stretches: tuple[SealedStretch, ...] = ()


async def verify_file(
    path: Path,
    *,
    trusted: Policy | None = None,
    signer: str | None = None,
    artifacts: bool = True,
    anchors: Anchors | None = None,
) -> FileVerification:
    """Verify a portable file.

    Args:
        path: The file.
        trusted: A policy from outside the file, with people, gateways and their keys; None to trust the file's own.
            Its `signers` are those one of whom has to have signed the file.
        signer: The public key that has to have signed the file; None for any of the `signers`.
        artifacts: Whether to check artifacts.
        anchors: Where seals of the thread are, and whose count, those in the file too; None to compare with none
            but these, and to count all.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        SettingsError: An anchor cannot be read.
    """
    seen = _Seen()
    try:
        with opened(path) as file:
            seen.file = file
            seen.found, seen.tree = await check_file(file, trusted=trusted, signer=signer, artifacts=artifacts)
            seen.compared = await asyncio.to_thread(_compare, file, anchors or Anchors(()))
            seen.segments = segments_of(file.content(CONTEXT)) if seen.found else ()
            seen.stretches = _stretches(file, anchors or Anchors(()))
    except Unsound as fault:
        return _result(path, seen, fault=fault)
    unchecked = not_proven(file, seen.found, seen.tree, trusted, signer, artifacts)
    return _result(path, seen, unchecked=(*unchecked, *seen.compared.unchecked))


async def check_file(
    file: PortableFile,
    *,
    trusted: Policy | None = None,
    signer: str | None = None,
    artifacts: bool = True,
    below: Callable[[str, Judged], None] = lambda path, found: None,
) -> tuple[Judged | None, JudgedTree]:
    """Check all of an open file; return what its log shows, None where its bodies were dropped, and what all logs show.

    Args:
        file: The file.
        trusted: As for `verify_file`.
        signer: As for `verify_file`.
        artifacts: As for `verify_file`.
        below: Called with the path of each sub-agent, and what its log shows.

    Raises:
        Unsound: At the first thing that does not hold.
    """
    tree = JudgedTree()
    found = await asyncio.to_thread(_check, file, trusted, signer, artifacts)
    if found is None:
        return None, tree
    tree.take(file, found)
    await _check_ledger(file, found)
    for place in file.subagents:
        child = await asyncio.to_thread(judge, file, trusted, owner=file.thread_at(place), path=place)
        tree.take(file, child, place)
        await _check_ledger(file, child, place)
        below(place, child)
    _check_references(file, tree, artifacts=artifacts)
    return found, tree


def _check(file: PortableFile, trusted: Policy | None, signer: str | None, artifacts: bool) -> Judged | None:
    """Check all but the ledgers' rows, and what sub-agents' logs mean."""
    check_signers(file, trusted, signer)
    owner = check_whole(file, artifacts=artifacts)
    if file.manifest.redacted:
        return None
    found = judge(file, trusted, owner=owner)
    for name in DERIVED:
        if not file.has(name) or file.content(name) != found.follows[name]:
            raise Unsound(name, "it is not what follows from the log")
    return found


def _check_references(file: PortableFile, tree: JudgedTree, *, artifacts: bool) -> None:
    """Check that the file has what its logs refer to, and nothing else.

    Raises:
        Unsound: It has not.
    """
    if tree.missing and "subagents" not in file.manifest.left_out:
        where = child_member(file.log, tree.missing[0].removeprefix(f"{file.owner}."))
        raise Unsound(where, "it is missing, and the manifest does not say that it was left out")
    referred = {artifact_member(address): position for address, (_, position) in tree.artifacts.items()}
    if artifacts and "artifacts" not in file.manifest.left_out:
        for name, position in referred.items():
            if not file.has(name):
                raise Unsound(name, "it is missing, and an event refers to it", position)
    for name in file.names:
        if name.startswith(ARTIFACTS) and name not in referred:
            raise Unsound(name, "no event refers to it")


def _compare(file: PortableFile, anchors: Anchors) -> Compared:
    """Compare the log with the seals in anchors.

    Raises:
        Unsound: A seal shows that it was altered.
    """
    own = Compared(unchecked=(NONE_GIVEN,))
    if file.has(SEALS):
        own = compare_own(file.content(SEALS).splitlines(), file.manifest.thread, anchors.nodes, file.manifest.events)
    if not anchors.places:
        return own
    log = file.log
    digests = {position: json.loads(line)["digest"] for position, line in enumerate(file.lines(log))}
    compared = compare_file(find_seals(anchors, file.manifest.thread), digests)
    for fault in compared.faults:
        raise Unsound(log, fault.reason, fault.position)
    left = [one for one in own.unchecked if one not in (*compared.unchecked, NONE_GIVEN, OWN_SEALS)]
    return Compared((), (*compared.unchecked, *left), max(compared.seals, own.seals))


def _stretches(file: PortableFile, anchors: Anchors) -> tuple[SealedStretch, ...]:
    lines = file.content(SEALS).splitlines() if file.has(SEALS) else []
    found = stretches(seal for line in lines if (seal := read_seal(line)) and is_trusted(seal, anchors.nodes))
    return tuple(SealedStretch(each.first, each.last, each.node, claimed=anchors.nodes is None) for each in found)


# Is the file whole?


def check_signers(file: PortableFile, trusted: Policy | None, signer: str | None) -> None:
    """Check who signed.

    Raises:
        Unsound: The signature that is required is missing, or none of the signers is trusted.
    """
    if signer is not None and signer not in file.signers:
        raise Unsound(STATEMENT, f"it is not signed with the key {signer}")
    if signer is None and trusted is not None and file.signers:
        # Without `signers`, the key of a person or gateway leaves open who vouches; a stranger's is none of the given.
        people = {key for person in trusted.approvers for key in person.keys}
        gateways = {key for gateway in trusted.gateways for key in gateway.keys}
        if not (trusted.file_keys or people | gateways) & set(file.signers):
            raise Unsound(STATEMENT, f"it is signed with {file.signers[0]}, which is none of the given keys")


def check_whole(file: PortableFile, *, artifacts: bool = True) -> str:
    """Check each member in its order: the log event by event, all others by their digests.

    Returns:
        The thread that the log begins with: of a fork, the original; of a log that a reset set aside, its thread.

    Raises:
        Unsound: A member was altered.
    """
    owner = ""
    # The chain comes first, and is not kept: the seals say which of its digests they need.
    digests: dict[int, str] = {}
    if file.has(SEALS):
        with suppress(Unsound):  # said in its turn
            digests = dict.fromkeys(claimed_positions(file.small(SEALS)), "")
    seals: tuple[NodeSeal, ...] = ()
    digest_of = _redacted_digest if file.manifest.redacted else digest_of_line
    for name in file.names[:-2]:
        if name == file.log:
            owner = _check_chain(file, name, digest_of, digests)
        elif is_log(name):
            _check_chain(file, name, digest_of, {})
        elif name == SEALS:
            seals = check_seals(file.content(SEALS), thread=file.manifest.thread, digests=digests)
        elif name == NODES:
            check_nodes(file.content(NODES), seals)
        elif name.startswith(ARTIFACTS):
            if artifacts and file.check(name) != name.removeprefix(ARTIFACTS):
                raise Unsound(name, "its name is not the digest of its content")
        else:
            file.check(name)
    if seals and not file.has(NODES):
        raise Unsound(NODES, "it is missing, and there are seals")
    return owner


def _check_chain(
    file: PortableFile,
    name: str,
    digest_of: Callable[[str, dict[str, object], bytes], str],
    digests: dict[int, str],
) -> str:
    """Check a log event by event; fill in the digests of the positions that `digests` has."""
    head, count, thread = GENESIS, 0, file.thread_at(path_of(name))
    first: dict[object, object] = {}  # fork → the thread that its log begins with
    for line in file.lines(name):
        try:
            event = parse_json(line)
            sound = isinstance(event, dict) and canonical(event) == line
        except (ValueError, RecursionError, NotPortable):
            event, sound = {}, False
        if not sound:
            raise Unsound(name, "its line is not canonical JSON", count)
        head = digest_of(head, event, line)
        if type(event.get("position")) is not int or event["position"] != count or event.get("digest") != head:
            raise Unsound(name, "it was altered, or another one is in its place", count)
        if event.get("type") == "run_forked" and all(isinstance(event.get(key), str) for key in ("thread", "origin")):
            first[event["thread"]] = first.get(event["origin"], event["origin"])
        if count in digests:
            digests[count] = head
        if name != file.log and count == 0 and not is_redacted(event) and event.get("thread") != thread:
            raise Unsound(name, f"it is the log of another thread, and has the name of {thread}", count)
        count += 1
    if name != file.log and not count:
        raise Unsound(name, "it has no events", count)
    if name == file.log and (count, head) != (file.manifest.events, file.manifest.head):
        raise Unsound(name, f"it is not where the log ends: the manifest has {file.manifest.events} events", count)
    return str(first.get(thread, thread))


def _redacted_digest(head: str, event: dict[str, object], line: bytes) -> str:
    """Return the digest of an event; of one without its body, the one that it claims."""
    if not is_redacted(event):
        return digest_of_line(head, event, line)
    claimed = event.get("digest")
    return claimed if isinstance(claimed, str) and not shape_fault(event) else ""


# Does the ledger agree?


async def _check_ledger(file: PortableFile, found: Judged, path: str = "") -> None:
    """Check the rows of a ledger against the log that was judged.

    Raises:
        Unsound: They disagree.
    """
    name = child_member(LEDGER, path)
    if not file.has(name):
        if "ledger" in file.manifest.left_out:
            return
        raise Unsound(name, "it is missing, and the manifest does not say that it was left out")
    rows = ledger_of(file, path)
    places = [(row.key, row.epoch) for row in rows]
    if places != sorted(set(places)):
        raise Unsound(name, "its rows are out of order, or there twice")

    async def effects(thread: str) -> list[EffectRow]:
        return rows

    async def asides(thread: str) -> list[str]:
        return []

    audit, thread = found.audit, file.thread_at(path)
    faults = await ledger_faults(
        Evidence(effects, asides, None),
        thread,
        rows,
        audit.effects,
        began=audit.effects,
        past=audit.past.keys(),
        # Of a log that was set aside, the ledger also has what its thread started after the reset.
        whole=origin_of(file.manifest.thread) is None,
    )
    if faults:
        first = min(faults, key=lambda fault: fault.order)
        raise Unsound(name, first.reason, first.position)


def ledger_of(file: PortableFile, path: str = "") -> list[EffectRow]:
    """Return the ledger's rows of a file, or of a sub-agent in it.

    Raises:
        Unsound: A line is no row, or the member was altered.
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


# The result.

_ADVICE = {
    "zip": "Get the file again from where it came: it was damaged, or is no portable file.",
    STATEMENT: "Do not trust the file before you know who made it.",
    LEDGER: "Check in the effect's own system whether it happened, and find out who exported the file.",
}
_ALTERED = "Trust nothing from there on: export the thread again, and find out where the file was altered."


def _advice(where: str) -> str:
    return _ADVICE.get(LEDGER if where.endswith("/ledger.jsonl") else where, _ALTERED)


def _result(
    path: Path, seen: _Seen, *, fault: Unsound | None = None, unchecked: tuple[Unchecked, ...] = ()
) -> FileVerification:
    manifest = seen.file.manifest if seen.file else None
    faults = [Finding(fault.where, fault.reason, fault.position)] if fault else []
    made = {"signature", "ledger", "artifacts", "keys"} | ({"anchors"} if seen.compared.seals else set())
    checked = () if fault else checked_of(made, unchecked)
    return FileVerification(
        thread=manifest.thread if manifest else path.name,
        verdict=verdict_of(faults, checked, unchecked),
        events=manifest.events if manifest else 0,
        sources=("file",),
        checked=checked,
        unchecked=unchecked,
        faults=tuple(faults),
        advice=_advice(fault.where) if fault else "",
        signatures=seen.tree.signatures,
        seals=seen.compared.seals,
        head=manifest.head if manifest else "",
        signers=seen.file.signers if seen.file else (),
        redacted=bool(manifest and manifest.redacted),
        subagents=len(seen.file.subagents) if seen.file else 0,
        segments=seen.segments,
        stretches=seen.stretches,
    )

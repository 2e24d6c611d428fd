"""Verify a portable file without a server: first its integrity, then that its events follow from one another.

1. Integrity: layout, manifest, statement and signatures; then each member in its order, the log event by event. The
   independent verifier, `docs/verify/verify_file.py`, checks exactly this, and reports the same first fault.
2. Every event follows from those before it (`holdfast.audit.judge.audit`), the derived members match the log, and the
   ledger and the artifacts agree with it. The same applies to each sub-agent's log, which also agrees with the log of
   its parent.
3. The result lists the missing checks, and whether the file is proven without them
   (`holdfast.audit.evidence.verdicts`).
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.audit.evidence.anchors import NONE_GIVEN, Anchors, CheckpointComparison, find_seals
from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.audit.evidence.file_anchors import OWN_SEALS, compare_file, compare_own
from holdfast.audit.evidence.results import all_signed, any_signed, unchecked_results
from holdfast.audit.evidence.verdicts import Verification, checked_of, verdict_of
from holdfast.audit.judge.anchors import is_trusted
from holdfast.audit.judge.signed_results import NodeKeys
from holdfast.core.authority.policy import Policy
from holdfast.core.log.node_seals import read_seal
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import (
    ARTIFACTS,
    CONTEXT,
    DERIVED,
    LEDGER,
    SEALS,
    STATEMENT,
    artifact_member,
    child_member,
)
from holdfast.portable.format.origins import EventRange, Segment, segments_of, stretches
from holdfast.portable.integrity import check_signers, check_whole
from holdfast.portable.judging import LogFindings, judge
from holdfast.portable.ledger import check_ledger
from holdfast.portable.reader import PortableFile, open_portable_file
from holdfast.portable.tree import TreeFindings
from holdfast.portable.unproven import not_proven


@dataclass(frozen=True)
class CheckpointRange(EventRange):
    """Events that a node was the first to seal, by the seals in a file."""

    claimed: bool
    """No trusted nodes were given, so the author of the file may have forged these seals."""


@dataclass(frozen=True)
class FileVerification(Verification):
    """The result of verifying a portable file; `where` names a member, or `zip` for the layout, and `head` is from the
    manifest.
    """

    signers: tuple[str, ...] = ()
    """The public keys whose signatures over the file verify, trusted or not."""
    redacted: bool = False
    subagents: int = 0
    """The number of sub-agents' logs in the file."""
    segments: tuple[Segment, ...] = ()
    """The traces of its events; none for a redacted file, whose log does not show them."""
    stretches: tuple[CheckpointRange, ...] = ()
    """The stretches of events by the trusted node that sealed them first; if no trusted nodes were given, by all nodes,
    as claims."""


@dataclass
class _Findings:
    """The findings before the first fault."""

    file: PortableFile | None = None
    judged: LogFindings | None = None
    """The findings about the log; None if it was not judged."""
    tree: TreeFindings = field(default_factory=TreeFindings)
    """The findings about all logs together."""
    compared: CheckpointComparison = field(default_factory=lambda: CheckpointComparison(unchecked=(NONE_GIVEN,)))
    """The comparison with seals."""
    segments: tuple[Segment, ...] = ()
    stretches: tuple[CheckpointRange, ...] = ()


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
            One of its `signers` must have signed the file.
        signer: The public key that must have signed the file; None for any of the `signers`.
        artifacts: Whether to check artifacts.
        anchors: Anchors with seals of the thread, and the nodes whose seals count, including those in the file; None to
            compare only with the seals in the file, and to count all of them.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        SettingsError: An anchor cannot be read.
    """
    findings = _Findings()
    try:
        with open_portable_file(path) as file:
            findings.file = file
            findings.judged, findings.tree = await check_file(
                file, trusted=trusted, signer=signer, artifacts=artifacts, nodes=anchors.nodes if anchors else None
            )
            findings.compared = await asyncio.to_thread(_compare, file, anchors or Anchors(()))
            findings.segments = segments_of(file.content(CONTEXT)) if findings.judged else ()
            findings.stretches = _stretches(file, anchors or Anchors(()))
    except Unsound as fault:
        return _result(path, findings, fault=fault)
    unchecked = not_proven(file, findings.judged, findings.tree, trusted, signer, artifacts)
    gaps = unchecked_results(findings.tree.calls)
    return _result(path, findings, unchecked=(*unchecked, *gaps, *findings.compared.unchecked))


async def check_file(
    file: PortableFile,
    *,
    trusted: Policy | None = None,
    signer: str | None = None,
    artifacts: bool = True,
    nodes: NodeKeys | None = None,
    below: Callable[[str, LogFindings], None] = lambda path, judged: None,
) -> tuple[LogFindings | None, TreeFindings]:
    """Check all of an open file; return the findings about its log (None if it is redacted), and about all logs.

    Args:
        file: The file.
        trusted: As for `verify_file`.
        signer: As for `verify_file`.
        artifacts: As for `verify_file`.
        nodes: The keys of nodes, with which signatures of results are verified; None for no node.
        below: Called with the path of each sub-agent and the findings about its log.

    Raises:
        Unsound: The file has a fault.
    """
    tree = TreeFindings()
    judged = await asyncio.to_thread(_check, file, trusted, signer, artifacts, nodes)
    if judged is None:
        return None, tree
    tree.take(file, judged)
    await check_ledger(file, judged)
    for path in file.subagents:
        child = await asyncio.to_thread(judge, file, trusted, owner=file.thread_at(path), path=path, nodes=nodes)
        tree.take(file, child, path)
        await check_ledger(file, child, path)
        below(path, child)
    _check_references(file, tree, artifacts=artifacts)
    return judged, tree


def _check(
    file: PortableFile, trusted: Policy | None, signer: str | None, artifacts: bool, nodes: NodeKeys | None
) -> LogFindings | None:
    """Check everything except the ledgers' rows and the events of sub-agents."""
    check_signers(file, trusted, signer)
    owner = check_whole(file, artifacts=artifacts)
    if file.manifest.redacted:
        return None
    judged = judge(file, trusted, owner=owner, nodes=nodes)
    for name in DERIVED:
        if not file.has(name) or file.content(name) != judged.follows[name]:
            raise Unsound(name, "it is not what follows from the log")
    return judged


def _check_references(file: PortableFile, tree: TreeFindings, *, artifacts: bool) -> None:
    """Check that the file has all members that its logs refer to, and no others.

    Raises:
        Unsound: A member is missing, or nothing refers to it.
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


def _compare(file: PortableFile, anchors: Anchors) -> CheckpointComparison:
    """Compare the log with the seals in anchors and in the file.

    Raises:
        Unsound: A seal shows that the log was altered.
    """
    own = CheckpointComparison(unchecked=(NONE_GIVEN,))
    if file.has(SEALS):
        own = compare_own(file.content(SEALS).splitlines(), file.manifest.thread, anchors.nodes, file.manifest.events)
    if not anchors.locations:
        return own
    log = file.log
    digests = {position: json.loads(line)["digest"] for position, line in enumerate(file.lines(log))}
    compared = compare_file(find_seals(anchors, file.manifest.thread), digests)
    for fault in compared.faults:
        raise Unsound(log, fault.reason, fault.position)
    left = [one for one in own.unchecked if one not in (*compared.unchecked, NONE_GIVEN, OWN_SEALS)]
    return CheckpointComparison((), (*compared.unchecked, *left), max(compared.seals, own.seals))


def _stretches(file: PortableFile, anchors: Anchors) -> tuple[CheckpointRange, ...]:
    lines = file.content(SEALS).splitlines() if file.has(SEALS) else []
    sealed = stretches(seal for line in lines if (seal := read_seal(line)) and is_trusted(seal, anchors.nodes))
    return tuple(CheckpointRange(each.first, each.last, each.node, claimed=anchors.nodes is None) for each in sealed)


_ADVICE = {
    "zip": "Get the file again from where it came: it was damaged, or is no portable file.",
    STATEMENT: "Do not trust the file before you know who made it.",
    LEDGER: "Check in the effect's own system whether it happened, and find out who exported the file.",
}
_ALTERED = "Trust nothing from there on: export the thread again, and find out where the file was altered."


def _advice(where: str) -> str:
    return _ADVICE.get(LEDGER if where.endswith("/ledger.jsonl") else where, _ALTERED)


def _result(
    path: Path, findings: _Findings, *, fault: Unsound | None = None, unchecked: tuple[Unchecked, ...] = ()
) -> FileVerification:
    manifest = findings.file.manifest if findings.file else None
    faults = [Finding(fault.where, fault.reason, fault.position)] if fault else []
    begun = {"signature", "ledger", "artifacts", "keys"} | ({"anchors"} if findings.compared.seals else set())
    begun |= {"results"} if all_signed(findings.tree.calls) else set()
    checked = () if fault else checked_of(begun, unchecked)
    return FileVerification(
        thread=manifest.thread if manifest else path.name,
        verdict=verdict_of(faults, checked, unchecked),
        events=manifest.events if manifest else 0,
        sources=("file",),
        checked=checked,
        unchecked=unchecked,
        faults=tuple(faults),
        advice=_advice(fault.where) if fault else "",
        signatures=findings.tree.signatures,
        seals=findings.compared.seals,
        calls=tuple(findings.judged.audit.results.calls) if findings.judged and any_signed(findings.tree.calls) else (),
        head=manifest.head if manifest else "",
        signers=findings.file.signers if findings.file else (),
        redacted=bool(manifest and manifest.redacted),
        subagents=len(findings.file.subagents) if findings.file else 0,
        segments=findings.segments,
        stretches=findings.stretches,
    )

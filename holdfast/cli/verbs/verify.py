"""The verb that checks a thread, a loop or a portable file: verify."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import VERDICTS
from holdfast.cli.options import Verbs
from holdfast.cli.session import Session
from holdfast.cli.verbs.portable import SUFFIX

if TYPE_CHECKING:
    from holdfast.audit.evidence.anchors import Anchors
    from holdfast.core.authority.policy import Policy

verbs = Verbs()


@verbs.verb(
    "verify rel-1.2",
    "verify rel-1.2 --keys people.yaml",
    "verify rel-1.2 --anchors /mnt/anchors --nodes nodes.txt",
    "verify rel-1.2 --require seals,record,results",
    "verify rel-1.2 --json | jq .not_checked",
    "verify rel-1.2.holdfast --signer ed25519:PbIeLO…",
)
async def verify(
    session: Session,
    thread: Annotated[
        str,
        typer.Argument(metavar="THREAD|FILE", help="A thread id; or a file from `export`: FILE.holdfast, or ./FILE."),
    ],
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="People, gateways, signers and their keys, as a policy lists them: trust no others.",
        ),
    ] = None,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Do not check artifacts.")] = False,
    signer: Annotated[
        str | None, typer.Option(metavar="KEY", help="For a file: the public key that must have signed it.")
    ] = None,
    anchors: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="An anchor with workers' seals of the record. [default: HOLDFAST_ANCHORS]"),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|KEY", help="Public keys of nodes: trust no others' seals and results."),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKS", help="Checks that must have been made, comma-separated: seals,record,anchors,ledger."
        ),
    ] = None,
) -> int:
    """Check that a thread's record is unaltered; or a portable file, offline.

    Temporal's histories and the permanent record have the same events; each follows from those before it, verdicts,
    signatures and quorum included; the effect ledger and the artifacts agree with them, and so do the seals in anchors.

    The result is `proven` (exit 0), `altered` (exit 1, with the first fault), or `not proven` (exit 7): no fault was
    found, but some checks, which are listed, could not be made.
    """
    from holdfast.audit.evidence.verdicts import CHECKS, required, view_of
    from holdfast.client.start_options import check_thread_id

    required_checks = [name.strip() for name in require.split(",")] if require else []
    if unknown := sorted(set(required_checks) - {*CHECKS}):
        raise typer.BadParameter(f"--require: there is no check {unknown[0]!r}; there are: {', '.join(CHECKS)}")

    in_file = _is_file(thread)
    if not in_file:
        check_thread_id(thread)
    if signer is not None and not in_file:
        raise typer.BadParameter("--signer is for a file; a thread's people are in --keys")
    from holdfast.config.policy_file import load_policy

    trusted = load_policy(keys) if keys else None
    from holdfast.cli.screens.anchors import anchors_from_options, known_nodes

    seals = anchors_from_options(
        session.settings if in_file else session.parts.settings, anchors or (), nodes or (), in_file=in_file
    )
    if in_file:
        return await _verify_file(
            session,
            thread,
            trusted=trusted,
            signer=signer,
            artifacts=not no_artifacts,
            anchors=seals,
            required_checks=required_checks,
        )
    threads = await session.connect(thread)
    from dataclasses import replace

    from holdfast.audit.evidence.forgotten import tombstone_of
    from holdfast.audit.evidence.loops import verify_loop
    from holdfast.audit.evidence.verify import verify as verify_thread
    from holdfast.cli.screens.record_screens import verify_screen
    from holdfast.client.loops import find_loop, is_archived_loop

    evidence = await session.parts.evidence()
    forgotten = await tombstone_of(evidence, thread)
    if not forgotten and (await find_loop(threads, thread) or await is_archived_loop(threads, thread)):
        verification = await verify_loop(threads, thread, evidence=evidence, anchors=seals)
    else:
        if no_artifacts:
            evidence = replace(evidence, artifacts=None)
        known = known_nodes(session.settings, nodes or ())
        verification = await verify_thread(
            threads, thread, evidence=evidence, trusted=trusted, anchors=seals, nodes=known
        )
    verification = required(verification, required_checks)
    session.output.result(view_of(verification), verify_screen(verification))
    return VERDICTS[verification.verdict]


def _is_file(name: str) -> bool:
    """Whether a name is that of a file, not of a thread: by its form alone, even if no such file exists."""
    return name.endswith(SUFFIX) or name.startswith(("/", "./", "../"))


async def _verify_file(
    session: Session,
    name: str,
    *,
    trusted: "Policy | None",
    signer: str | None,
    artifacts: bool,
    anchors: "Anchors | None",
    required_checks: Sequence[str],
) -> int:
    """Verify a portable file, without a server; return the exit code."""
    from holdfast.audit.evidence.verdicts import required, view_of
    from holdfast.cli.screens.record_screens import file_screen
    from holdfast.core.authority.signatures import check_key
    from holdfast.portable.verify import verify_file

    if signer is not None:
        try:
            check_key(signer)
        except ValueError as error:
            raise typer.BadParameter(f"--signer: {error}") from None
    verified = await verify_file(Path(name), trusted=trusted, signer=signer, artifacts=artifacts, anchors=anchors)
    verified = required(verified, required_checks)
    session.output.result(view_of(verified), file_screen(verified))
    return VERDICTS[verified.verdict]

"""Verbs that make and check portable files: export; and `verify`, where it is given a file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.runtime.cli.exits import FAILED, OK
from holdfast.runtime.cli.options import Key, Thread, Verbs
from holdfast.runtime.cli.session import Session

if TYPE_CHECKING:
    from holdfast.authority.policy import Policy
    from holdfast.runtime.audit.anchors import Anchors

verbs = Verbs()

SUFFIX = ".holdfast"

Format = Literal["holdfast", "atif", "openai"]


@verbs.verb(
    "export rel-1.2 -o rel-1.2.holdfast",
    "export rel-1.2 -o rel-1.2.holdfast --key alice.key --json | jq -r .head",
    "export rel-1.2 -o shared.holdfast --redact",
    "export rel-1.2 --format openai | jq '.messages[-1].content'",
    interrupted=FAILED,
    farewell="Nothing was exported.",
)
async def export(
    session: Session,
    thread: Thread,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this new file. [default: stdout]")
    ] = None,
    format: Annotated[
        Format, typer.Option(help="A portable file; a trajectory in ATIF; or OpenAI-style messages.")
    ] = "holdfast",
    key: Key = None,
    redact: Annotated[bool, typer.Option("--redact", help="Drop bodies and artifacts; keep digests.")] = False,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Leave the artifacts out.")] = False,
) -> int:
    """Export a thread as one file that verifies offline, or in a format of others.

    The file has the log byte for byte, the artifacts, the ledger's rows, and what the run was asked and allowed to do.
    An open run is exported as far as it is recorded.
    """
    if format != "holdfast":
        if redact:
            raise typer.BadParameter(f"--redact is for portable files, not for {format}")
        return await _export_as(session, thread, format, output)
    if output is None:
        raise typer.BadParameter(f"name the file: -o FILE{SUFFIX}")
    private = session.private_key(key)
    threads = await session.connect(thread)
    from dataclasses import asdict

    from rich.text import Text

    from holdfast.runtime.cli.text import count, visible
    from holdfast.runtime.portable.export import export_thread

    exported = await export_thread(
        threads,
        thread,
        output,
        evidence=await session.parts.evidence(),
        private=private,
        redact=redact,
        artifacts=not no_artifacts,
        note=session.note_silence,
    )
    words = f"{visible(thread)}: {count(exported.events, 'event')}, {exported.bytes:,} bytes in {visible(str(output))}"
    session.output.result({"file": str(output), **asdict(exported)}, Text(f"{words}\nhead {exported.head}"))
    if not exported.signed:
        session.output.note("It is not signed: anybody can make such a file. --key signs it.")
    for each in exported.left_out:
        session.output.note(f"It has no {each}.")
    return OK


def is_file(name: str) -> bool:
    """Whether what was typed names a file, and not a thread: by its form alone, whatever lies in this folder."""
    return name.endswith(SUFFIX) or name.startswith(("/", "./", "../"))


async def verify_portable(
    session: Session,
    name: str,
    *,
    trusted: "Policy | None",
    signer: str | None,
    artifacts: bool,
    anchors: "Anchors | None" = None,
) -> int:
    """Verify a portable file, without a server."""
    from dataclasses import asdict

    from holdfast.authority.signatures import check_key
    from holdfast.runtime.cli.file_screens import file_screen
    from holdfast.runtime.portable.verify import verify_file

    if signer is not None:
        try:
            check_key(signer)
        except ValueError as error:
            raise typer.BadParameter(f"--signer: {error}") from None
    found = await verify_file(Path(name), trusted=trusted, signer=signer, artifacts=artifacts, anchors=anchors)
    view = {"from" if field == "sources" else field: value for field, value in asdict(found).items()}
    session.output.result(view, file_screen(found))
    return OK if found.ok else FAILED


async def _export_as(session: Session, thread: str, format: Format, output: Path | None) -> int:
    """Write a thread in a format of others: as JSON, whatever the options."""
    threads = await session.connect(thread)
    from holdfast.portable.conversation import conversation
    from holdfast.portable.trajectory import trajectory
    from holdfast.runtime.cli.text import visible
    from holdfast.runtime.portable.writer import new_file
    from holdfast.runtime.reading.states import decode_lines
    from holdfast.version import __version__

    lines = threads.reader.lines(thread, 0, found=None, note=session.note_silence)
    events = [event async for event in decode_lines(lines)]
    made = trajectory(events, version=__version__) if format == "atif" else conversation(events)
    text = json.dumps(made, ensure_ascii=output is None)
    if output is None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return OK
    with new_file(output) as file:
        file.write(text.encode("utf-8", "replace") + b"\n")
    session.output.note(f"{visible(thread)} as {format} in {visible(str(output))}")
    return OK

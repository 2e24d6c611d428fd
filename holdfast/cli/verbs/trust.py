"""The verb that approves the instructions for agents in a workspace. It needs no server."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import OK, REFUSED
from holdfast.cli.options import By, Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import count, indented, visible

if TYPE_CHECKING:
    from holdfast.workspace.approved_instructions import Instruction
    from holdfast.workspace.tainted_files import TaintedFiles

verbs = Verbs()

SHOWN = 20
"""The most files that a line names."""


@verbs.verb(
    "trust .                        # show the instructions that agents would get, and ask",
    "trust . --json | jq -r .digest",
    "trust . --digest sha256:3f09…  # approve the instructions with that digest, without a question",
    "trust . --files                # you have read the files that agents wrote here after reading the web",
    local=True,
)
async def trust(
    session: Session,
    workspace: Annotated[
        Path,
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The workspace; on the worker's machine."),
    ],
    digest: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Approve all instructions, if they have this digest.")
    ] = None,
    files: Annotated[
        bool, typer.Option("--files", help="Vouch for the files that agents wrote after reading the web.")
    ] = False,
    by: By = None,
) -> int:
    """Approve the instructions in a folder for agents.

    Those are strategies and skills; without approval no agent gets them. An approval covers the exact text: a change
    needs a new one.

    Files that an agent wrote after reading the web keep the trust level `web` for every run that reads them, until
    a person has read them and vouches for them with `--files`.
    """
    from datetime import UTC, datetime

    from rich.text import Text

    from holdfast.core.base.canonical import digest as digest_of
    from holdfast.workspace.approved_instructions import Approvals
    from holdfast.workspace.memory.recall import WorkspaceMemory
    from holdfast.workspace.tainted_files import TaintedFiles

    folder, output = workspace.expanduser().absolute(), session.output
    tainted = TaintedFiles(session.settings.home)
    if files:
        return _vouch(session, folder, tainted)
    approvals = Approvals(session.settings.home)
    instructions = list(WorkspaceMemory(approvals).instructions(folder))
    missing = [each for each, approved in instructions if not approved]
    total = f"sha256:{digest_of(['instructions/1', *[each.digest for each, _ in instructions]])}"
    counts = approvals.count_in(folder)
    if not counts:
        output.note(
            f"{visible(str(folder))} holds the state folder {visible(str(session.settings.home))}, so no approval "
            "counts in it; set HOLDFAST_HOME to a folder elsewhere, for workers and the command line"
        )
    approved = counts and bool(missing) and _ask(session, instructions, digest, total)
    if approved:
        approvals.add(missing, by=session.person(by), at=datetime.now(UTC))
    rows = [
        {"what": each.what, "digest": each.digest, "approved": was or approved, "text": each.text}
        for each, was in instructions
    ]
    screen = Text(f"{count(len(missing), 'instruction')} approved") if approved else Text("")
    if not instructions:
        screen = Text("Nothing in this folder instructs agents.")
    elif not missing:
        screen = Text("All of it is approved already.")
    marked = tainted.below(folder)
    output.result({"digest": total, "instructions": rows, "tainted": marked}, screen)
    if marked:
        output.note(f"Written by agents that had read the web: {_names(marked)}; --files vouches for them")
    if digest is not None and digest != total:
        output.note(f"what is there now has the digest {total}; nothing was approved")
        return REFUSED
    return OK if counts or not missing else REFUSED


def _vouch(session: Session, folder: Path, tainted: "TaintedFiles") -> int:
    """Clear the marks on a folder's files; print the cleared and the remaining ones; return the exit code."""
    from rich.text import Text

    marked = tainted.below(folder)
    tainted.clear(folder)
    left = tainted.below(folder)
    cleared = [each for each in marked if each not in left]
    screen = f"You vouch for {_names(cleared)}" if cleared else "No file here was written after reading the web."
    session.output.result({"cleared": cleared, "tainted": left}, Text(screen))
    if left:
        session.output.note(f"Still marked, with all that is in it: {_names(left)}; vouch for that folder instead")
    return REFUSED if left else OK


def _names(places: list[str]) -> str:
    more = f" and {len(places) - SHOWN:,} more" if len(places) > SHOWN else ""
    return ", ".join(visible(each) for each in places[:SHOWN]) + more


def _ask(session: Session, instructions: "list[tuple[Instruction, bool]]", digest: str | None, total: str) -> bool:
    """Return whether the person approves: by the digest, or by an answer after reading the instructions."""
    from rich.text import Text

    if digest is not None or session.output.as_json:
        return digest == total
    for each, approved in instructions:
        mark = ("approved", "green") if approved else ("not approved", "bold yellow")
        head = Text.assemble((visible(each.what), "bold"), "  ", mark, (f"  {each.digest}", "dim"))
        body = "\n".join(indented(visible(line)) for line in each.text.splitlines())
        session.output.note(Text.assemble(head, f"\n{body}\n"))
    if not sys.stdin.isatty():
        session.output.note(f"To approve it: --digest {total}")
        return False
    session.output.note("Agents that work in this folder will get this as instructions. Read all files of skills.")
    return input("Approve it? [y/N] ").strip().casefold() in ("y", "yes")

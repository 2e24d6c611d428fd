"""Verbs for portable files: export, move, import."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import By, Key, Thread, Verbs
from holdfast.cli.session import Session

verbs = Verbs()

SUFFIX = ".holdfast"

_LOADED_WITHIN = 15.0
"""Seconds that `import` waits for the agent: nodes that do not take it decline it for up to ten."""

Format = Literal["holdfast", "atif", "openai", "otlp"]


@verbs.verb(
    "export rel-1.2 -o rel-1.2.holdfast",
    "export rel-1.2 -o rel-1.2.holdfast --key alice.key --json | jq -r .head",
    "export rel-1.2 -o shared.holdfast --redact",
    "export rel-1.2 --format openai | jq '.messages[-1].content'",
    "export rel-1.2 --format otlp | curl -H content-type:application/json -d @- http://localhost:4318/v1/traces",
    farewell="Nothing was exported.",
)
async def export(
    session: Session,
    thread: Thread,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this new file. [default: stdout]")
    ] = None,
    format: Annotated[
        Format,
        typer.Option(help="A portable file; a trajectory in ATIF; OpenAI-style messages; or traces for OpenTelemetry."),
    ] = "holdfast",
    key: Key = None,
    redact: Annotated[bool, typer.Option("--redact", help="Drop bodies and artifacts; keep digests.")] = False,
    content: Annotated[bool, typer.Option("--content", help="With --format otlp: include what was said.")] = False,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Leave the artifacts out.")] = False,
    anchors: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Include the thread's seals from this anchor. [default: HOLDFAST_ANCHORS]"),
    ] = None,
    no_subagents: Annotated[bool, typer.Option("--no-subagents", help="Leave the sub-agents' logs out.")] = False,
) -> int:
    """Export a thread as one file that verifies offline, or in another format.

    The file has the log byte for byte, the artifacts, the ledger's rows, the run's task, requests and approvals; and
    the logs of all its sub-agents, at any depth. An open run is exported as far as it is recorded.
    """
    if format != "holdfast":
        if redact:
            raise typer.BadParameter(f"--redact is for portable files, not for {format}")
        if content and format != "otlp":
            raise typer.BadParameter(f"--content is for otlp; {format} has it anyway")
        return await _export_as(session, thread, format, output, content=content)
    if content:
        raise typer.BadParameter("--content is for --format otlp; a portable file has it anyway")
    if output is None:
        raise typer.BadParameter(f"name the file: -o FILE{SUFFIX}")
    private = session.private_key(key)
    from holdfast.cli.screens.anchors import anchors_from_options

    seals = anchors_from_options(session.parts.settings, anchors or (), ())
    threads = await session.connect(thread)
    from dataclasses import asdict

    from rich.text import Text

    from holdfast.cli.text import count, visible
    from holdfast.portable.export import export_thread

    exported = await export_thread(
        threads,
        thread,
        output,
        evidence=await session.parts.evidence(),
        private=private,
        redact=redact,
        artifacts=not no_artifacts,
        anchors=seals,
        subagents=not no_subagents,
        note=session.note_silence,
    )
    below = f" and {count(exported.subagents, 'sub-agent')}" if exported.subagents else ""
    summary = f"{visible(thread)}: {count(exported.events, 'event')}{below}, {exported.bytes:,} bytes in "
    summary += visible(str(output))
    session.output.result({"file": str(output), **asdict(exported)}, Text(f"{summary}\nhead {exported.head}"))
    if not exported.signed:
        session.output.note("It is not signed: anybody can make such a file. --key signs it.")
    if seals:
        session.output.note(f"It has {count(exported.seals, 'seal')} of nodes.")
    for each in exported.left_out:
        if each != "subagents":
            session.output.note(f"It has no {each}.")
        elif no_subagents:
            session.output.note("It has no logs of sub-agents.")
    for name, why in exported.unread.items():
        session.output.note(f"It does not have the log of sub-agent {visible(name)}: {visible(why)}")
    return OK


@verbs.verb(
    "move rel-1.2 -o rel-1.2.holdfast --key alice.key",
    "move rel-1.2 -o rel-1.2.holdfast --to 01a21834-2a7f-76ef-a905-8f743de5f74d",
    'move rel-1.2 -o rel-1.2.holdfast --reason "to the new cluster" --json',
    farewell="Repeat the command: it finishes the move.",
)
async def move(
    session: Session,
    thread: Thread,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write to this new file.")],
    to: Annotated[
        str, typer.Option(metavar="PLACE", help="The only place that may import it: `import --place` prints its id.")
    ] = "",
    key: Key = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; in the log.")] = "",
    by: By = None,
) -> int:
    """End a thread here as `moved`, and export it to a file from which `import` continues it in another place.

    Running tools end first. Open requests, waits and messages stay open in the new place. Here the thread can be read,
    and continued only by importing its file again.
    """
    private = session.private_key(key)
    threads = await session.connect(thread)
    from dataclasses import asdict

    from rich.text import Text

    from holdfast.cli.text import count, visible
    from holdfast.portable.moving import move_thread

    moved = await move_thread(
        threads,
        thread,
        output,
        by=session.person(by),
        reason=reason,
        to=to,
        evidence=await session.parts.evidence(),
        private=private,
        note=session.note_silence,
    )
    summary = f"{visible(thread)} is moved: {count(moved.events, 'event')} in {visible(str(output))}"
    session.output.result({"file": str(output), **asdict(moved)}, Text(f"{summary}\nhead {moved.head}"))
    if not moved.signed:
        session.output.note("It is not signed: anybody can make such a file. --key signs it.")
    if not to:
        session.output.note("It names no destination: any place can import it, once each. --to PLACE names one.")
    for name, why in moved.unread.items():
        session.output.note(f"It does not have the log of sub-agent {visible(name)}: {visible(why)}")
    return OK


@verbs.verb(
    "import rel-1.2.holdfast --signer ed25519:PbIeLO…",
    "import rel-1.2.holdfast --keys people.yaml --workspace /srv/rel-1.2 --json",
    "import rel-1.2.holdfast --signer ed25519:PbIeLO… --fork",
    "import --place",
    name="import",
    farewell="Repeat the command: it finishes the import.",
)
async def import_(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="From `move`; or from `export`, of a closed thread.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(metavar="KEY", help="The public key that must have signed the file.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="`signers`, one of whom must have signed it, and people; as for `verify`."),
    ] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Import it without a signature by any key named here.")
    ] = False,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", metavar="DIR", help="A folder on the worker. [default: its own]")
    ] = None,
    fork: Annotated[
        bool, typer.Option("--fork", help="Begin a new thread with its events: the original may continue elsewhere.")
    ] = False,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="With --fork: the new thread's id.")] = None,
    override_destination: Annotated[
        bool,
        typer.Option(
            "--override-destination",
            help="Import it although it was moved to another place: only if it never runs there.",
        ),
    ] = False,
    place: Annotated[bool, typer.Option("--place", help="Print the id of this place, for `move --to`.")] = False,
    by: By = None,
) -> int:
    """Continue a thread that was moved here from another place. A closed thread is added to the record.

    The whole file is verified first. Nothing runs again: effects under way are looked up in the ledger and by the
    tool's check. Repeat it after an interruption, or if no worker could load the agent: nothing is recorded before.
    """
    from dataclasses import asdict

    from rich.text import Text

    from holdfast.cli.text import brief, count, visible
    from holdfast.config.policy_file import load_policy
    from holdfast.config.programs import CLI
    from holdfast.core.authority.signatures import check_key
    from holdfast.portable.importing import ImportStores, import_thread

    if signer is not None:
        try:
            check_key(signer)
        except ValueError as error:
            raise typer.BadParameter(f"--signer: {error}") from None
    if place == (file is not None):
        raise typer.BadParameter("name a FILE; or give --place alone, which prints the id of this place")
    threads = await session.connect()
    if file is None:
        from holdfast.portable.destination import namespace_id

        here = await namespace_id(threads.runs.client)
        session.output.result({"place": here}, Text(here))
        return OK
    stores = await session.parts.stores()
    importer = session.person(by)
    imported = await import_thread(
        threads,
        file,
        ImportStores.of(stores.threads, stores.artifacts, await session.parts.pool()),
        trusted=load_policy(keys) if keys else None,
        signer=signer,
        unproven=unproven,
        workspace=str(workspace.expanduser().absolute()) if workspace else None,
        fork=fork,
        override_destination=override_destination,
        id=id,
        by=importer,
        by_proven=session.is_own(importer),
    )
    state = await threads.wait_until_loaded(imported.thread, within=_LOADED_WITHIN, past=imported.events)
    status = str(state["status"]) if state else "running"
    verb = "Imported" if imported.new else "Imported before:"
    below = f" and {count(imported.subagents, 'sub-agent')}" if imported.subagents else ""
    details = f"  {count(imported.events, 'event')}{below}, {status.replace('_', ' ')}"
    screen = Text.assemble(f"{verb} ", (brief(imported.thread), "bold"), details)
    screen.append(f"\n  {CLI.command('watch', imported.thread)}")
    session.output.result({**asdict(imported), "status": status}, screen)
    if not imported.signer:
        session.output.note("Nobody vouches for it: its content is trusted like the web.")
    if state is None:
        session.output.note(
            f"No worker has loaded its agent yet: it continues once one on the task queue "
            f"{session.settings.task_queue!r} does."
        )
    begun = state is not None and state["imported"] and state["events"] > imported.events
    if state and status == "failed" and not begun:  # importing a closed, failed run is a success
        session.output.note(f"The run failed: {visible(str(state['result']))}")
        return FAILED
    return OK


async def _export_as(session: Session, thread: str, format: Format, output: Path | None, *, content: bool) -> int:
    """Write a thread in another format: always as JSON."""
    if format == "otlp":
        from holdfast.config.extras import is_installed
        from holdfast.config.programs import setup_command
        from holdfast.errors import SettingsError

        if not is_installed("telemetry"):
            raise SettingsError(f"the packages of OpenTelemetry are missing: {setup_command('telemetry')}")
    threads = await session.connect(thread)
    from holdfast.cli.text import visible
    from holdfast.client.reading.states import decode_lines
    from holdfast.portable.format.conversation import conversation
    from holdfast.portable.format.trajectory import trajectory
    from holdfast.portable.writer import new_file
    from holdfast.version import __version__

    lines = threads.reader.lines(thread, 0, found=None, note=session.note_silence)
    events = [event async for event in decode_lines(lines)]
    value: object
    if format == "otlp":
        from holdfast.telemetry.otlp import as_json, trace_request
        from holdfast.telemetry.traces.tracer import spans_of

        spans = [span for trace in spans_of(events, thread, content=content) for span in trace.spans]
        value = as_json(trace_request(spans, {"service.name": "holdfast", "service.version": __version__}))
    else:
        value = trajectory(events, version=__version__) if format == "atif" else conversation(events)
    text = json.dumps(value, ensure_ascii=output is None)
    if output is None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return OK
    with new_file(output) as file:
        file.write(text.encode("utf-8", "replace") + b"\n")
    session.output.note(f"{visible(thread)} as {format} in {visible(str(output))}")
    return OK

"""The verb that writes a project: init."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from holdfast.cli.exits import OK
from holdfast.cli.options import Verbs
from holdfast.cli.session import Session
from holdfast.config.programs import CLI, WORKER

_FIRST = {
    "agent": ("start", "Remind customer 4711 of what is open", "--thread", "dunning-1"),
    "release": (
        "start",
        "Release the next version of this package.",
        "--workspace",
        "package",
        "--thread",
        "release-1",
    ),
    "loop": ("loop", "package", "--task", "Everything in features.json passes.", "--id", "tally-1"),
    "research": (
        "start",
        "Should we keep our job queue in PostgreSQL, or move it to a broker?",
        "--workspace",
        "library",
        "--thread",
        "queue-1",
    ),
}
"""By template: the first command after the start of the worker, the same as in the template's README."""

_WORKER = {"research": ("--dev", "--skip-time")}
"""By template: the options of its worker, if not `--dev` alone."""

verbs = Verbs()


@verbs.verb("init hello", "init demo --example release", local=True)
async def init(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, or an existing one.")] = Path(),
    example: Annotated[
        Literal["release", "loop", "research"] | None,
        typer.Option(help="Set up an example instead of an agent of your own."),
    ] = None,
) -> int:
    """Write a small project: an agent, its test, and its settings.

    It overwrites nothing: if a file of the same name exists, it writes none.
    """
    from rich.text import Text

    from holdfast.cli.new_project import ProjectExists, create_project

    template = example or "agent"
    try:
        written = create_project(folder, template)
    except ProjectExists as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(
            f"nothing was written, because {error.filename or folder} cannot be: {error.strerror}. "
            "Name a new folder, in one that you can write to."
        ) from None
    enter = f"cd {shlex.quote(str(folder))} && " if folder != Path() else ""
    screen = Text.assemble(
        "Wrote ",
        ", ".join(map(str, written)),
        f"\n  {enter}{WORKER.command_anywhere(*_WORKER.get(template, ('--dev',)))}",
        f"\n  {enter}{CLI.command_anywhere(*_FIRST[template])}    (in another terminal)",
    )
    session.output.result({"folder": str(folder.absolute()), "files": [str(path) for path in written]}, screen)
    return OK

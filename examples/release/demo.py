"""The demo: an agent releases a Python package, and its worker is killed twice, at the worst moments.

    python -m examples.release.demo            (or: make demo)

Everything is real: Temporal, PostgreSQL, git, HTTP to an LLM, SIGKILL. Without a key the LLM is scripted.
"""

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.release import report
from examples.release.folders import DemoFolder, new_folder
from examples.release.scenes import THREAD, Demo
from examples.release.workers import ROOT, DemoFailed
from holdfast.errors import HoldfastError
from holdfast.runtime.settings import Settings

PLAIN_WIDTH = 120
"""Columns where there is no terminal to ask."""


async def play(folder: DemoFolder, console: Console, *, scripted: bool, keep: bool) -> tuple[bool, int | None]:
    """Play the demo, show the table, and stop what was started.

    Returns:
        Whether every fact is right; and the worker's process id, if it was kept.
    """
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    demo = Demo(folder, console, scripted=scripted)
    stop = True
    try:
        ending = await demo.play()
        console.print()
        right = report.show(console, report.rows(ending))  # while its database still runs
        stop = not keep
        return right, demo.workers.pid if keep else None
    finally:
        if stop:
            console.print("\nStopping what the demo started …", style="dim")
            demo.workers.stop()


def closing_words(folder: DemoFolder, *, kept: int | None) -> str:
    """What to look at now, and how; `kept` is the process id of the worker that goes on running."""
    if kept is None:
        return f"Files: {_shown(folder.path)}. With --keep the stack goes on running, and the Web UI with it."
    look = f"HOLDFAST_HOME={_shown(folder.home)} python starter.py log {THREAD}"
    return f"Still running. Look: {look}\n               Stop: kill {kept}"


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack and the worker running at the end.")] = False,
) -> None:
    """Release a package with an agent whose worker is killed twice. No key and no Docker needed."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    code = 1
    try:
        settings = Settings.from_env(os.environ, root=ROOT)
        folder = new_folder(settings.home)
        console.print("[bold]Holdfast[/]: an agent releases a Python package, and its worker is killed twice.")
        console.print(f"Files: {_shown(folder.path)}\n", style="dim")
        right, kept = asyncio.run(play(folder, console, scripted=settings.scripted, keep=keep))
        console.print(closing_words(folder, kept=kept), soft_wrap=True)
        console.print(
            "[bold green]Everything is as it should be.[/]" if right else "[bold red]Something is off: see ✗.[/]"
        )
        code = 0 if right else 1
    except asyncio.CancelledError:
        print("demo: interrupted; everything it started is stopped", file=sys.stderr)
        code = 130
    except (DemoFailed, HoldfastError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
    except Exception:  # the exit code below must be reached
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, and the exit code must not lie


if __name__ == "__main__":
    typer.run(main)

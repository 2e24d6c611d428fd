"""How a demo is run: its folder, its table, its exit code, and nothing left behind."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from examples.stage.backstage import Backstage
from examples.stage.facts import show
from examples.stage.folders import DemoFolder
from examples.stage.workers import ROOT, DemoFailed
from holdfast.errors import HoldfastError
from holdfast.runtime.config.settings import Settings

PLAIN_WIDTH = 120
"""Columns where there is no terminal to ask."""

Make = Callable[[DemoFolder, Console, bool], Backstage]
"""A demo, of its folder, the console, and whether the LLM is scripted."""


def run_demo(make: Make, new_folder: Callable[[Path], DemoFolder], *, title: str, look: str, keep: bool) -> NoReturn:
    """Play a demo, and end the process: with 0 if every fact of its table is right.

    Args:
        make: Makes the demo.
        new_folder: Makes its folder, under the state folder.
        title: What it shows, in a sentence.
        look: A command of `starter.py` to look at it with, such as `log release-1`.
        keep: Leave the stack and the worker running at the end.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    code = 1
    try:
        settings = Settings.from_env(os.environ, root=ROOT)
        folder = new_folder(settings.home)
        console.print(f"[bold]Holdfast[/]: {title}")
        console.print(f"Files: {_shown(folder.path)}\n", style="dim")
        right, kept = asyncio.run(_play(make(folder, console, settings.scripted), console, keep=keep))
        console.print(_closing_words(folder, look, kept=kept), soft_wrap=True)
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


async def _play(demo: Backstage, console: Console, *, keep: bool) -> tuple[bool, int | None]:
    """Play the demo, show the table, and stop what was started.

    Returns:
        Whether every fact is right; and the worker's process id, if it was kept.
    """
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    stop = True
    try:
        facts = await demo.facts()
        console.print()
        right = show(console, facts)
        stop = not keep
        return right, demo.workers.pid if keep else None
    finally:
        if stop:
            console.print("\nStopping what the demo started …", style="dim")
            demo.workers.stop()


def _closing_words(folder: DemoFolder, look: str, *, kept: int | None) -> str:
    """What to look at now, and how; `kept` is the process id of the worker that goes on running."""
    if kept is None:
        return f"Files: {_shown(folder.path)}. With --keep the stack goes on running, and the Web UI with it."
    command = f"HOLDFAST_HOME={_shown(folder.home)} python starter.py {look}"
    return f"Still running. Look: {command}\n               Stop: kill {kept}"


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

"""Runs a demo: creates its folder, prints its table, stops everything it started, and sets the exit code."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from holdfast import HoldfastError
from holdfast.config.programs import CLI, base_folder
from holdfast.config.settings import Settings
from holdfast.examples.shared.demo import BaseDemo
from holdfast.examples.shared.facts import show
from holdfast.examples.shared.folders import DemoFolder
from holdfast.examples.shared.workers import DemoFailed

PLAIN_WIDTH = 120
"""The line width without a terminal."""

Make = Callable[[DemoFolder, Console, bool], BaseDemo]
"""Creates a demo from its folder, the console, and whether the LLM is scripted."""


def run_demo(make: Make, new_folder: Callable[[Path], DemoFolder], *, title: str, look: str, keep: bool) -> NoReturn:
    """Run a demo and end the process, with exit code 0 if every fact of its table is right.

    Args:
        make: Creates the demo.
        new_folder: Creates the demo's folder under the state folder.
        title: A sentence about the demo.
        look: A command-line verb with arguments that shows the run, such as `log release-1`.
        keep: Whether to leave the stack and the worker running at the end.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    code = 1
    try:
        settings = Settings.from_env(os.environ, root=base_folder())
        folder = new_folder(settings.home)
        console.print(f"[bold]Holdfast[/]: {title}")
        console.print(f"Files: {_display(folder.path)}\n", style="dim")
        right, worker_pid = asyncio.run(_run(make(folder, console, settings.scripted), console, keep=keep))
        console.print(_next_steps(folder, look, worker_pid=worker_pid), soft_wrap=True)
        console.print(
            "[bold green]All facts are as expected.[/]" if right else "[bold red]Some facts are wrong: see ✗.[/]"
        )
        code = 0 if right else 1
    except asyncio.CancelledError:
        print("demo: interrupted; everything it started has been stopped", file=sys.stderr)
        code = 130
    except (DemoFailed, HoldfastError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
    except Exception:  # the exit code below must be reached
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # temporalio can crash the interpreter at exit, which would change the exit code


async def _run(demo: BaseDemo, console: Console, *, keep: bool) -> tuple[bool, int | None]:
    """Run the demo, show the table, and stop everything unless `keep` is set.

    Returns:
        Whether every fact is right, and the process id of the worker if it keeps running.
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
            console.print("\nStopping the worker and the servers …", style="dim")
            demo.workers.stop()


def _next_steps(folder: DemoFolder, look: str, *, worker_pid: int | None) -> str:
    """Return the suggested next steps; `kept` is the process id of the worker if it keeps running."""
    if worker_pid is None:
        return f"Files: {_display(folder.path)}. With --keep, the stack and its Web UI keep running."
    command = f"HOLDFAST_HOME={_display(folder.home)} {CLI.command()} {look}"
    return f"Still running. Inspect: {command}\n               Stop: kill {worker_pid}"


def _display(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

"""`python -m bench`: measure, print one table, write `RESULTS.md`."""

import json
import os
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import document
from bench.environment import leave, open_stack
from bench.figures import CONTENDERS, SIDE_BY_SIDE, Load, schedule
from bench.measure import measure_all
from bench.report import Report, as_json, make_report, markdown, show


def measure(loads: Sequence[Load], *, repeat: int | None, console: Console) -> Report:
    """Start the stack, measure all loads, stop the stack."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn between runs only: a drawing thread would affect the measurement.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        runs = len(CONTENDERS) + len(schedule(loads, repeat))
        task = bar.add_task("starting Temporal and PostgreSQL", total=runs, completed=-1)
        bar.refresh()

        def progress(description: str) -> None:
            bar.update(task, description=description, advance=1, refresh=True)

        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        with open_stack() as (stack, home):
            samples, server = uvloop.run(measure_all(stack, home, loads=loads, repeat=repeat, progress=progress))
    return make_report(samples, temporal_server=server, load=load)


def main(
    steps: Annotated[str, typer.Option(help="Lengths of the runs in steps, separated by commas.")] = "10,100,400",
    side_by_side: Annotated[
        int, typer.Option(min=0, help=f"Concurrent runs of {SIDE_BY_SIDE.steps} steps; 0 for none.")
    ] = SIDE_BY_SIDE.runs,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Samples of each load. Default: more samples of shorter runs.")
    ] = None,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Write bench/RESULTS.md.")] = True,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """Compare Holdfast with a bare Temporal workflow, on a separate embedded server.

    Takes about seven minutes on two cores. Exits with 0 even if a target is missed, unless --strict is given.
    """
    try:
        lengths = sorted({int(part) for part in steps.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1:
        raise typer.BadParameter(f"{steps!r} is not a list of positive numbers such as 10,100", param_hint="--steps")
    loads = [Load(length) for length in lengths]
    if side_by_side:
        loads.append(Load(SIDE_BY_SIDE.steps, side_by_side))
    code = 0
    try:
        report = measure(loads, repeat=repeat, console=Console(stderr=True))
        if json_output:
            print(json.dumps(as_json(report)))
        else:
            show(report, Console())
        if write:
            document.write("floor", markdown(report))
        if strict and any(target.met is False for target in report.targets):
            code = 1
    except KeyboardInterrupt:
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    leave(code)


if __name__ == "__main__":
    typer.run(main)

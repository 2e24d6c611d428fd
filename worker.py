"""The worker: runs agents until it is stopped. `python worker.py --help`.

`main` parses, `holdfast.hosting` puts the worker together, and `holdfast.worker.process` runs it.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from holdfast.composition.process import Serve, run_process
from holdfast.config.commands import Version, run_main
from holdfast.config.programs import WORKER
from holdfast.hosting.development import DevelopmentPage
from holdfast.hosting.serving import serving
from holdfast.worker.process import run_worker
from holdfast.worker.reload import run_reloading


def main(
    dev: Annotated[bool, typer.Option("--dev", help="Start Temporal, PostgreSQL and, without a key, an LLM.")] = False,
    catalog: Annotated[str | None, typer.Option(help="Agents and tools: package.module:attribute.")] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A policy in place of every agent's own, as YAML.")
    ] = None,
    skip_time: Annotated[
        bool, typer.Option("--skip-time", help="With --dev: let everybody who reaches Temporal skip time.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="With --dev: restart the worker when a file of the project changes.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Version = False,
) -> None:
    """Run agents until Ctrl-C.

    Examples:
        python worker.py --dev
        python worker.py --dev --catalog mycompany.agents:catalog
        python worker.py --dev --reload
        python worker.py --dev --skip-time
        TEMPORAL_ADDRESS=temporal:7233 DATABASE_URL=postgresql://… python worker.py
    """
    if skip_time and not dev:
        raise typer.BadParameter("--skip-time: only the servers that --dev starts let time be skipped; add --dev")
    if reload and not dev:
        raise typer.BadParameter("--reload: the servers of --dev stay up while the worker restarts; add --dev")
    serve: Serve = partial(run_worker, dev=dev, skip_time=skip_time, serving=serving, page=DevelopmentPage())
    if reload:
        serve = partial(run_reloading, skip_time=skip_time)
    run_process(WORKER, serve, debug=debug, catalog=catalog, policy=policy)


if __name__ == "__main__":
    run_main(main)

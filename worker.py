"""The worker: runs agents. The only module that imports both workflows and activities. `python worker.py --help`.

`main` parses, `holdfast.composition` builds the parts, `build` puts them together, and
`holdfast.worker.process` runs the worker until it is stopped.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.worker import Worker

from holdfast.activities import assembly
from holdfast.activities.notify import open_notifier
from holdfast.composition.components import Components
from holdfast.composition.process import Serve, run_process
from holdfast.config.commands import Version, run_main
from holdfast.config.programs import WORKER
from holdfast.core.agents.catalog import Catalog
from holdfast.core.tools.secrets import Secrets
from holdfast.worker.process import run_worker
from holdfast.worker.reload import run_reloading
from holdfast.workflows import WORKFLOWS

build_worker = partial(assembly.build_worker, workflows=WORKFLOWS)


async def build(
    parts: Components, catalog: Catalog, secrets: Secrets, resources: Mapping[Any, Any], identity: str | None
) -> Worker:
    """Build the worker that the settings describe."""
    settings = parts.settings
    return build_worker(
        await parts.client(),
        task_queue=settings.task_queue,
        catalog=catalog,
        llm=await parts.llm(),
        default_llm="scripted" if settings.scripted else settings.llm,
        pool=await parts.migrated_pool(),
        database_url=parts.require_database(),
        workspaces=settings.home / "workspaces",
        artifacts=parts.artifacts_folder,
        secrets=secrets,
        resources=resources,
        notifier=await parts.cleanup.enter_async_context(open_notifier(settings, ui=parts.ui)),
        embeddings=await parts.embeddings(),
        plain_starts=settings.plain_starts,
        seal=await parts.seal(),
        graceful_shutdown_timeout=timedelta(seconds=5),
        identity=identity,
    )


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
    serve: Serve = partial(run_worker, dev=dev, skip_time=skip_time, build=build)
    if reload:
        serve = partial(run_reloading, skip_time=skip_time)
    run_process(WORKER, serve, debug=debug, catalog=catalog, policy=policy)


if __name__ == "__main__":
    run_main(main)

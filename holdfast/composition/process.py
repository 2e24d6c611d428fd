"""A server process of ours, worker or gateway, from its settings to its exit code."""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from holdfast.composition.hardening import protect_process
from holdfast.composition.telemetry.logs import configure_logging
from holdfast.config.namesake import namesake_warning
from holdfast.config.own_secrets import own_secrets
from holdfast.config.programs import Program, base_folder
from holdfast.config.project import read_project
from holdfast.config.settings import Settings, unknown_variables
from holdfast.errors import HoldfastError, ServerUnreachable

Serve = Callable[[Settings, Mapping[str, str]], Awaitable[None]]
USAGE = 2
UNREACHABLE = 4


def run_process(
    program: Program,
    serve: Serve,
    *,
    debug: bool,
    catalog: str | None = None,
    policy: Path | None = None,
) -> NoReturn:
    """Serve until it is stopped, and end the process: 0 after a stop, 4 without a server, 2 for any other error.

    Args:
        program: Its name starts error messages.
        serve: Called with the settings, and the environment from which they and Temporal's client are read.
        debug: Show tracebacks.
        catalog: `--catalog`, in place of HOLDFAST_CATALOG.
        policy: `--policy`, in place of HOLDFAST_POLICY.
    """
    import uvloop  # the extra of the command line, which imports this package, does not have it

    try:
        options = {"HOLDFAST_CATALOG": catalog, "HOLDFAST_POLICY": str(policy) if policy else None}
        environ = os.environ | {variable: value for variable, value in options.items() if value}
        project = read_project(environ, folder=Path.cwd(), default_root=base_folder(), runs_code=True)
        settings = Settings.from_env(project.environ, root=project.root, files=project.files)
        os.environ["HOLDFAST_HOME"] = str(settings.home)  # tools, too, find the state folder there
        configure_logging(settings.log_level, settings.log_format, secrets=own_secrets(settings, project.environ))
        protect_process()
        if warning := namesake_warning():
            say(f"Warning    {warning}")
        for unknown in unknown_variables(environ):
            say(f"Warning    {unknown}")
        for line in project.listing():
            say(f"Settings   {line}")
        uvloop.run(_serve_and_exit(serve, settings, project.environ))  # 8 % less CPU a step than asyncio's own loop
    except HoldfastError as error:
        if debug:
            raise
        print(f"{program.name}: {error}", file=sys.stderr)
        exit_now(UNREACHABLE if isinstance(error, ServerUnreachable) else USAGE)
    raise AssertionError("the process has ended")


async def _serve_and_exit(serve: Serve, settings: Settings, environ: Mapping[str, str]) -> None:
    await serve(settings, environ)
    exit_now(0)  # from within the loop: closing it waits for threads, and a tool may never return


def exit_now(code: int) -> NoReturn:
    """End the process at once: temporalio can crash the interpreter at exit, which would change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # a closed pipe
    os._exit(code)


def say(line: str) -> None:
    """Print a line for people at once; do nothing if the terminal was closed."""
    with suppress(OSError):
        print(line, flush=True)

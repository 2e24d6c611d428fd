"""The gateway: threads over HTTP, for programs that do not speak Temporal. `python gateway.py --help`.

It reads settings and serves `holdfast.runtime.gateway`. Here is what only the application knows: the permanent record.
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from holdfast.errors import HoldfastError, ServerUnreachable
from holdfast.runtime.client.connect import connect, connect_config
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.client.ui_links import ui_base
from holdfast.runtime.config.own_secrets import own_secrets
from holdfast.runtime.config.settings import Settings
from holdfast.runtime.config.stack_file import read_stack
from holdfast.runtime.encryption.codec import EncryptionCodec
from holdfast.runtime.encryption.fleet_keys import fleet_seals
from holdfast.runtime.encryption.signing_keys import read_key
from holdfast.runtime.gateway.app import build_app
from holdfast.runtime.gateway.callers import read_callers
from holdfast.runtime.gateway.serving import Server, listen
from holdfast.runtime.hardening import protect_process
from holdfast.runtime.stores.pool import open_pool
from holdfast.runtime.stores.threads import PostgresThreads
from holdfast.runtime.telemetry.logs import configure_logging

ROOT = Path(__file__).resolve().parent


async def run(settings: Settings, *, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: From the environment.
        host: The address to listen on.
        port: The port; 0 for any that is free.

    Raises:
        HoldfastError: Something it needs is missing; the message says what to do.
    """
    callers = read_callers(settings.gateway_tokens, settings.policy)
    key = read_key(settings.gateway_key) if settings.gateway_key else None
    config = connect_config(os.environ, home=settings.home)
    codec = EncryptionCodec.of(settings.encryption_keys)
    seals = fleet_seals(settings, config)
    client = await connect(config, codec=codec, seals=seals)
    if not seals:
        _say("           HOLDFAST_FLEET_KEYS is not set: closed threads cannot be continued, answers are not verified")
    stack = read_stack(settings.home)
    embedded = stack.database_url if stack and stack.temporal_address == config["target_host"] else None
    async with AsyncExitStack() as cleanup:
        record = None
        if url := settings.database_url or embedded:
            # Not waited for: without the record, the gateway does without what Temporal has forgotten.
            logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
            record = PostgresThreads(await cleanup.enter_async_context(open_pool(url, size=4)))
        threads = Threads(client, task_queue=settings.task_queue, answer_within=settings.answer_seconds, record=record)
        listening = listen(host, port)
        slack = settings.slack_signing_secret
        ui = ui_base(config, settings)
        if codec.encrypts and ui is None:
            _say("           HOLDFAST_UI_URL is not set: there is no /codec to decrypt for the Web UI")
        app = build_app(
            threads,
            callers,
            key=key,
            audience=(audience := _audience(settings, host, listening.getsockname()[1])),
            slack_secret=slack.get_secret_value() if slack else None,
            codec=codec if codec.encrypts else None,
            ui=ui,
        )
        server = Server(app)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        _say(f"Gateway    http://{host}:{listening.getsockname()[1]}/openapi.json    (Ctrl-C stops it)")
        if audience is None:
            _say(
                "           HOLDFAST_GATEWAY_URL is not set: signed requests, which name whom they are for, are refused"
            )
        if key is None:
            _say("           HOLDFAST_GATEWAY_KEY is not set: decisions go unsigned, and a policy may refuse them")
        await server.serve(sockets=[listening])


def _audience(settings: Settings, host: str, port: int) -> str | None:
    """What signed requests call this gateway. An address that stands for all of a machine's is nobody's name."""
    if settings.gateway_url:
        return settings.gateway_url
    if host in ("", "0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return None
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say(line: str) -> None:
    print(line, flush=True)


def main(
    host: Annotated[str | None, typer.Option(help="Address to listen on: HOLDFAST_GATEWAY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port: HOLDFAST_GATEWAY_PORT.", min=0, max=65535)] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Serve threads over HTTP until Ctrl-C.

    Examples:
        HOLDFAST_GATEWAY_TOKENS=tokens.yaml python gateway.py
        HOLDFAST_GATEWAY_TOKENS=tokens.yaml HOLDFAST_GATEWAY_KEY=gateway.key python gateway.py --port 9000
    """
    try:
        settings = Settings.from_env(os.environ, root=ROOT)
        configure_logging(settings.log_level, settings.log_format, secrets=own_secrets(settings))
        protect_process()
        asyncio.run(
            run(
                settings,
                host=settings.gateway_host if host is None else host,
                port=settings.gateway_port if port is None else port,
            )
        )
    except HoldfastError as error:
        if debug:
            raise
        print(f"gateway.py: {error}", file=sys.stderr)
        _exit(4 if isinstance(error, ServerUnreachable) else 2)
    _exit(0)


def _exit(code: int) -> NoReturn:
    """End at once: temporalio can crash the interpreter at exit, and the exit code must not lie."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    typer.run(main)

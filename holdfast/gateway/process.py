"""Runs a gateway process until it is stopped: its parts, its socket, and its output."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.composition.process import say
from holdfast.composition.witnesses import witnesses_of
from holdfast.config.extras import is_installed
from holdfast.config.loading import load
from holdfast.config.page_links import PREFIX, is_servable
from holdfast.config.policy_file import load_policy
from holdfast.config.programs import setup_command
from holdfast.config.settings import Settings
from holdfast.core.agents.catalog import Catalog
from holdfast.doctor.own import OwnChecks
from holdfast.encryption.signing_keys import read_key
from holdfast.errors import SettingsError
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import read_callers
from holdfast.gateway.http.serving import Server, listen
from holdfast.gateway.mcp.exposed import ExposedAgent, expose
from holdfast.gateway.page.links import request_page

_INDENT = " " * 11


async def run_gateway(settings: Settings, environ: Mapping[str, str], *, host: str | None, port: int | None) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: From `environ`.
        environ: The environment, completed from the project's files.
        host: The address to listen on; None for the one in the settings.
        port: The port, 0 for any free one; None for the one in the settings.

    Raises:
        HoldfastError: A requirement is missing; the message says what to do.
    """
    host = settings.gateway_host if host is None else host
    callers = read_callers(settings.gateway_tokens, settings.policy)
    key = read_key(settings.gateway_key) if settings.gateway_key else None
    async with AsyncExitStack() as cleanup:
        parts = Components(settings, environ, cleanup=cleanup, connections=4)
        client = await parts.client()
        # Does not wait for the database: without the record, only runs that Temporal has removed cannot be read.
        stores = await parts.stores()
        threads = Threads(
            client, task_queue=settings.task_queue, answer_within=settings.answer_seconds, record=stores.threads
        )
        socket = listen(host, settings.gateway_port if port is None else port)
        port = socket.getsockname()[1]
        audience = _audience(settings, host, port)
        slack, codec = settings.slack_signing_secret, parts.codec
        server = Server(
            build_app(
                threads,
                callers,
                key=key,
                audience=audience,
                slack_secret=slack.get_secret_value() if slack else None,
                artifacts=stores.artifacts,
                evidence=await parts.evidence(),
                anchors=witnesses_of(parts.settings),
                codec=codec if codec.encrypts else None,
                ui=parts.ui,
                hub=await parts.hub(),
                exposed=exposed_agents(settings, key, audience),
                page_of=request_page(audience, ui=parts.ui, namespace=client.namespace),
                page=audience,
                memories=stores.memories,
                checks=OwnChecks(parts.settings, parts.config),
                openid_secret=settings.openid_secret.get_secret_value() if settings.openid_secret else "",
            )
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        say(f"Gateway    http://{host}:{port}/openapi.json    (Ctrl-C stops it)")
        if settings.mcp_agents:
            say(f"MCP        http://{host}:{port}/mcp    {settings.mcp_agents}")
        if audience and is_servable(audience):
            say(f"Page       {audience.rstrip('/')}{PREFIX}/")
        else:
            say(f"{_INDENT}HOLDFAST_GATEWAY_URL is not https://…: there is no page, which needs it")
        for variable, effect in _unset_variables(parts, audience=audience, key=key):
            say(f"{_INDENT}{variable} is not set: {effect}")
        await server.serve(sockets=[socket])


def exposed_agents(settings: Settings, key: str | None, audience: str | None) -> dict[str, ExposedAgent]:
    """Return the agents that MCP clients may call.

    Raises:
        SettingsError: A package or the gateway's URL is missing, or an agent cannot be exposed.
        LoadError: The catalog cannot be loaded.
    """
    if not settings.mcp_agents:
        return {}
    if not is_installed("mcp"):
        raise SettingsError(f"HOLDFAST_MCP_AGENTS is set, and the package is missing: {setup_command('mcp')}")
    if audience is None:
        raise SettingsError(
            "HOLDFAST_MCP_AGENTS is set, and the gateway listens on all addresses: set HOLDFAST_GATEWAY_URL to the one "
            "that clients use, so that requests of other pages are told from theirs"
        )
    policy = load_policy(settings.policy) if settings.policy else None
    names = [name.strip() for name in settings.mcp_agents.split(",")]
    return expose(load(settings.catalog, Catalog), names, policy=policy, key=key)


def _unset_variables(parts: Components, *, audience: str | None, key: str | None) -> list[tuple[str, str]]:
    """Return the environment variables that are not set, each with the effect."""
    unset = []
    if not parts.seals:
        unset.append(("HOLDFAST_FLEET_KEYS", "closed threads cannot be continued, answers are not verified"))
    if parts.codec.encrypts and parts.ui is None:
        unset.append(("HOLDFAST_UI_URL", "there is no /codec to decrypt for the Web UI"))
    if audience is None:
        unset.append(("HOLDFAST_GATEWAY_URL", "signed requests, which name the gateway they are for, are refused"))
    if key is None:
        unset.append(("HOLDFAST_GATEWAY_KEY", "decisions go unsigned, and a policy may refuse them"))
    return unset


def _audience(settings: Settings, host: str, port: int) -> str | None:
    """Return the gateway's URL in signed requests; None if the address is a wildcard, which names no single machine."""
    if settings.gateway_url:
        return settings.gateway_url
    if host in ("", "0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return None
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
